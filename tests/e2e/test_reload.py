"""Edits of the config: what changes at kubelet, what stays, and what is refused."""

import asyncio
import shutil

import pytest

from device_plugin.simulation.kubelet_plugin import PluginClient
from device_plugin.simulation.kubelet_record import Happening

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"


def shared(replicas, more=""):
    return f"sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: {replicas}{more}}}]}}}}\n"


class ConfigMap:
    """A ConfigMap's volume as kubelet writes it: dated directories, and a link that is swapped."""

    def __init__(self, path, name="config.yaml"):
        self.path, self.name, self.number = path, name, 0

    def write(self, text):
        self.number += 1
        revision = self.path / f"..2026_{self.number}"
        revision.mkdir(parents=True)
        (revision / self.name).write_text(text)
        old = (self.path / "..data").resolve() if (self.path / "..data").exists() else None
        (self.path / "..data_tmp").symlink_to(revision.name)
        (self.path / "..data_tmp").rename(self.path / "..data")
        if not (self.path / self.name).is_symlink():
            (self.path / self.name).symlink_to(f"..data/{self.name}")
        if old is not None:
            shutil.rmtree(old)


@pytest.mark.parametrize("notified", [True, False])
async def test_five_swaps_of_the_volume_in_a_row_are_followed(rig, fast, notified):
    """An edited ConfigMap changed nothing until a restart (NVIDIA/gpu-operator#1144), and a watch on the file died with the first
    swap of `..data` (open-feature/flagd#42, Kuadrant/limitador#95)."""
    node = rig()
    volume = ConfigMap(node.directory / "volume")
    volume.write(fast())
    poll = 30.0 if notified else 0.2
    options = {"config_file": volume.path / "config.yaml", "config_poll_seconds": poll, "notifications": notified}
    async with node.running(**options):
        for replicas in (2, 3, 4, 5, 6):
            volume.write(fast(shared(replicas)))
            await node.kubelet.wait_allocatable(GPU, 8 * replicas, 1.5)
        assert node.registrations() == 1, "a resource that stays is not registered again"


async def test_rewrite_rename_delete_and_return_are_followed(rig, fast):
    """Whatever way an edit comes, the content counts (kubernetes/kubernetes#40123)."""
    node = rig(config=fast())
    async with node.running():
        node.write(fast(shared(2)))  # a plain rewrite
        await node.kubelet.wait_allocatable(GPU, 16)
        draft = node.config_file.with_suffix(".swp")  # an editor's rename
        draft.write_text(fast(shared(3)))
        draft.replace(node.config_file)
        await node.kubelet.wait_allocatable(GPU, 24)
        node.config_file.unlink()
        await node.wait_log("config.vanished")
        assert len(node.healthy()) == 24
        node.write(fast(shared(4)))
        await node.kubelet.wait_allocatable(GPU, 32)
    assert node.registrations() == 1


async def test_an_edit_never_takes_healthy_capacity_away_for_a_moment(rig, fast):
    node = rig(config=fast(shared(2)))
    async with node.running():
        for replicas in (4, 3, 5, 2):
            node.write(fast(shared(replicas)))
            await node.kubelet.wait_allocatable(GPU, 8 * replicas)
        counts = [len(entry.healthy) for entry in node.lists()]
    assert all(count in (16, 32, 24, 40) for count in counts), counts


async def test_the_same_text_in_a_new_revision_does_nothing(rig, fast):
    node = rig()
    volume = ConfigMap(node.directory / "volume")
    volume.write(fast())
    async with node.running(config_file=volume.path / "config.yaml"):
        await asyncio.sleep(0.3)
        before = list(node.kubelet.record.entries)
        for _ in range(3):
            volume.write(fast())
            await asyncio.sleep(0.15)
        volume.write(fast("# a comment\n"))
        await node.wait_log("config.unchanged")
        assert list(node.kubelet.record.entries) == before
        assert len(node.of("config.loaded")) == 1


@pytest.mark.parametrize(
    "edit",
    [
        "version: v1\nsharng: {}\n",
        "version: v1\n: [\n",
        shared(2, ", devices: [0]},{name: nvidia.com/gpu, rename: b, replicas: 2, devices: [0]"),
        shared(20000),
    ],
    ids=["unknown key", "no YAML", "contradiction", "too large"],
)
async def test_an_edit_that_cannot_be_keeps_the_last_good_config(rig, fast, edit):
    """`resourceCountNmae` was ignored in silence (Project-HAMi/HAMi#2940); a list over 4 MiB costs every device
    (kubernetes/kubernetes#109304)."""
    node = rig(config=fast(shared(2)))
    async with node.running() as plugin:
        before = len(node.lists())
        node.write(fast(edit) if "version" not in edit else edit)
        await node.wait_log("config.refused")
        await asyncio.sleep(0.5)
        assert len(node.lists()) == before
        assert len(node.of("config.refused")) == 1, "said once, not at every poll"
        assert all("config.yaml" in entry["origin"] for entry in node.of("problem.found"))
        assert plugin.supervisor._edits._keeper.problems
        node.write(fast(shared(2)))
        await node.wait_log("config.unchanged")
        assert not plugin.supervisor._edits._keeper.problems, "what is refused no longer stands in the file"
        node.write(fast(shared(3)))
        await node.kubelet.wait_allocatable(GPU, 24)
    assert node.registrations() == 1


async def test_an_edit_to_single_waits_for_the_node_to_fit(rig, fast):
    """A switch from mixed to single on a heterogeneous layout panicked (NVIDIA/gpu-operator#460): the old config goes on, and the
    edit comes into force once the node has been repartitioned, without another edit."""
    node = rig("a100-mig-mixed", config=fast("flags: {migStrategy: mixed}\n"))
    async with node.running():
        before = {name: state.healthy for name, state in node.kubelet.manager.resources.items()}
        node.write(fast("flags: {migStrategy: single}\n"))
        await node.wait_log("config.refused")
        await asyncio.sleep(0.4)
        assert {name: state.healthy for name, state in node.kubelet.manager.resources.items()} == before
        for gpu in range(8):
            node.node.repartition(gpu, ["1g.5gb"] * 7)
        await node.kubelet.wait_allocatable(GPU, 56)
        assert len(node.of("config.refused")) == 1


async def test_a_resource_that_goes_leaves_then_shows_nothing_then_closes(rig, fast):
    """An empty list takes the figures to zero at once; a bare end of a stream leaves the capacity (kubernetes/kubernetes#52190), as
    that of the old name after a rename, beside the new one (bottlerocket-os/bottlerocket-core-kit#789)."""
    node = rig(config=fast(shared(2)))
    async with node.running():
        before = node.healthy()
        node.write(fast(shared(2, ", rename: gpu.shared")))
        await node.kubelet.wait_allocatable(SHARED, 16)
        await node.wait_log("resource.closed")
        await node.wait(lambda: node.kubelet.record.of(Happening.STREAM_ENDED, GPU))
        steps = [(len(entry.devices), len(entry.healthy)) for entry in node.lists(GPU)]
        assert steps == [(16, 16), (16, 0), (0, 0)]
        assert node.healthy(SHARED) == before, "the same replicas under the new name"
        assert list(node.sockets.glob("gpu-device-plugin-*.sock")) == [
            node.sockets / "gpu-device-plugin-nvidia.com-gpu.shared.sock"
        ]


@pytest.mark.parametrize("dials_back_after", [0.0, 0.5])
async def test_a_resource_that_went_while_the_plugin_was_away_shows_its_empty_list_before_it_closes(
    rig, fast, monkeypatch, dials_back_after
):
    """Kubelet keeps the capacity of a resource whose socket is gone before it could dial back (kubernetes/kubernetes#52190)."""
    node = rig(config=fast(shared(2, ", rename: gpu.shared")))
    async with node.kubelet:
        async with node.running(kubelet=False):
            assert len(node.healthy(SHARED)) == 16
        node.write(fast())
        await asyncio.sleep(0.3)  # longer than the grace: nothing is left to be listed as leaving
        dial = PluginClient.dial

        async def dial_late(self, timeout_seconds):
            await asyncio.sleep(dials_back_after)
            await dial(self, timeout_seconds)

        monkeypatch.setattr(PluginClient, "dial", dial_late)
        async with node.running(kubelet=False):
            await node.wait_log("resource.closed")
            assert len(node.healthy(GPU)) == 8
            assert not node.lists(SHARED)[-1].devices
            assert not node.kubelet.manager.resources[SHARED].devices


async def test_back_and_forth_before_the_grace_is_over_is_no_gap(rig, fast):
    """A rename that is taken back finds its devices where they were."""
    node = rig(config=fast().replace("leavingGrace: 200ms", "leavingGrace: 1h"))
    slow = fast().replace("leavingGrace: 200ms", "leavingGrace: 1h")
    async with node.running():
        node.write(slow + shared(2, ", rename: gpu.shared"))
        await node.kubelet.wait_allocatable(SHARED, 16)
        assert not node.healthy(GPU)
        node.write(slow)
        await node.kubelet.wait_allocatable(GPU, 8)
        assert not node.healthy(SHARED)
    assert node.registrations() == 1


async def test_a_new_resource_is_served_before_it_is_registered(rig, fast):
    node = rig(config=fast())
    async with node.running():
        node.write(fast(shared(2, ", devices: [0], rename: gpu.shared")))
        await node.kubelet.wait_allocatable(SHARED, 2)
        await node.kubelet.wait_allocatable(GPU, 7)
        assert node.registrations() == 1
        await node.wait_log("resource.registered", 2)
        events = [entry["event"] for entry in node.log if entry.get("resource") == SHARED]
        assert events.index("resource.served") < events.index("resource.registered")


async def test_running_pods_keep_their_devices_listed_through_edits(rig, fast):
    node = rig(config=fast())
    async with node.running():
        pod = await node.admit("a", gpu=2)
        held = set(pod.devices("main", GPU))
        node.write(fast("devices: {exclude: [0, 1, 2, 3, 4, 5, 6, 7]}\n"))
        await node.kubelet.wait_allocatable(GPU, 0)
        await asyncio.sleep(1.0)
        assert set(node.kubelet.listed(GPU)) >= held, "an ID that has left the list would read Healthy in its pod's status"
        node.kubelet.delete("a")
        await node.wait_log("resource.closed", timeout_seconds=15)


async def test_a_reload_says_what_changed(rig, fast):
    node = rig(config=fast())
    async with node.running():
        node.write(fast(shared(4)))
        await node.kubelet.wait_allocatable(GPU, 32)
        change = node.of("resources.changed")[-1]
        assert change["devices"] == {GPU: [8, 40]}
        assert len(change["config_hash"]) == 12
        loaded = node.of("config.loaded")[-1]
        assert loaded["config_hash"] != loaded["previous_config_hash"]


async def test_health_settings_apply_live(rig, fast):
    """The policy must be one setting away (GoogleCloudPlatform/container-engine-accelerators#262)."""
    node = rig(config=fast().replace("recoverAfter: 500ms", "recoverAfter: 1h"))
    async with node.running():
        node.node.xid(1, 79)
        await node.kubelet.wait_allocatable(GPU, 7)
        node.write(fast().replace("recoverAfter: 500ms", "xids: {79: ignore}"))
        await node.kubelet.wait_allocatable(GPU, 8)
        node.node.xid(1, 79)
        await node.wait_log("xid.received", 2)
        assert len(node.healthy()) == 8


async def test_shorter_intervals_do_not_wait_for_the_longer_ones_before_them(rig, fast):
    """An edit from an hour to a moment counts from that moment: for probes, and for looks at the hardware."""
    hourly = fast().replace("probeInterval: 100ms", "probeInterval: 1h")
    node = rig("l4x4", config=hourly.replace("rediscoveryInterval: 150ms", "rediscoveryInterval: 1h"))
    async with node.running():
        node.node.set(1, ecc_uncorrectable=1)
        await asyncio.sleep(0.4)
        assert len(node.healthy()) == 4
        node.write(fast())
        await node.kubelet.wait_allocatable(GPU, 3, 2.0)
        node.node.set(2, ecc_uncorrectable=1)
        await node.kubelet.wait_allocatable(GPU, 2, 2.0)
        node.node.add_gpu()
        await node.wait(lambda: node.kubelet.capacity(GPU) == 5, 2.0)


async def test_sighup_rereads_config_and_hardware_at_once(rig):
    node = rig(config="version: v1\n")  # with the default intervals of half a minute and more
    async with node.running(config_poll_seconds=600.0, notifications=False) as plugin:
        node.node.set_mig_mode(7, enabled=True)
        node.node.repartition(7, ["1g.5gb"])
        node.write("version: v1\nflags: {migStrategy: mixed}\n")
        await asyncio.sleep(0.2)
        assert len(node.healthy()) == 8
        plugin.supervisor.reload()
        await node.kubelet.wait_allocatable("nvidia.com/mig-1g.5gb", 1)
        await node.kubelet.wait_allocatable(GPU, 7)


async def test_a_frozen_and_a_killed_watcher_cost_time_only(rig, fast):
    """The observer falls silent with its thread alive, or dies (gorakhargosh/watchdog#276, gorakhargosh/watchdog#441)."""
    node = rig(config=fast())
    async with node.running() as plugin:
        for notifier in plugin.supervisor._hints._notifiers:
            notifier._callback = lambda: None  # frozen: alive and silent
        node.write(fast(shared(2)))
        await node.kubelet.wait_allocatable(GPU, 16, 2.0)
        for notifier in plugin.supervisor._hints._notifiers:
            notifier.stop()
        node.write(fast(shared(3)))
        await node.kubelet.wait_allocatable(GPU, 24, 2.0)
        await node.kubelet.restart()
        await node.kubelet.wait_allocatable(GPU, 24, 2.0)
        node.node.lose(0)
        await node.kubelet.wait_allocatable(GPU, 21, 3.0)
