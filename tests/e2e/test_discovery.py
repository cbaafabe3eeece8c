"""What an unusual node's driver tells, and what it does not, as kubelet and a container come to see it."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import DevicePluginStub
from device_plugin.kubelet.sockets import target
from device_plugin.simulation.kubelet_devices import PodRejected

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
MIXED = "flags: {migStrategy: mixed}\n"


async def listed(node):
    """The devices of nvidia.com/gpu, topology included."""
    [socket] = node.sockets.glob("gpu-device-plugin-nvidia.com-gpu.sock")
    async with grpc.aio.insecure_channel(target(socket), options=[("grpc.default_authority", "localhost")]) as channel:
        response = await DevicePluginStub(channel).ListAndWatch(pb.Empty()).read()
    return {device.ID: device for device in response.devices}


async def test_mig_profiles_that_no_table_knows_are_resources_of_their_own(rig):
    """Ten of `1g.10gb` and two media-engine slices were shown as twelve of one resource, so that nobody could ask for these
    (NVIDIA/k8s-device-plugin#1462); profiles of new products came with a release or not at all (NVIDIA/gpu-operator#1759,
    GoogleCloudPlatform/container-engine-accelerators#563)."""
    node = rig(config=MIXED)
    for gpu in (0, 1):
        node.node.set_mig_mode(gpu, enabled=True)
        node.node.repartition(gpu, ["1g.10gb"] * 5 + ["1g.10gb+me", "1g.20gb"])
    node.node.set_mig_mode(2, enabled=True)
    node.node.repartition(2, ["1g.24gb", "1g.24gb-me", "1g.24gb+me.all", "2g.48gb+gfx", "1c.2g.47gb"])
    async with node.running():
        assert {name: node.kubelet.allocatable(name) for name in node.kubelet.manager.resources} == {
            GPU: 5,
            "nvidia.com/mig-1g.10gb": 10,
            "nvidia.com/mig-1g.10gb.me": 2,
            "nvidia.com/mig-1g.20gb": 2,
            "nvidia.com/mig-1g.24gb": 1,
            "nvidia.com/mig-1g.24gb-me": 1,
            "nvidia.com/mig-1g.24gb.me.all": 1,
            "nvidia.com/mig-2g.48gb.gfx": 1,
            "nvidia.com/mig-1c.2g.47gb": 1,
        }
        [given] = (await node.admit("encoder", **{"nvidia.com/mig-1g.10gb.me": 1})).devices("main", "nvidia.com/mig-1g.10gb.me")
        assert given in {mig.uuid for gpu in node.node.gpus[:2] for mig in gpu.mig if mig.profile == "1g.10gb+me"}


async def test_a_gpu_without_memory_of_its_own_is_offered_and_no_size_is_made_up(rig):
    """Where the memory is the system's, its size may stand in for the GPU's only as an option and never as the GPU's own
    (leptonai/gpud#1170, Syllo/nvtop#411). Nothing here depends on a size, so none is taken from elsewhere: the GPU is described
    without one, as one that shares its memory, and given to a pod (NVIDIA/k8s-device-plugin#1482)."""
    node = rig("gb10")
    (node.node.root / "proc").mkdir(exist_ok=True)
    (node.node.root / "proc/meminfo").write_text("MemTotal:       125829120 kB\n")
    async with node.running() as plugin:
        [gpu] = plugin.supervisor._watched.discoverer.inventory.gpus
        assert (gpu.memory_bytes, gpu.coherent, gpu.faults) == (None, True, ())
        assert node.of("problem.found") == []
        assert (await node.admit("a", gpu=1)).devices("main", GPU) == (gpu.uuid,)


async def test_a_gpu_without_a_minor_number_is_offered_without_a_node_of_its_own(rig):
    """WSL2 tells no minor number (NVIDIA/k8s-device-plugin#332): neither the device's identity nor a path is made up from one. A
    container gets the control nodes, the other GPUs' nodes are what they were, and the lack is said once."""
    node = rig("l4x4", config="flags: {plugin: {passDeviceSpecs: true}}\n")
    machine = node.node.live.machine
    node.node._replace(replace(machine, gpus=(replace(machine.gpus[0], minor=None), *machine.gpus[1:])))
    async with node.running():
        pods = {
            pod.devices("main", GPU)[0]: {spec.container_path for spec in node.kubelet.injected(name).devices}
            for name in ("a", "b", "c", "d")
            for pod in [await node.admit(name, gpu=1)]
        }
        control = pods.pop(node.uuid(0))
        assert control
        assert not any(path.removeprefix("/dev/nvidia").isdecimal() for path in control)
        assert pods == {node.uuid(gpu): {*control, f"/dev/nvidia{gpu}"} for gpu in (1, 2, 3)}
        assert [entry["message"] for entry in node.of("problem.found")] == [
            "GPU 0: the driver tells no minor number, so containers get the control nodes and no /dev/nvidia<minor>"
        ]


async def test_a_gpu_of_no_known_numa_node_has_no_topology(rig):
    """Machines without NUMA information crashed the peer at its start (NVIDIA/k8s-device-plugin#140): there the field is unset,
    and the GPUs beside it keep theirs."""
    node = rig("dgx-a100")
    machine = node.node.live.machine
    node.node._replace(replace(machine, gpus=(replace(machine.gpus[0], numa=None), *machine.gpus[1:])))
    async with node.running():
        devices = await listed(node)
        assert not devices[node.uuid(0)].HasField("topology")
        assert [[numa.ID for numa in devices[node.uuid(gpu)].topology.nodes] for gpu in range(1, 8)] == [
            [machine.gpus[gpu].numa] for gpu in range(1, 8)
        ]


async def test_two_cards_are_two_cards_or_the_pod_is_told_why_not(rig, fast):
    """CI asked for two and sometimes got both slices of one GPU (NVIDIA/gpu-operator#386, NVIDIA/k8s-device-plugin#491). One slice
    is left on one GPU and three on the other: a request for two gets one of each, and where one GPU alone has any left it fails
    with the reason."""
    entry = "{name: gpu, replicas: 4, devices: [0, 1], rename: gpu.shared, allocationPolicy: distinct}"
    node = rig("l4x4", config=fast(f"sharing: {{timeSlicing: {{resources: [{entry}]}}}}\n"))

    def gpus(pod):
        return [name.partition("::")[0] for name in pod.devices("main", SHARED)]

    async with node.running():
        holders = {0: [], 1: []}
        for number in range(8):
            [gpu] = gpus(await node.admit(f"one-{number}", **{SHARED: 1}))
            holders[node.uuids(0) != {gpu}].append(f"one-{number}")
        for name in (holders[0][0], *holders[1][:3]):
            node.kubelet.delete(name)
        assert sorted(gpus(await node.admit("two", **{SHARED: 2}))) == sorted(node.uuids(0, 1))
        with pytest.raises(PodRejected, match=f"too few GPUs have one free: {node.uuid(1)} would give "):
            await node.admit("two more", **{SHARED: 2})
        assert gpus(await node.admit("one more", **{SHARED: 1})) == [node.uuid(1)]


async def test_what_a_container_gets_depends_on_its_devices_and_on_no_pod(rig, fast):
    """Allocate is not told which pod it is for, and plugins that guessed the oldest pending one gave it another's
    (kubernetes/kubernetes#82625): the same devices have the same answer, whoever holds what, and with no list of pods at all."""
    node = rig("l4x4", config=fast("flags: {plugin: {passDeviceSpecs: true}}\n"))
    request = pb.AllocateRequest()
    request.container_requests.add(devices_ids=[node.uuid(2)])

    async def answer():
        [socket] = node.sockets.glob("gpu-device-plugin-nvidia.com-gpu.sock")
        async with grpc.aio.insecure_channel(target(socket), options=[("grpc.default_authority", "localhost")]) as channel:
            return (await DevicePluginStub(channel).Allocate(request)).SerializeToString(deterministic=True)

    async with node.running():
        before = await answer()
        pods = [await node.admit(name, gpu=1) for name in ("first", "second")]
        assert await answer() == before
        assert len({pod.devices("main", GPU) for pod in pods}) == 2
    async with node.running(pod_resources=False):
        assert await answer() == before
