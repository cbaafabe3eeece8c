"""What is in use: it is told, and a fault takes nothing away from a pod that runs."""

import itertools

from device_plugin.supervisor import supervisor

GPU = "nvidia.com/gpu"


async def test_what_kubelet_still_books_can_be_seen(rig, monkeypatch):
    """Devices of pods deleted by force stay booked inside kubelet (kubernetes/kubernetes#130145): the log shows it."""
    monkeypatch.setattr(supervisor, "HOLDERS_IDLE_SECONDS", 0.05)
    node = rig("t4")

    def told():
        return [entry["resources"][GPU] for entry in node.of("devices.use_changed")]

    async with node.running():
        await node.wait(lambda: told() == [{"healthy": 4, "in_use": 0}])
        await node.admit("a", **{GPU: 3})
        await node.wait(lambda: told()[-1] == {"healthy": 4, "in_use": 3})
        node.node.lose(0)
        await node.wait(lambda: told()[-1] == {"healthy": 3, "in_use": 3})
        node.kubelet.delete("a")
        await node.wait(lambda: told()[-1] == {"healthy": 3, "in_use": 0}, 15)
    assert all(before != after for before, after in itertools.pairwise(told()))


async def test_a_pod_on_a_gpu_that_breaks_is_left_running(rig, fast):
    """Users expect such pods to be killed; kubelet only stops new placements (kubernetes/kubernetes#60388,
    kubernetes/kubernetes#79228).

    The device keeps its ID in every list: by it newer kubelets show health in the pod's status (kubernetes/enhancements#4680).
    """
    node = rig("t4", fast())
    async with node.running():
        state = await node.admit("a", **{GPU: 4})
        [ids] = {entry.devices for entry in node.lists()}
        node.node.xid(2, 79)
        await node.kubelet.wait_allocatable(GPU, 3)
        assert (state.running, state.failure) == ({"main"}, None)
        assert {entry.devices for entry in node.lists()} == {ids}
        assert node.kubelet.listed(GPU)[node.uuid(2)] == "Unhealthy"
