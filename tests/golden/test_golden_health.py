"""What NVIDIA's plugin did when GPUs broke, done right: its verdicts where they were, recovery and the other GPUs where not."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import DevicePluginStub
from device_plugin.kubelet.sockets import socket_name, target
from device_plugin.simulation.kubelet import StandInKubelet
from device_plugin.simulation.kubelet_record import Happening
from device_plugin.simulation.node import SimulatedNode
from device_plugin.simulation.plugin import SimulatedPlugin
from device_plugin.supervisor.threads import EventThread

GPU = "nvidia.com/gpu"
RECORDINGS = Path(__file__).parent / "recordings"
FAST = """\
health: {probeInterval: 200ms}
reconcile: {rediscoveryInterval: 300ms}
"""


@pytest.fixture
def directory():
    """pytest's own directories would leave no room for the name of a socket."""
    with tempfile.TemporaryDirectory(prefix="gdp-") as path:
        (Path(path) / "config.yaml").write_text(FAST)
        yield Path(path)


class Running:
    """The plugin beside kubelet, and a channel to its one socket."""

    def __init__(self, kubelet, plugin, stub):
        self.kubelet, self.plugin, self.stub = kubelet, plugin, stub

    async def unhealthy(self, expected, timeout_seconds=5.0):
        """Wait until just these IDs are unhealthy in the list."""

        def is_so():
            listed = self.kubelet.listed(GPU)
            return len(listed) == 8 and {name for name, health in listed.items() if health != "Healthy"} == set(expected)

        await self.kubelet.record.wait_for(is_so, timeout_seconds)

    async def allocate(self, *ids):
        request = pb.AllocateRequest(container_requests=[{"devices_ids": ids}])
        answer = await self.stub.Allocate(request)
        return MessageToDict(answer, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)

    async def prefer(self, size, ids):
        request = pb.PreferredAllocationRequest(container_requests=[{"available_deviceIDs": ids, "allocation_size": size}])
        return list((await self.stub.GetPreferredAllocation(request)).container_responses[0].deviceIDs)


@pytest.fixture
def running(golden_machine, directory):
    """Starts the plugin on the recorded A100 node: `async with running() as (node, run)`."""

    class Context:
        async def __aenter__(self):
            self.node = SimulatedNode(golden_machine("a100"))
            self.node.install()
            sockets = directory / "dp"
            self.kubelet = await StandInKubelet(sockets).__aenter__()
            self.plugin = await SimulatedPlugin(self.node, sockets, config_file=directory / "config.yaml").__aenter__()
            self.channel = grpc.aio.insecure_channel(target(sockets / socket_name(GPU, sockets)))
            await self.kubelet.wait_allocatable(GPU, 8)
            return self.node, Running(self.kubelet, self.plugin, DevicePluginStub(self.channel))

        async def __aexit__(self, *_):
            await self.channel.close()
            await self.plugin.stop()
            await self.kubelet.stop()
            self.node.close()

    return Context


async def test_xids_take_out_what_they_took_out_and_an_error_of_the_watch_does_not_last(running, monkeypatch):
    """The recorded events in their order. An error from the wait made every GPU Unhealthy for good, and a reload made them all
    Healthy without a look (NVIDIA/k8s-device-plugin#111, NVIDIA/k8s-device-plugin#1014): here the error passes and the two XIDs
    stay.
    """
    monkeypatch.setattr(EventThread, "FIRST_RETRY_SECONDS", 0.05)
    recorded = json.loads((RECORDINGS / "a100-health-xid.json").read_text())
    *xids, error = recorded["events"]
    broken = xids[-1]["unhealthy_after"]
    async with running() as (node, run):
        for event in xids:
            gpu, _, xid = event["inject"].partition(" ")
            if gpu in {known.uuid for known in node.gpus}:  # the recorded one of a GPU that nobody has cannot come from this node
                node.xid(gpu, int(xid))
            await run.unhealthy(event["unhealthy_after"])
        assert (error["inject"], len(error["unhealthy_after"])) == ("error 15", 8)
        node.answer("nvmlEventSetWait", 15, times=1)
        await run.kubelet.record.wait_for(lambda: not run.kubelet.healthy(GPU), 5)
        await run.unhealthy(broken)
        run.plugin.supervisor.reload()
        with pytest.raises(TimeoutError):
            await run.kubelet.record.wait_for(lambda: len(run.kubelet.healthy(GPU)) == 8, 0.7)
        await run.unhealthy(broken)
        assert (await run.allocate(*recorded["allocate_of_unhealthy"]["request"])) == recorded["allocate_of_unhealthy"]["response"]


async def test_a_lost_gpu_costs_one_gpu(running):
    """Every request failed while GPU 3 was lost, and a reload ended the process (NVIDIA/k8s-device-plugin#2038)."""
    recorded = json.loads((RECORDINGS / "a100-lost-while-running.json").read_text())["gpu_3_lost_while_running"]
    async with running() as (node, run):
        ids = [gpu.uuid for gpu in node.gpus]
        lost, others = ids[3], ids[:3] + ids[4:]
        node.lose(3)
        await run.unhealthy([lost])
        assert "error" in recorded["preferred_2_of_all_8"]
        assert lost not in await run.prefer(2, ids)
        assert len(set(await run.prefer(2, others))) == 2
        assert await run.prefer(7, ids) == others
        assert await run.allocate(others[0]) == recorded["allocate_other_gpu"]["response"]
        assert recorded["after_sighup"]["exit_code"] == 1
        run.plugin.supervisor.reload()
        node.restore(3)
        await run.unhealthy([])
        assert len(run.kubelet.record.of(Happening.REGISTERED, GPU)) == 1
