"""Another plugin registers a resource of ours: it is noticed by what kubelet knows, reported, and not fought over."""

import asyncio
import contextlib
import socket

import grpc
import pytest

from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import (
    DevicePluginServicer,
    add_DevicePluginServicer_to_server,
)
from device_plugin.kubelet.registration import call_register
from device_plugin.kubelet.sockets import target

GPU = "nvidia.com/gpu"
LOOK_SECONDS = 0.2


class Rival(DevicePluginServicer):
    """A plugin of somebody else for a resource of ours, on a socket whose name tells nothing."""

    def __init__(self, *ids):
        self.ids, self.ended = ids, asyncio.Event()

    async def GetDevicePluginOptions(self, request, context):
        return pb.DevicePluginOptions()

    async def ListAndWatch(self, request, context):
        await context.write(pb.ListAndWatchResponse(devices=[pb.Device(ID=name, health="Healthy") for name in self.ids]))
        await self.ended.wait()

    async def Allocate(self, request, context):
        return pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse()])


@contextlib.asynccontextmanager
async def registered(node, *ids):
    """The rival, registered from the begin to the end of the block."""
    rival, server = Rival(*ids), grpc.aio.server()
    add_DevicePluginServicer_to_server(rival, server)
    server.add_insecure_port(target(node.sockets / "somebody.sock"))
    await server.start()
    await call_register(node.kubelet.socket, "somebody.sock", GPU, pb.DevicePluginOptions())
    await node.wait(lambda: node.healthy() == set(ids))
    yield
    rival.ended.set()
    await server.stop(None)


@pytest.fixture(autouse=True)
def _look_often(monkeypatch):
    monkeypatch.setattr("device_plugin.supervisor.rivals.LOOK_SECONDS", LOOK_SECONDS)


async def test_devices_that_kubelet_knows_and_we_do_not_are_reported_once_and_not_fought_over(rig, fast):
    """HAMi's plugin beside NVIDIA's: the last registration wins, nobody is told, the winner changes at each reboot
    (kubernetes/kubernetes#127803, Project-HAMi/HAMi#829)."""
    node = rig("l4x4", config=fast())
    async with node.running(), registered(node, "GPU-x", "GPU-y"):
        await node.wait_log("resource.contested")
        await asyncio.sleep(3 * LOOK_SECONDS)
        reasons = [entry["reason"] for entry in node.of("resource.contested")]
        assert reasons == [f"{GPU}: kubelet knows 2 devices that are not ours, such as GPU-x"]
        assert node.healthy() == {"GPU-x", "GPU-y"}, "not fought over"
        assert node.registrations() == 2, "one of ours, one of the rival"


@pytest.mark.parametrize("has_our_ids", [False, True])
async def test_what_a_rival_leaves_behind_is_registered_again_once_it_has_gone(rig, fast, has_our_ids):
    """When the plugin that registered last leaves, the resource goes to 0 although ours still runs (kubernetes/kubernetes#52190,
    NVIDIA/k8s-device-plugin#255): kubelet drops the one client it has, and our stream, still open, does not end."""
    node = rig("l4x4", config=fast())
    ours = {gpu.uuid for gpu in node.node.gpus}
    async with node.running():
        async with registered(node, *(ours if has_our_ids else ("GPU-x",))):
            await asyncio.sleep(3 * LOOK_SECONDS)
            assert node.registrations() == 2
        await node.wait(lambda: node.of("resource.registration_lost"), 5.0)  # the devices are the same before the rival has gone
        await node.wait(lambda: node.healthy() == ours, 5.0)
        assert [entry["reason"] for entry in node.of("resource.registration_lost")] == ["kubelet has none of its devices"]
        await node.admit("a", gpu=4)
        await asyncio.sleep(3 * LOOK_SECONDS)
        assert node.registrations() == 3


async def test_a_kubelet_that_goes_on_knowing_nothing_is_not_registered_with_again_and_again(rig, fast, monkeypatch):
    """A registration is no heartbeat: the one that changes nothing is not repeated."""
    node = rig("l4x4", config=fast())
    async with node.running():
        monkeypatch.setattr(node.kubelet.manager, "take_list", lambda *_: None)
        node.kubelet.manager.resources[GPU].healthy.clear()
        await node.wait(lambda: node.registrations() == 2)
        await asyncio.sleep(5 * LOOK_SECONDS)
        assert node.registrations() == 2


async def test_devices_that_are_all_unhealthy_are_not_missed(rig, fast):
    """Kubelet tells of healthy devices only: a node without any is no reason to register again."""
    node = rig("l4x4", config=fast())
    async with node.running():
        for gpu in range(4):
            node.node.xid(gpu, 79)
        await node.kubelet.wait_allocatable(GPU, 0)
        await asyncio.sleep(5 * LOOK_SECONDS)
        assert node.registrations() == 1
        assert not node.of("resource.contested")


async def test_a_path_of_ours_that_another_serves_is_left_to_it_until_it_is_free(rig, fast):
    """A second server of one path hides the first, and whoever unlinks it takes it from both (grpc/grpc#17122)."""
    node = rig("l4x4", config=fast())
    async with node.running():
        [ours] = node.sockets.glob("gpu-device-plugin-*.sock")
        with socket.socket(socket.AF_UNIX) as foreign:
            ours.unlink()
            foreign.bind(str(ours))
            foreign.listen()
            inode = ours.stat().st_ino

            def told():
                failed = node.of("resource.registration_failed")
                return [entry["reason"] for entry in failed if entry["log_level"] == "warning"]

            await node.wait(told)
            await asyncio.sleep(0.6)
            assert [f'another process serves "{ours}"' in reason for reason in told()] == [True]
            assert (ours.stat().st_ino, node.registrations()) == (inode, 1)
        await node.wait(lambda: node.registrations() == 2)
        await node.kubelet.wait_allocatable(GPU, 4)
        await node.admit("a", gpu=4)
