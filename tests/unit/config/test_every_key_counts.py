"""No key is accepted and ignored (NVIDIA/k8s-device-plugin#353, NVIDIA/k8s-device-plugin#1020, NVIDIA/k8s-device-plugin#1121): each
changes what is offered, answered or decided.

A key of the model that has no row here fails the first test, so that a new one cannot come in without an effect.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from device_plugin.cdi import build_specs, options_from, roots_from
from device_plugin.config.load import load
from device_plugin.config.options import fields
from device_plugin.errors import ConfigError, InjectionImpossible
from device_plugin.hardware.model import Gpu, Inventory, MigDevice, Platform
from device_plugin.health.policy import policy_from
from device_plugin.health.state import recovery_rules_from
from device_plugin.sharing.plan import plan
from device_plugin.supervisor.injection import injection_from

TESTS = Path(__file__).parents[2]
VERSION = "550.163.01"


def entry(more: str = "") -> str:
    return f"sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: 2{more}}}]}}}}"


# What is there without the key, and with it. `/root` stands for the driver root of the test.
SEEN = {
    "flags.migStrategy": ("", "flags: {migStrategy: mixed}"),
    "flags.nvidiaDriverRoot": ("", "flags: {nvidiaDriverRoot: /run/nvidia/driver}"),
    "flags.nvidiaDevRoot": ("", "flags: {nvidiaDevRoot: /host}"),
    "flags.gdrcopyEnabled": ("", "flags: {gdrcopyEnabled: true}"),
    "flags.gdsEnabled": ("", "flags: {gdsEnabled: true}"),
    "flags.mofedEnabled": ("", "flags: {mofedEnabled: true}"),
    "flags.deviceDiscoveryStrategy": ("", "flags: {deviceDiscoveryStrategy: nvml}"),
    "flags.plugin.passDeviceSpecs": ("", "flags: {plugin: {passDeviceSpecs: true}}"),
    "flags.plugin.deviceListStrategy": ("", "flags: {plugin: {deviceListStrategy: cdi-cri}}"),
    "flags.plugin.deviceIDStrategy": ("", "flags: {plugin: {deviceIDStrategy: index}}"),
    "flags.plugin.cdiAnnotationPrefix": ("", "flags: {plugin: {cdiAnnotationPrefix: a.example/}}"),
    "flags.plugin.nvidiaCTKPath": ("", "flags: {plugin: {nvidiaCTKPath: /usr/bin/nvidia-cdi-hook}}"),
    "flags.plugin.containerDriverRoot": ("", "flags: {plugin: {containerDriverRoot: /nowhere}}"),
    "flags.plugin.sharedDevicesAllocationPolicy": (
        entry(),
        f"{entry()}\nflags: {{plugin: {{sharedDevicesAllocationPolicy: packed}}}}",
    ),
    "resources.gpus.pattern": (
        'resources: {gpus: [{pattern: "*A100*", name: a}]}',
        'resources: {gpus: [{pattern: "*T4*", name: a}]}',
    ),
    "resources.gpus.name": (
        'resources: {gpus: [{pattern: "*A100*", name: a}]}',
        'resources: {gpus: [{pattern: "*A100*", name: b}]}',
    ),
    "resources.mig.pattern": (
        'flags: {migStrategy: mixed}\nresources: {mig: [{pattern: "3g.*", name: small}]}',
        'flags: {migStrategy: mixed}\nresources: {mig: [{pattern: "1g.*", name: small}]}',
    ),
    "resources.mig.name": (
        'flags: {migStrategy: mixed}\nresources: {mig: [{pattern: "3g.*", name: small}]}',
        'flags: {migStrategy: mixed}\nresources: {mig: [{pattern: "3g.*", name: other}]}',
    ),
    "sharing.timeSlicing.renameByDefault": (
        entry(),
        "sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 2}]}}",
    ),
    "sharing.timeSlicing.failRequestsGreaterThanOne": (
        entry(),
        "sharing: {timeSlicing: {failRequestsGreaterThanOne: true, resources: [{name: gpu, replicas: 2}]}}",
    ),
    "sharing.timeSlicing.resources.name": (entry(), entry().replace("nvidia.com/gpu", "nvidia.com/other")),
    "sharing.timeSlicing.resources.replicas": (entry(), entry().replace("2", "3")),
    "sharing.timeSlicing.resources.devices": (entry(), entry(", devices: [1]")),
    "sharing.timeSlicing.resources.rename": (entry(), entry(", rename: shared")),
    "sharing.timeSlicing.resources.allocationPolicy": (entry(), entry(", allocationPolicy: packed")),
    "imex.channelIDs": ("", "imex: {channelIDs: [0]}"),
    "imex.required": ("imex: {channelIDs: [0]}", "imex: {channelIDs: [0], required: true}"),
    "devices.include": ("", "devices: {include: [0]}"),
    "devices.exclude": ("", 'devices: {exclude: ["*T4*"]}'),
    "health.probeInterval": ("", "health: {probeInterval: 1h}"),
    "health.recoverAfter": ("", "health: {recoverAfter: 1h}"),
    "health.recoverWithoutEvidence": ("", "health: {recoverWithoutEvidence: true}"),
    "health.policy": ("", "health: {policy: gke}"),
    "health.disableXids": ("", "health: {disableXids: [79]}"),
    "health.enableXids": ("", "health: {enableXids: [13]}"),
    "health.classes": ("", "health: {classes: {RESTART_APP: untilReset}}"),
    "health.xids": ("", "health: {xids: {79: ignore}}"),
}
# What takes a running plugin to see.
RUN = {
    "flags.failOnInitError": "e2e/test_start.py::test_not_to_fail_means_to_try_again_until_the_driver_is_there",
    "health.refuseUnhealthyRestart": "e2e/test_hardware.py::test_refusing_restarts_on_a_broken_device_is_one_setting_away",
    "reconcile.leavingGrace": "e2e/test_booking.py::test_without_the_pod_resources_socket_the_grace_has_to_do_and_that_is_said",
    "reconcile.rediscoveryInterval": "e2e/test_start.py::test_gpus_that_come_later_are_offered",
    "reconcile.driverCallTimeout": "e2e/test_hardware.py::test_a_gpu_whose_calls_hang_costs_one_gpu_and_no_exit",
    "reconcile.exitAfterDriverLoss": "e2e/test_hardware.py::test_a_driver_upgraded_under_us_ends_the_process_after_its_time",
}
# Known to belong to other programs, or to something that is not there yet: checked, named once, harmless.
NAMED = {
    "flags.mpsRoot": "flags: {mpsRoot: /run/nvidia/mps}",
    "flags.useNodeFeatureAPI": "flags: {useNodeFeatureAPI: true}",
    "flags.gfd.oneshot": "flags: {gfd: {oneshot: true}}",
    "flags.gfd.noTimestamp": "flags: {gfd: {noTimestamp: true}}",
    "flags.gfd.sleepInterval": "flags: {gfd: {sleepInterval: 60s}}",
    "flags.gfd.outputFile": "flags: {gfd: {outputFile: /etc/features}}",
    "flags.gfd.machineTypeFile": "flags: {gfd: {machineTypeFile: /sys/name}}",
}
REFUSED = {"version": "version: v2", "sharing.mps": "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"}


def test_every_key_has_a_row():
    leaves = {field.path for field in fields() if field.model is None}
    assert leaves == SEEN.keys() | RUN.keys() | NAMED.keys() | REFUSED.keys()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A driver root with libraries and both names of the hook program."""
    libraries = tmp_path / "usr/lib64"
    libraries.mkdir(parents=True)
    for stem in ("libcuda", "libnvidia-ml"):
        (libraries / f"{stem}.so.{VERSION}").touch()
    (tmp_path / "usr/bin").mkdir()
    for program in ("nvidia-ctk", "nvidia-cdi-hook"):
        (tmp_path / "usr/bin" / program).touch(mode=0o755)
    return tmp_path


def nodes() -> list[Inventory]:
    """A node with a bit of everything, one without extras, and one on another platform."""
    mig = MigDevice("MIG-1", 0, 1, 0, "3g.20gb", device_nodes=("/dev/nvidia2", "/dev/nvidia-caps/nvidia-cap3"))
    split = Gpu(
        2, "GPU-2", "NVIDIA A100", 2, mig_capable=True, mig_enabled=True, mig_devices=(mig,), device_nodes=("/dev/nvidia2",)
    )
    whole = tuple(
        Gpu(index, f"GPU-{index}", name, index, device_nodes=(f"/dev/nvidia{index}",))
        for index, name in enumerate(["NVIDIA A100", "NVIDIA T4"])
    )
    rich = Inventory(
        gpus=(*whole, split),
        driver_version=VERSION,
        control_nodes=("/dev/nvidiactl",),
        imex_channels=(0,),
        extra_nodes={"gdrcopy": ("/dev/gdrdrv",), "gds": ("/dev/nvidia-fs0",), "mofed": ("/dev/infiniband/rdma_cm",)},
    )
    return [rich, replace(rich, imex_channels=(), extra_nodes={}), replace(rich, platform=Platform.TEGRA)]


def observed(text: str, root: Path) -> list[object]:
    """Everything that a config decides before anything runs: Offers, answers, CDI specifications, rules of health."""
    where = {} if "containerDriverRoot" in text else {"driver-root-ctr-path": str(root)}
    config = load(text, file="c.yaml", flags=where).config
    seen: list[object] = [policy_from(config.health).summary(), recovery_rules_from(config.health)]
    for inventory in nodes():
        offer = plan(inventory, config)
        seen += [offer.resources, [problem.kind for problem in offer.errors()], injection_from(config, inventory)]
        try:
            seen += [spec.document() for spec in build_specs(inventory, roots_from(config, root), options_from(config)).specs]
        except InjectionImpossible as error:
            seen.append(str(error).replace(str(root), ""))
    return seen


@pytest.mark.parametrize("path", SEEN)
def test_the_key_makes_a_difference(path, root):
    without, with_key = SEEN[path]
    assert observed(without, root) != observed(with_key, root)
    assert observed(with_key, root) == observed(with_key, root)


@pytest.mark.parametrize("path", RUN)
def test_the_key_is_shown_on_a_running_plugin(path):
    file, _, name = RUN[path].partition("::")
    assert f"async def {name}(" in (TESTS / file).read_text()


@pytest.mark.parametrize("path", NAMED)
def test_the_key_of_another_program_is_named_once_and_does_nothing(path, root):
    named = [str(problem) for problem in load(NAMED[path], file="c.yaml").problems]
    assert len(named) == 1
    assert path.rpartition(".")[2] in named[0]
    assert observed("", root) == observed(NAMED[path], root)


@pytest.mark.parametrize("path", REFUSED)
def test_the_key_is_refused(path):
    with pytest.raises(ConfigError):
        load(REFUSED[path], file="c.yaml")
