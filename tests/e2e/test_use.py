"""What is in use is told beside what is offered."""

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
