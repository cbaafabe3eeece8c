"""Which config is in force when the newest one does not fit the node, or nobody can tell yet."""

import asyncio
import time

import pytest

from device_plugin.kubelet.server import ResourceServer
from device_plugin.supervisor import configuration, reconcile

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
SETTLES_SECONDS = 0.5  # how long an answer counts as under way, in these tests
SINGLE = "flags: {migStrategy: single, failOnInitError: false}\n"


def shared(replicas, more=""):
    return f"sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: {replicas}{more}}}]}}}}\n"


@pytest.mark.parametrize("away", [False, True])
async def test_while_no_config_fits_the_newest_one_waits(rig, fast, away):
    """Not in turn with the one before it, which does not fit either."""
    node = rig(config=fast(SINGLE + shared(2)))
    node.node.repartition(0, ["3g.20gb", "1g.5gb"])
    if away:
        node.node.unload_driver()
    async with node.running(ready=False):
        await node.wait_log("driver.away" if away else "plugin.awaits_node")
        node.write(fast(SINGLE + shared(3)))
        await node.wait_log("config.loaded", 2)
        if away:
            node.node.load_driver()
            await node.wait_log("plugin.awaits_node")
        await asyncio.sleep(1.0)  # some six looks at the hardware
        assert len(node.of("config.loaded")) == 2
        assert len(node.of("plugin.awaits_node")) == 1
        assert not node.of("config.refused")
        node.node.set_mig_mode(0, enabled=False)
        await node.wait_log("plugin.became_ready")
        assert len(node.healthy()) == 24
        assert {len(entry.devices) for entry in node.lists()} == {24}, "never by the one before"


async def test_an_edit_that_does_not_fit_is_refused_while_the_first_list_is_being_prepared_too(rig, fast, monkeypatch):
    prepare = reconcile.prepare

    def prepare_slowly(*facts):
        time.sleep(1.0)
        return prepare(*facts)

    monkeypatch.setattr(reconcile, "prepare", prepare_slowly)
    node = rig(config=fast(shared(2)))
    async with node.running(ready=False):
        await node.wait_log("hardware.discovered")
        await asyncio.sleep(0.2)
        node.write(fast(shared(60_000)))
        await node.wait_log("config.refused")
        await node.wait_log("plugin.became_ready")
        await node.kubelet.wait_allocatable(GPU, 16)
        await asyncio.sleep(0.5)
        assert len(node.healthy()) == 16
        assert len(node.of("config.loaded")) == 1


async def test_an_edit_that_was_refused_does_not_come_in_because_the_node_gets_worse(rig, fast):
    """What is wrong with the config in force as well excuses an edit when it is made, not one that was refused for it before."""
    node = rig(config=fast(SINGLE + "devices: {exclude: [0]}\n"))
    node.node.repartition(0, ["3g.20gb", "1g.5gb"])
    async with node.running():
        node.write(fast(SINGLE))
        await node.wait_log("config.refused")
        node.node.repartition(1, ["3g.20gb", "1g.5gb"])
        await node.wait(lambda: not node.uuids(1) & node.healthy())
        await asyncio.sleep(0.5)
        node.node.set_mig_mode(1, enabled=False)
        await node.kubelet.wait_allocatable(GPU, 7)
        assert len(node.of("config.loaded")) == 1
        node.node.set_mig_mode(0, enabled=False)
        await node.kubelet.wait_allocatable(GPU, 8)


async def test_an_edit_that_was_refused_is_not_judged_anew_before_the_hardware_has_changed(rig, fast, monkeypatch):
    """Each time costs the event loop a plan: with a list far too long a third of a second."""
    node = rig(config=fast(shared(2)))
    loads = []
    load = configuration.load
    monkeypatch.setattr(configuration, "load", lambda *args, **facts: loads.append(1) or load(*args, **facts))
    async with node.running():
        node.write(fast(shared(60_000)))
        await node.wait_log("config.refused")
        count = len(loads)
        await asyncio.sleep(1.0)  # some six looks at the hardware
        assert len(loads) == count
        node.node.remove_gpu(7)
        await node.wait(lambda: len(loads) > count)


async def test_an_edit_made_while_another_process_had_the_directory_is_what_its_successor_serves(rig, fast):
    """Else the node is rearranged to what was in the file when the successor began to wait, and back."""
    node = rig(config=fast())
    async with node.kubelet, node.plugin() as first:
        await node.wait_log("plugin.became_ready")
        async with node.plugin(config_poll_seconds=30):
            await node.wait_log("directory.awaited")
            node.write(fast(shared(4, ", rename: gpu.shared")))
            await node.kubelet.wait_allocatable(SHARED, 32)
            await node.wait_log("resource.closed")
            seen = len(node.lists(GPU))
            ready = len(node.of("plugin.became_ready"))  # the first may have become ready twice: before the edit and after it
            await first.stop()
            await node.wait_log("plugin.became_ready", ready + 1)
            await node.kubelet.wait_allocatable(SHARED, 32)
            await asyncio.sleep(0.5)
            assert len(node.healthy(SHARED)) == 32
            assert all(not entry.healthy for entry in node.lists(GPU)[seen:])


async def test_what_an_answer_took_is_not_shown_free_by_a_change_that_was_under_way(rig, fast, monkeypatch):
    """A GPU given away whole by its last answer was listed as free under its new name for some milliseconds after."""
    config = "sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, devices: {}, replicas: 2, rename: gpu.shared}}]}}}}\n"
    node = rig("l4x4", config=fast(config.format("[2, 3]")))
    under_way, wait_listed = asyncio.Event(), ResourceServer.wait_listed

    async def wait_long(self, timeout_seconds):
        if self.name == GPU and not under_way.is_set():
            under_way.set()
            await asyncio.sleep(0.3)
        return await wait_listed(self, timeout_seconds)

    async with node.running():
        monkeypatch.setattr(ResourceServer, "wait_listed", wait_long)
        node.write(fast(config.format("[1, 2, 3]")))
        await under_way.wait()
        await node.kubelet._clients[GPU].allocate([node.uuid(1)])
        since = len(node.lists(SHARED))
        await asyncio.sleep(SETTLES_SECONDS * 0.8)
        healthy = [name for entry in node.lists(SHARED)[since:] for name in entry.healthy]
        assert not [name for name in healthy if name.startswith(node.uuid(1))]
