"""How a life begins: what is waited for, what ends it at once, and what an earlier life left behind."""

import asyncio
import json
import time
from dataclasses import replace

import pytest

from device_plugin.errors import ConfigError, DriverError
from device_plugin.hardware.driver import Event
from device_plugin.supervisor.discoverer import DriverAway
from device_plugin.supervisor.state_file import FILE_NAME, StateFile

GPU = "nvidia.com/gpu"
MIXED = "flags: {migStrategy: mixed}\n"
TWICE = """\
sharing:
  timeSlicing:
    resources:
    - {name: nvidia.com/gpu, replicas: 2, devices: [0]}
    - {name: nvidia.com/gpu, rename: gpu.b, replicas: 2, devices: [0]}
"""
PATIENT = "flags: {failOnInitError: false}\n"


async def test_a_missing_config_is_awaited_by_name_and_used_when_it_appears(rig, fast):
    """A missing ConfigMap made the pod wait with no message (NVIDIA/gpu-operator#412)."""
    node = rig()
    async with node.running(config_file=node.config_file, ready=False):
        await node.wait_log("config.awaited")
        assert [entry["path"] for entry in node.of("config.awaited")] == [str(node.config_file)]
        assert not node.of("plugin.became_ready")
        node.write(fast("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}}\n"))
        await node.kubelet.wait_allocatable(GPU, 16)


async def test_a_broken_config_ends_the_start_with_every_problem(rig):
    node = rig(config="version: v1\nflgs: {}\nsharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: -1}]}}\n")
    async with node.kubelet, node.plugin() as plugin:
        with pytest.raises(ConfigError) as caught:
            await plugin.wait_end()
    assert [problem.origin.line for problem in caught.value.problems] == [2, 3]


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        (TWICE, "contradiction"),
        ("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 20000}]}}\n", "too-large"),
    ],
)
async def test_a_config_that_no_node_change_can_mend_ends_the_start(rig, fast, config, kind):
    """A list over 4 MiB ends kubelet's stream and costs every device (kubernetes/kubernetes#109304)."""
    node = rig(config=fast(config))
    async with node.kubelet, node.plugin() as plugin:
        with pytest.raises(ConfigError) as caught:
            await plugin.wait_end()
    assert {problem.kind for problem in caught.value.problems} == {kind}
    assert node.registrations() == 0


async def test_single_on_a_node_that_does_not_fit_waits_and_starts_once_it_is_repartitioned(rig, fast):
    """A heterogeneous MIG layout under `single` was a panic (NVIDIA/gpu-operator#460)."""
    node = rig("a100-mig-mixed", config=fast("flags: {migStrategy: single}\n"))
    async with node.running(ready=False):
        await node.wait_log("plugin.awaits_node")
        assert "GPU" in node.of("plugin.awaits_node")[0]["reasons"][0]
        await asyncio.sleep(0.5)
        assert not node.of("resource.served")
        for gpu in range(len(node.node.gpus)):
            node.node.repartition(gpu, ["1g.5gb"] * 7)
        await node.kubelet.wait_allocatable(GPU, 7 * len(node.node.gpus))
        await node.wait_log("plugin.became_ready")


@pytest.mark.parametrize("trouble", ["LIBRARY_NOT_FOUND", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH", "UNKNOWN"])
async def test_a_driver_that_is_away_ends_the_start_where_the_config_says_so(rig, fast, trouble):
    node = rig(config=fast("flags: {failOnInitError: true}\n"))
    node.node.answer("nvmlInitWithFlags", trouble)
    async with node.kubelet, node.plugin() as plugin:
        with pytest.raises(DriverError, match="nvmlInit"):
            await plugin.wait_end()


@pytest.mark.parametrize("trouble", ["LIBRARY_NOT_FOUND", "LIB_RM_VERSION_MISMATCH"])
async def test_not_to_fail_means_to_try_again_until_the_driver_is_there(rig, fast, trouble):
    """With failOnInitError false the peer idled for ever after one failed init (NVIDIA/k8s-device-plugin#170), and was Ready
    with no device under a version mismatch (NVIDIA/k8s-device-plugin#221)."""
    node = rig(config=fast(PATIENT))
    node.node.answer("nvmlInitWithFlags", trouble)
    async with node.running(ready=False):
        await node.wait_log("driver.away")
        assert not node.of("plugin.became_ready")
        node.node.clear()
        await node.kubelet.wait_allocatable(GPU, 8)
        await node.wait_log("plugin.became_ready")
        assert len(node.of("driver.away")) == 1


@pytest.mark.parametrize(
    ("edit", "kind"),
    [
        (PATIENT + "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 60000}]}}\n", "too-large"),
        (PATIENT.replace("{", "{migStrategy: single, "), "mig-single"),
    ],
)
async def test_an_edit_while_the_driver_is_away_is_taken_back_if_the_node_cannot_be_served_by_it(rig, fast, edit, kind):
    """The last good config is served, as after an edit on a node that is known (NVIDIA/gpu-operator#412), and the edit refused."""
    good = PATIENT.replace("{", "{migStrategy: mixed, ")
    node = rig("a100-mig-mixed", config=fast(good))
    node.node.unload_driver()
    async with node.running(ready=False):
        await node.wait_log("driver.away")
        node.write(fast(edit))
        await node.wait_log("config.loaded", 2)
        node.node.load_driver()
        await node.wait_log("plugin.became_ready")
        assert len(node.of("config.refused")) == 1
        assert {entry["kind"] for entry in node.of("problem.found") if entry["log_level"] == "error"} == {kind}
        assert node.healthy("nvidia.com/mig-1g.5gb")
        node.write(fast(good + "devices: {exclude: [0]}\n"))
        await node.wait(lambda: node.uuid(0) not in node.healthy())
        assert len(node.of("config.refused")) == 1


async def test_a_library_that_does_not_go_with_the_driver_ends_a_waiting_process_after_its_time(rig, fast):
    """The library stays loaded as long as the process lives, so waiting on is of no use (NVIDIA/k8s-device-plugin#221)."""
    node = rig(config=fast(PATIENT).replace("leavingGrace", "exitAfterDriverLoss: 300ms, leavingGrace"))
    node.node.answer("nvmlInitWithFlags", "LIB_RM_VERSION_MISMATCH")
    async with node.kubelet, node.plugin() as plugin:
        with pytest.raises(DriverAway):
            await asyncio.wait_for(plugin.wait_end(), 5)
        assert not node.of("task.failed")


async def test_a_node_whose_only_gpu_goes_and_returns_is_served_again(rig, fast):
    """At the moment of a re-initialisation NVML reports no GPU at all; the plugin aborted and the GPU never returned
    (beclab/Olares#2671)."""
    node = rig("gb10", config=fast(PATIENT))
    machine = node.node.live.machine
    node.node.remove_gpu(0)
    async with node.running(ready=False):
        await node.wait_log("driver.away")
        node.node._replace(machine)
        await node.kubelet.wait_allocatable(GPU, 1)
        await node.wait_log("plugin.became_ready")
        node.node.remove_gpu(0)
        await node.wait(lambda: not node.healthy())
        await node.wait_log("plugin.became_unready")
        await asyncio.sleep(0.8)  # the grace is long over
        assert list(node.kubelet.listed(GPU)) == [machine.gpus[0].uuid], "the capacity says what the node lacks"
        node.node._replace(machine)
        await node.kubelet.wait_allocatable(GPU, 1)
    assert node.registrations() == 1


async def test_gpus_that_come_later_are_offered(rig, fast):
    """A plugin that starts before the driver's installation has ended never registered late GPUs (kubernetes/kubernetes#77035)."""
    node = rig("l4x4", config=fast())
    machine = node.node.live.machine
    node.node._replace(replace(machine, gpus=machine.gpus[:2]))
    async with node.running():
        await node.kubelet.wait_allocatable(GPU, 2)
        node.node._replace(machine)
        await node.kubelet.wait_allocatable(GPU, 4)


async def test_the_first_list_shows_a_broken_gpu_broken(rig, fast):
    """A restart of the plugin made a GPU with uncorrectable errors Healthy without a look at it (NVIDIA/k8s-device-plugin#111,
    NVIDIA/k8s-device-plugin#267)."""
    node = rig(config=fast())
    node.node.set(2, ecc_uncorrectable=1)
    async with node.running():
        first = node.lists()[0]
        assert first.devices - first.healthy == node.uuids(2)


async def test_a_driver_that_goes_between_discovery_and_probe_is_no_clean_bill(rig, fast):
    """GPUs that could not be probed before the first list are not declared Healthy (NVIDIA/k8s-device-plugin#111)."""
    node = rig(config=fast(PATIENT))
    for gpu in node.node.gpus[:3]:
        node.node.hang("nvmlDeviceGetTotalEccErrors", gpu=gpu.uuid)
    async with node.running(ready=False):
        await node.wait(node.lists, 20)
        assert not node.lists()[0].healthy & node.uuids(0, 1, 2)
        node.node.release()


async def test_a_restart_keeps_causes_until_their_evidence_is_there(rig, fast):
    """Restarting the plugin laundered unhealthy GPUs (NVIDIA/k8s-device-plugin#111)."""
    node = rig(config=fast().replace("recoverAfter: 500ms", "recoverAfter: 1h"))
    async with node.kubelet:
        async with node.running(kubelet=False):
            node.node.xid(3, 79)
            await node.kubelet.wait_allocatable(GPU, 7)
        seen = len(node.lists())
        async with node.running(kubelet=False):
            await node.kubelet.wait_allocatable(GPU, 7)
            lists = node.lists()[seen:]
            assert lists
            assert all(node.uuid(3) not in entry.healthy for entry in lists), "not even in the first list"
            assert node.healthy() == node.uuids(0, 1, 2, 4, 5, 6, 7)
        await asyncio.sleep(0.6)  # the threads of the last life have let go of the driver
        node.node.reboot()
        node.node.load_driver()
        async with node.running(kubelet=False):
            await node.kubelet.wait_allocatable(GPU, 8)
            assert "the node was rebooted" in [entry["reason"] for entry in node.of("cause.cleared")]


async def test_a_cause_that_comes_with_the_end_is_not_forgotten(rig, fast):
    """A restart right after an XID must not launder the GPU (NVIDIA/k8s-device-plugin#111)."""
    node = rig(config=fast().replace("recoverAfter: 500ms", "recoverAfter: 1h"))
    async with node.kubelet:
        async with node.running(kubelet=False) as plugin:
            event = Event(79, node.uuid(3))
            plugin.supervisor._on_events([event])
            await plugin.stop()
        async with node.running(kubelet=False):
            await node.kubelet.wait_allocatable(GPU, 7)


async def test_whatever_was_heard_before_the_end_is_kept(rig, fast, monkeypatch):
    """XIDs go on coming while the plugin ends: each one that made a cause is still a cause afterwards
    (NVIDIA/k8s-device-plugin#111)."""
    node = rig("v100x16", config=fast().replace("recoverAfter: 500ms", "recoverAfter: 1h"))
    write = StateFile.write

    def write_slowly(*arguments):
        time.sleep(0.2)
        write(*arguments)

    monkeypatch.setattr(StateFile, "write", write_slowly)
    async with node.running() as plugin:
        ending = None
        for gpu in node.node.gpus:
            node.node.xid(gpu.uuid, 79)
            ending = ending or asyncio.create_task(plugin.stop())
            await asyncio.sleep(0.03)
        await ending
        heard = {entry["gpu"] for entry in node.of("cause.added") if entry["cause"] == "xid"}
        kept = json.loads((node.sockets / FILE_NAME).read_bytes())["health"]["causes"]
        assert {cause["gpuUuid"] for cause in kept} == heard


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff\xfe",
        b"[1]",
        b'{"health": 3, "arrangement": []}',
        b'{"health": {"version": 1, "causes": [{}]}, "arrangement": {"version": 1}}',
        b'{"health": {"version": 99}, "arrangement": {"version": 99}}',
    ],
)
async def test_a_state_file_that_cannot_be_used_is_worth_a_warning(rig, fast, content):
    node = rig(config=fast())
    node.sockets.mkdir()
    (node.sockets / FILE_NAME).write_bytes(content)
    async with node.running():
        await node.kubelet.wait_allocatable(GPU, 8)
        assert node.of("state.not_restored")
        await node.wait(lambda: (node.sockets / FILE_NAME).read_bytes() != content)
        assert json.loads((node.sockets / FILE_NAME).read_bytes())["arrangement"]["resources"]


async def test_a_directory_that_cannot_hold_the_state_file_does_not_stop_serving(rig, fast):
    node = rig(config=fast())
    node.sockets.mkdir()
    (node.sockets / FILE_NAME).mkdir()
    async with node.running():
        await node.kubelet.wait_allocatable(GPU, 8)
        await node.wait_log("state.not_saved")


async def test_a_second_process_waits_and_names_the_holder(rig, fast):
    """Two servers on one directory unlink each other's sockets (grpc/grpc#17122)."""
    node = rig(config=fast())
    async with node.running() as first, node.plugin() as second:
        await node.wait_log("directory.awaited")
        assert "pid" in node.of("directory.awaited")[0]["holder"]
        assert node.registrations() == 1
        await first.stop()
        await node.wait_log("plugin.became_ready", 2)
        await node.kubelet.wait_allocatable(GPU, 8)
        assert second.supervisor is not first.supervisor


async def test_an_internal_task_that_crashes_ends_the_process_with_its_error(rig, fast, monkeypatch):
    """A health loop that returned left the plugin registered and all Healthy (NVIDIA/k8s-device-plugin#1640)."""
    node = rig(config=fast())
    async with node.running() as plugin:

        def broken():
            raise ZeroDivisionError("a bug")

        monkeypatch.setattr(plugin.supervisor._watched.prober, "_interval_seconds", broken)
        with pytest.raises(ZeroDivisionError):
            await asyncio.wait_for(plugin.wait_end(), 5)
        assert node.of("task.failed")[0]["task"] == "probes"
        assert isinstance(node.of("task.failed")[0]["exc_info"], ZeroDivisionError)
