"""Kubelet comes, goes and refuses; the plugin is back at once, and only then."""

import asyncio
import socket

import pytest

from device_plugin.simulation.kubelet import StandInKubelet
from device_plugin.simulation.kubelet_record import Happening

GPU = "nvidia.com/gpu"
MIXED = "flags: {migStrategy: mixed}\n"


def seconds_from_start_to_list(node):
    """From kubelet's last start to the first list it was given."""
    entries = list(node.kubelet.record.entries)
    start = max(number for number, entry in enumerate(entries) if entry.happening is Happening.STARTED)
    first = next(entry for entry in entries[start:] if entry.happening is Happening.LIST)
    return first.time - entries[start].time


@pytest.mark.parametrize("notified", [True, False])
async def test_a_restarted_kubelet_has_the_list_at_once_however_slow_the_driver_is(rig, fast, notified):
    """Kubelet admits stopped containers anew within a second of its start (kubernetes/kubernetes#118559); no driver call may be on
    the way. Without notifications the poll finds the new socket (kubevirt/kubevirt#17122)."""
    node = rig(config=fast().replace("driverCallTimeout: 1s", "driverCallTimeout: 10s"))
    async with node.running(notifications=notified):
        node.node.slow(2.0)
        await asyncio.sleep(0.3)  # calls are under way
        for down in (0.0, 0.3, 0.0):
            await node.kubelet.restart(down_seconds=down)
            await node.kubelet.wait_allocatable(GPU, 8, 2.0)
            assert seconds_from_start_to_list(node) < 0.5
        node.node.slow(0)


async def test_containers_that_were_not_running_start_again_after_a_restart_of_kubelet(rig, fast):
    """`no healthy devices present` is final for a pod that is admitted before the plugin is back (kubernetes/kubernetes#133382)."""
    node = rig(config=fast())
    async with node.running():
        await node.admit("a", gpu=2)
        node.kubelet.stop_container("a", "main")
        await node.kubelet.restart()
        await node.kubelet.wait_readmitted()
        assert node.kubelet.manager.pods["a"].failure is None
        assert node.kubelet.manager.pods["a"].running == {"main"}


async def test_a_socket_that_is_there_but_refuses_is_tried_until_it_accepts(rig, fast):
    """At boot kubelet.sock exists but refuses (kubernetes/kubernetes#125506)."""
    node = rig(config=fast())
    async with node.running():
        await node.kubelet.restart(accept_after_seconds=1.0)
        await node.kubelet.wait_allocatable(GPU, 8, 2.0)
        assert seconds_from_start_to_list(node) < 0.5


async def test_a_kubelet_that_comes_late_is_found(rig, fast):
    node = rig(config=fast())
    node.sockets.mkdir()
    async with node.running(kubelet=False, ready=False):
        await node.wait_log("kubelet.awaited")
        await asyncio.sleep(0.5)
        assert not node.of("plugin.became_ready")
        async with node.kubelet:
            await node.kubelet.wait_allocatable(GPU, 8, 2.0)
            await node.wait_log("plugin.became_ready")
        await node.wait_log("plugin.became_unready")


async def test_our_own_socket_deleted_is_made_anew(rig, fast):
    """A kubelet that swept our socket was never noticed (Mellanox/k8s-rdma-shared-dev-plugin#79)."""
    node = rig(config=fast(MIXED))
    async with node.running():
        next(node.sockets.glob("gpu-device-plugin-*.sock")).unlink()
        await node.wait(lambda: node.registrations() == 2, 3.0)
        await node.kubelet.wait_allocatable(GPU, 8, 3.0)


async def test_a_stream_that_ends_costs_that_resource_one_registration(rig, fast):
    node = rig("a100-mig-mixed", config=fast(MIXED))
    async with node.running():
        resources = sorted(node.kubelet.manager.resources)
        assert len(resources) > 1
        before = {resource: node.registrations(resource) for resource in resources}
        devices = len(node.healthy(resources[0]))
        await node.kubelet._clients[resources[0]].close()
        await node.wait(lambda: node.registrations(resources[0]) == 2, 3.0)
        await node.kubelet.wait_allocatable(resources[0], devices)
        assert before == {resource: node.registrations(resource) - (resource == resources[0]) for resource in resources}


async def test_a_refused_resource_does_not_hold_up_the_others(rig, fast, monkeypatch):
    """Kubelet refuses with one text for every reason; the rest of the node goes on (kubernetes/kubernetes#70350)."""
    node = rig("a100-mig-mixed", config=fast(MIXED))
    register = StandInKubelet.register

    async def refuse(self, request, time_left):
        if request.resource_name.endswith("mig-1g.5gb"):
            self.record.add(Happening.REFUSED, request.resource_name)
            return "no"
        return await register(self, request, time_left)

    monkeypatch.setattr(StandInKubelet, "register", refuse)
    async with node.running(ready=False):
        await node.wait(lambda: len(node.kubelet.record.of(Happening.REFUSED)) >= 3)
        others = [name for name in node.kubelet.manager.resources if node.healthy(name)]
        assert len(others) >= 1
        assert not node.of("plugin.became_ready")
        assert (
            len(node.of("resource.registration_failed"))
            - len([entry for entry in node.of("resource.registration_failed") if entry["log_level"] == "debug"])
            == 1
        )
        monkeypatch.undo()
        await node.wait(lambda: node.healthy("nvidia.com/mig-1g.5gb"), 5.0)
        await node.wait_log("plugin.became_ready")


async def test_nothing_is_registered_without_need(rig, fast):
    node = rig(config=fast())
    async with node.running():
        for _ in range(5):
            node.node.xid(0, 13)
            await asyncio.sleep(0.2)
        assert node.registrations() == 1
        assert len(node.lists()) == 1


async def test_running_pods_outlive_a_restart_of_the_plugin_with_their_devices(rig, fast):
    """Stopping the plugin does not touch running containers (NVIDIA/k8s-device-plugin#313), and what was held is not offered."""
    node = rig(config=fast())
    async with node.kubelet:
        async with node.running(kubelet=False):
            pod = await node.admit("a", gpu=3)
            before = pod.devices("main", GPU)
        async with node.running(kubelet=False):
            await node.kubelet.wait_allocatable(GPU, 8)
            assert pod.devices("main", GPU) == before
            assert not set((await node.admit("b", gpu=5)).devices("main", GPU)) & set(before)


async def test_a_foreign_socket_of_our_resource_is_reported_and_left_alone(rig, fast, monkeypatch):
    """Two plugins for one resource: the last registration wins and nobody is told (kubernetes/kubernetes#52190)."""
    monkeypatch.setattr("device_plugin.supervisor.rivals.LOOK_SECONDS", 0.2)
    node = rig(config=fast())
    async with node.running():
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(str(node.sockets / "nvidia-gpu.sock"))
            foreign.listen()
            await node.wait_log("resource.contested")
            assert "nvidia-gpu.sock" in node.of("resource.contested")[0]["reason"]
            assert node.registrations() == 1
