"""What may not bring the plugin down in silence, and what it does without: its own tasks, its watchers, a slow kubelet."""

import asyncio
import contextlib

import pytest

from device_plugin.simulation.kubelet_admission import Admission
from device_plugin.simulation.kubelet_devices import PodRejected
from device_plugin.simulation.kubelet_record import Happening

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"


def replicas(count, more=""):
    return f"sharing: {{timeSlicing: {{resources: [{{name: nvidia.com/gpu, replicas: {count}{more}}}]}}}}\n"


TASKS = {
    "kubelet presence": lambda supervisor: (supervisor._presence, "look"),
    "config": lambda supervisor: (supervisor._edits._keeper, "look"),
    "discovery": lambda supervisor: (supervisor._watched.discoverer, "_look"),
    "probes": lambda supervisor: (supervisor._watched.prober, "look_at_all"),
    "hanging calls": lambda supervisor: (supervisor._health, "note_hanging"),
    "holders": lambda supervisor: (supervisor._holders, "refresh"),
    "readiness": lambda supervisor: (type(supervisor._endpoints), "is_ready"),
    "rivals": lambda supervisor: (supervisor._pod_resources, "allocatable"),
    "reconcile": lambda supervisor: (supervisor._reconciler, "next_change_in"),
    "directory": lambda supervisor: (supervisor._directory, "look"),
    "registration of nvidia.com/gpu": lambda supervisor: (supervisor._endpoints._endpoints[GPU].registration, "_lost_because"),
}


@pytest.mark.parametrize("task", TASKS)
async def test_no_task_ends_in_silence(rig, fast, monkeypatch, task):
    """The health loop ended, and the plugin stayed registered with every GPU Healthy (NVIDIA/k8s-device-plugin#1640). Whichever
    task meets a bug: it is logged with its traceback, and the process ends with it, in good order."""
    monkeypatch.setattr("device_plugin.supervisor.rivals.LOOK_SECONDS", 0.1)
    monkeypatch.setattr("device_plugin.supervisor.supervisor.HOLDERS_IDLE_SECONDS", 0.1)
    node = rig("t4", config=fast())
    async with node.running() as plugin:
        await asyncio.sleep(0.4)  # past the start, whose own tasks wait for these
        node.node.xid(3, 46)  # something that goes on changing
        assert {running.get_name() for running in plugin.supervisor._tasks._tasks} == set(TASKS)
        owner, name = TASKS[task](plugin.supervisor)

        def broken(*_, **__):
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(owner, name, property(broken) if isinstance(owner, type) else broken)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(plugin.wait_end(), 5)
        failed = {entry["task"]: entry["exc_info"] for entry in node.of("task.failed")}
        assert failed[task].__traceback__ is not None
        assert node.of("plugin.stopped")
        assert not list(node.sockets.glob("gpu-device-plugin-*.sock"))


def freeze(notifier):
    """Its threads live and say nothing (gorakhargosh/watchdog#276)."""
    notifier._notify = lambda: None
    for emitter in notifier._observer.emitters:
        emitter.queue_event = lambda _: None


def kill(notifier):
    """Its threads are gone (gorakhargosh/watchdog#441)."""
    notifier._observer.stop()
    notifier._observer.join(5)
    notifier.revive = lambda: False


@pytest.mark.parametrize("harm", [freeze, kill])
async def test_without_its_watchers_everything_is_still_found(rig, fast, harm):
    """Callers never checked that the observer lives (tirth8205/code-review-graph#811): a reload, a restart of kubelet and a change
    of the hardware are found by polls alone, in their time."""
    node = rig(config=fast())
    async with node.running() as plugin:
        await node.wait(lambda: len(plugin.supervisor._hints._notifiers) == 2)
        for notifier in plugin.supervisor._hints._notifiers:
            harm(notifier)
        node.write(fast(replicas(2)))
        await node.kubelet.wait_allocatable(GPU, 16, 2.0)
        await node.kubelet.restart(down_seconds=0.3)
        await node.kubelet.wait_allocatable(GPU, 16, 1.0)
        back = node.kubelet.record.of(Happening.REGISTERED)[-1].time - node.kubelet.record.of(Happening.STARTED)[-1].time
        assert back < 0.5
        node.node.lose(0)
        await node.kubelet.wait_allocatable(GPU, 14, 3.0)
        node.node.add_gpu()
        await node.kubelet.wait_allocatable(GPU, 16, 3.0)


@pytest.mark.parametrize("knows_holders", [True, False])
async def test_a_kubelet_that_looks_late_still_finds_every_id_it_was_answered(rig, fast, monkeypatch, knows_holders):
    """Kubelet looks an ID up after Allocate and dies where it is not listed (seen on kubelet 1.36): it may take its time over that,
    while edits take the device away with no grace at all."""
    ask = Admission._ask

    async def ask_and_dawdle(self, client, devices):
        answer = await ask(self, client, devices)
        await asyncio.sleep(0.4)
        return answer

    monkeypatch.setattr(Admission, "_ask", ask_and_dawdle)
    whole = fast().replace("leavingGrace: 200ms", "leavingGrace: 0s")
    edits = [whole + replicas(2, ", rename: gpu.shared"), whole]
    node = rig("l4x4", config=whole)
    async with node.running(pod_resources=knows_holders):
        for number in range(6):
            await node.wait(lambda: node.healthy(GPU) or node.healthy(SHARED))
            resources = [name for name in (GPU, SHARED) if node.healthy(name)]
            admitting = [asyncio.create_task(node.admit(f"p{number}-{name}", **{name: 1})) for name in resources]
            await asyncio.sleep(0.05)
            node.write(edits[number % 2])
            for admission in admitting:
                with contextlib.suppress(PodRejected):  # what it chose from has changed meanwhile
                    await admission
            node.kubelet.manager.pods.clear()
        assert len(node.kubelet.record.of(Happening.ALLOCATED)) >= 3, "some of six; an edit may come before the answer"
        assert node.kubelet.crash is None


async def test_the_line_about_a_change_names_what_came_and_what_went(rig, fast):
    """An edit that changed nothing until a restart also said nothing (NVIDIA/gpu-operator#1144): old and new hash, and resources
    added, removed and changed with their counts."""
    node = rig("l4x4", config=fast())
    async with node.running():
        node.write(fast(replicas(2, ", rename: gpu.shared, devices: [0]")))
        await node.kubelet.wait_allocatable(SHARED, 2)
        await node.wait(lambda: len(node.kubelet.listed(GPU)) == 3)
        node.write(fast())
        await node.wait_log("resource.closed")
    first, second, third = node.of("config.loaded")
    lines = [{key: entry[key] for key in ("added", "removed", "devices", "config_hash")} for entry in node.of("resources.changed")]
    assert lines == [
        {"added": {GPU: 4}, "removed": [], "devices": {}, "config_hash": first["config_hash"]},
        {"added": {SHARED: 2}, "removed": [], "devices": {}, "config_hash": second["config_hash"]},
        {"added": {}, "removed": [], "devices": {GPU: [4, 3]}, "config_hash": second["config_hash"]},
        {"added": {}, "removed": [], "devices": {GPU: [3, 4]}, "config_hash": third["config_hash"]},
        {"added": {}, "removed": [], "devices": {SHARED: [2, 0]}, "config_hash": third["config_hash"]},
        {"added": {}, "removed": [SHARED], "devices": {}, "config_hash": third["config_hash"]},
    ]
    assert (second["previous_config_hash"], third["previous_config_hash"]) == (first["config_hash"], second["config_hash"])


async def test_the_next_process_leaves_a_short_gap_and_no_pod_without_its_device(rig, fast):
    """Rolling the plugin drops allocatable to 0 for a moment, which fails pods (NVIDIA/gpu-operator#596): the next process waits
    for the first one to end, and the gap is what it takes to look at the node once."""
    node = rig(config=fast())
    async with node.running() as first, node.plugin():
        pod = await node.admit("a", gpu=2)
        await node.wait_log("directory.awaited")
        await first.stop()
        await node.wait(lambda: len(node.lists()) > 1 and len(node.healthy()) == 8)
        gap = node.lists()[-1].time - node.kubelet.record.of(Happening.STREAM_ENDED)[0].time
        assert gap < 2.0
        assert pod.running == {"main"}
        assert not set((await node.admit("b", gpu=6)).devices("main", GPU)) & set(pod.devices("main", GPU))
