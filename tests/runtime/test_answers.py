"""The plugin's own answers given to a real runtime: what kubelet would hand over, and what the container then has."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest

from device_plugin.simulation.kubelet import StandInKubelet
from device_plugin.simulation.kubelet_devices import Pod
from device_plugin.simulation.node import SimulatedNode
from device_plugin.simulation.plugin import SimulatedPlugin

pytestmark = pytest.mark.requires("podman", "busybox", "unshare")

VERSION = "550.163.01"
PROFILE = f"""
name: runtime-answers
driverVersion: {VERSION}
cudaVersion: "12.4"
gpuDefaults: {{ name: NVIDIA A100-SXM4-40GB, memoryMib: 40960, computeCapability: "8.0", migCapable: true }}
gpus:
  - {{ pci: "0000:07:00.0" }}
  - {{ pci: "0000:0f:00.0" }}
  - {{ pci: "0000:47:00.0", migEnabled: true, mig: [3g.20gb, 3g.20gb] }}
"""
CONFIG = """
version: v1
flags: {migStrategy: mixed, plugin: {deviceListStrategy: [STRATEGY]}}
sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, devices: [1], replicas: 2, rename: nvidia.com/gpu.shared}]}}
"""
KIND = "k8s.device-plugin.nvidia.com/"
SCRIPT = """
    ls -d /dev/nvidia[0-9]* /dev/nvidia-caps/* 2>/dev/null
    ls -d /usr/lib/x86_64-linux-gnu/libcuda.so*
    echo $NVIDIA_VISIBLE_DEVICES
"""


@pytest.fixture
def node(tmp_path: Path):
    profile = tmp_path / "profile.yaml"
    profile.write_text(PROFILE)
    with SimulatedNode(profile, root=tmp_path / "node", make_device_nodes=True) as simulated:
        yield simulated


async def admitted(node: SimulatedNode, config: Path, resource: str, cdi: Path):
    """What kubelet would hand to the runtime for a pod with one device of the resource, and the ID it was given."""
    with tempfile.TemporaryDirectory(prefix="gdp-") as directory:
        sockets = Path(directory) / "dp"
        plugin = SimulatedPlugin(node, sockets, config_file=config, flags={"driver-root": str(node.root)})
        async with StandInKubelet(sockets) as kubelet, plugin:
            await kubelet.record.wait_for(lambda: kubelet.healthy(resource), 10)
            state = await kubelet.admit(Pod.of("pod", **{resource: 1}))
            shutil.copytree(sockets / "cdi", cdi)
            return kubelet.injected("pod"), state.devices("main", resource)[0]


@pytest.mark.parametrize("strategy", ["cdi-cri", "cdi-annotations"])
@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-3g.20gb"])
async def test_the_names_answered_start_a_container_with_just_that_device(strategy, resource, node, cdi, run, tmp_path):
    """From Register to the container: the device's nodes, no neighbour's, the running driver's libraries, nothing by variable."""
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.replace("STRATEGY", strategy))
    answer, device_id = await admitted(node, config, resource, cdi)
    named = [name for value in answer.annotations.values() for name in value.split(",")]
    named += [device.name for device in answer.cdi_devices]
    assert (len(named), dict(answer.envs), len(answer.mounts), len(answer.devices)) == (1, {}, 0, 0)

    finished = run(SCRIPT, *(name.removeprefix(KIND) for name in named))

    assert finished.returncode == 0, finished.stderr
    gpu, capabilities = nodes_of(node, device_id)
    libraries = [f"/usr/lib/x86_64-linux-gnu/libcuda.so.{end}" for end in ("1", VERSION)]
    assert finished.stdout.split() == [*capabilities, gpu, *libraries, "void"]


def nodes_of(node: SimulatedNode, device_id: str) -> tuple[str, list[str]]:
    """The GPU's node and the capability nodes of a device, from the simulated driver's own table."""
    table = dict(line.split() for line in (node.root / "proc/driver/nvidia-caps/mig-minors").read_text().splitlines())
    for gpu in node.gpus:
        if device_id.partition("::")[0] == gpu.uuid:
            return f"/dev/nvidia{gpu.minor}", []
        for mig in gpu.mig:
            if device_id == mig.uuid:
                instance = f"gpu{gpu.minor}/gi{mig.gpu_instance}"
                minors = [table[f"{instance}/access"], table[f"{instance}/ci{mig.compute_instance}/access"]]
                return f"/dev/nvidia{gpu.minor}", sorted(f"/dev/nvidia-caps/nvidia-cap{minor}" for minor in minors)
    raise AssertionError(f"no such device: {device_id}")
