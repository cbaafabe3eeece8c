"""What takes a GPU out and what gives it back, from the driver to kubelet: conditions, policies, each by its own evidence."""

import asyncio

import pytest

from device_plugin.simulation.kubelet_devices import StartRefused
from device_plugin.simulation.kubelet_record import Happening

GPU = "nvidia.com/gpu"
CALM = "recoverAfter: 500ms"
ECC = "nvmlDeviceGetTotalEccErrors"


def causes(node, event="cause.added"):
    return [(entry["cause"], entry["key"]) for entry in node.of(event)]


@pytest.mark.parametrize(
    ("bad", "clean", "cause"),
    [
        ({"ecc_uncorrectable": 1}, {"ecc_uncorrectable": 0}, ("ecc", "uncorrectable")),
        ({"remap_pending": True}, {"remap_pending": False}, ("row-remap", "pending")),
        ({"remap_failed": True}, {"remap_failed": False}, ("row-remap", "failed")),
        ({"recovery_action": "reset"}, {"recovery_action": "none"}, ("recovery-action", "reset")),
        ({"recovery_action": "drain-p2p"}, {"recovery_action": "none"}, ("recovery-action", "reset")),
        ({"fabric_state": "in-progress"}, {"fabric_state": "completed"}, ("fabric", "registration")),
        ({"fabric_status": 999}, {"fabric_status": 0}, ("fabric", "registration")),
    ],
)
async def test_a_condition_that_raised_no_event_takes_one_gpu_out_for_as_long_as_it_reads_bad(rig, fast, bad, clean, cause):
    """A GPU with an uncorrectable error that raised no event stayed allocatable (NVIDIA/k8s-device-plugin#267)."""
    node = rig("dgx-h100", config=fast())
    async with node.running():
        node.node.set(3, **bad)
        await node.kubelet.wait_allocatable(GPU, 7)
        assert node.kubelet.listed(GPU)[node.uuid(3)] == "Unhealthy"
        assert causes(node) == [cause]
        node.node.set(3, **clean)
        await node.kubelet.wait_allocatable(GPU, 8)
        assert causes(node, "cause.cleared") == [cause]
    assert node.registrations() == 1


async def test_what_takes_a_reboot_outlives_clean_probes_and_a_restart_of_the_plugin(rig, fast):
    """A restart of the plugin made broken GPUs Healthy (NVIDIA/k8s-device-plugin#111): the boot id decides, not the process."""
    node = rig("dgx-h100", config=fast())
    async with node.kubelet:
        async with node.running(kubelet=False):
            node.node.set(1, recovery_action="reboot")
            node.node.xid(2, 79)
            await node.kubelet.wait_allocatable(GPU, 6)
            node.node.set(1, recovery_action="none")
            await asyncio.sleep(0.9)  # more than the calm period
            assert node.healthy() == node.uuids(0, 3, 4, 5, 6, 7)
        seen = len(node.lists())
        async with node.running(kubelet=False):
            await asyncio.sleep(0.9)
            lists = node.lists()[seen:]
            assert lists
            assert all(entry.healthy <= node.uuids(0, 3, 4, 5, 6, 7) for entry in lists)
            assert node.healthy() == node.uuids(0, 3, 4, 5, 6, 7)
        await asyncio.sleep(0.3)  # the threads of that life have let go of the driver
        node.node.reboot()
        node.node.load_driver()
        async with node.running(kubelet=False):
            await node.kubelet.wait_allocatable(GPU, 8)


@pytest.mark.parametrize(("failures", "is_out"), [(1, False), (2, False), (None, True)])
async def test_one_probe_that_times_out_is_unknown_and_three_in_a_row_are_a_fault(rig, fast, failures, is_out):
    """Swallowed errors made a GPU whose firmware had stopped look healthy (gpustack/runtime#26)."""
    node = rig(config=fast())
    async with node.running():
        for _ in range(2):  # twice over: what lies between two rows of failures ends the first
            node.node.answer(ECC, "TIMEOUT", gpu=node.uuid(5), times=failures)
            if is_out:
                await node.kubelet.wait_allocatable(GPU, 7)
            else:
                await node.wait(lambda: all(rule.times == 0 for rule in node.node.live._rules))
            await asyncio.sleep(0.8)
            assert node.healthy() == node.uuids(0, 1, 2, 3, 4, 6, 7) | (set() if is_out else node.uuids(5))
        assert {cause for cause, _ in causes(node)} == ({"probe-failed"} if is_out else set())
        node.node.clear()
        await node.kubelet.wait_allocatable(GPU, 8)


@pytest.mark.parametrize(
    ("action", "is_out", "expected"),
    [("none", False, []), ("reset", True, [("recovery-action", "reset")]), (None, True, [("xid", "154")])],
)
async def test_xid_154_asks_the_driver_and_stands_for_the_xid_before_it(rig, fast, action, is_out, expected):
    """XID 119, then 154: the driver says what the GPU needs (gpustack/runtime#26). A driver that cannot say: a reset."""
    node = rig("dgx-h100", config=fast().replace(CALM, "recoverAfter: 1h"))
    node.node.set(4, recovery_action=action)
    async with node.running():
        node.node.xid(4, 119)
        await node.kubelet.wait_allocatable(GPU, 7)
        node.node.xid(4, 154)
        await node.wait_log("xid.received", 2)
        await node.kubelet.wait_allocatable(GPU, 7 if is_out else 8)

        def left():
            added, cleared = (
                {(entry["cause"], entry["key"]) for entry in node.of(event)} for event in ("cause.added", "cause.cleared")
            )
            return added - cleared - ({("xid", "119")} if action is None else set())

        await node.wait(lambda: left() == set(expected))
        await asyncio.sleep(0.3)
        assert left() == set(expected)
        assert (node.uuid(4) in node.healthy()) is not is_out


@pytest.mark.parametrize("is_told", [False, True])
async def test_without_a_recovery_action_time_alone_gives_nothing_back_unless_told_to(rig, fast, is_told):
    """Recovery needs evidence: an old driver offers none, and the operator may take clean probes for it
    (NVIDIA/k8s-device-plugin#1014)."""
    node = rig("dgx-h100", config=fast().replace("health: {", f"health: {{recoverWithoutEvidence: {str(is_told).lower()}, "))
    node.node.set(4, recovery_action=None)
    async with node.running():
        node.node.xid(4, 95)
        await node.kubelet.wait_allocatable(GPU, 7)
        if is_told:
            await node.kubelet.wait_allocatable(GPU, 8)
        await asyncio.sleep(1.2)
        assert len(node.healthy()) == 7 + is_told


@pytest.mark.parametrize(
    ("environment", "health", "counts", "ignored"),
    [
        ({}, "", [48, 79, 95, 109, 555], [13, 31, 43, 45, 94]),
        ({}, "policy: nvidia-device-plugin, ", [94, 79, 555], [13, 31, 43, 45, 68, 109]),
        ({}, "policy: gke, enableXids: [79], ", [48, 79], [95, 555]),
        ({}, "classes: {RESTART_APP: untilReset, RESET_GPU: ignore}, xids: {46: untilReboot}, ", [13, 46], [95, 109]),
        ({"DP_DISABLE_HEALTHCHECKS": "xids", "DP_ENABLE_HEALTHCHECKS": "48, 0"}, "", [48, 0], [79, 95]),
        ({"DP_ENABLE_HEALTHCHECKS": "ALL"}, "", [13, 555], []),
        ({"DP_DISABLE_HEALTHCHECKS": "0,79"}, "", [48], [0, 79]),
    ],
)
async def test_each_way_to_say_what_counts_is_heard(rig, fast, environment, health, counts, ignored):
    """The policy is one setting away, whichever vendor's (GoogleCloudPlatform/container-engine-accelerators#262), and the two
    variables of NVIDIA's plugin do what it documents (NVIDIA/k8s-device-plugin#1974)."""
    text = fast().replace("health: {", f"health: {{{health}").replace(CALM, "recoverAfter: 1h")
    node = rig("v100x16", config=text)
    async with node.running(environment=environment):
        for gpu, xid in enumerate([*counts, *ignored]):
            node.node.xid(gpu, xid)
        await node.wait_log("xid.received", len(counts) + len(ignored))
        await node.wait(lambda: len(node.healthy()) == 16 - len(counts))
        assert node.healthy() == node.uuids(*range(len(counts), 16))
        assert [entry["xid"] for entry in node.of("xid.received") if entry["action"] == "ignore"] == ignored
        assert len(node.of("health.policy_set")) == 1, "the policy in force is printed at the start"


async def test_an_xid_of_a_mig_device_takes_out_the_gpu_that_is_offered_as_a_whole(rig, fast):
    """Under `none` a GPU in MIG mode is one device: an event that names one of its instances is about that device."""
    node = rig("a100-mig-mixed", config=fast("flags: {migStrategy: none}\n").replace(CALM, "recoverAfter: 1h"))
    part = node.node.gpus[1].mig[0]
    async with node.running():
        node.node.xid(1, 79, part.gpu_instance, part.compute_instance)
        await node.kubelet.wait_allocatable(GPU, 7)
        assert node.uuid(1) not in node.healthy()
        node.write(fast("flags: {migStrategy: mixed}\n").replace(CALM, "recoverAfter: 1h"))
        siblings = {mig.uuid for mig in node.node.gpus[1].mig} - {part.uuid}
        await node.wait(lambda: siblings <= {i for name in node.kubelet.manager.resources for i in node.healthy(name)})
        assert not any(part.uuid in node.healthy(name) for name in node.kubelet.manager.resources)


async def test_a_driver_that_answers_nothing_any_more_takes_every_gpu_out(rig, fast):
    """The driver was fine at discovery and failed afterwards: all stayed Healthy, and pods looped until the API server was out of
    memory (NVIDIA/k8s-device-plugin#1640)."""
    node = rig(config=fast())
    async with node.running():
        node.node.answer("*", "UNKNOWN")
        await node.kubelet.wait_allocatable(GPU, 0)
        await asyncio.sleep(0.5)
        assert len(node.kubelet.listed(GPU)) == 8
        node.node.clear()
        await node.kubelet.wait_allocatable(GPU, 8)


@pytest.mark.parametrize(
    ("call", "gpu", "left"),
    [
        ("nvmlEventSetCreate", None, 0),
        ("nvmlDeviceGetSupportedEventTypes", 1, 7),
        ("nvmlDeviceRegisterEvents", 1, 7),
    ],
)
async def test_what_nobody_watches_is_not_healthy_until_somebody_does(rig, fast, call, gpu, left):
    """Without its watch NVIDIA's plugin went on with every GPU Healthy (NVIDIA/k8s-device-plugin#2037)."""
    node = rig(config=fast())
    node.node.answer(call, "UNKNOWN", gpu=None if gpu is None else node.uuid(gpu))
    async with node.running():
        await node.wait(lambda: len(node.kubelet.listed(GPU)) == 8)
        assert not node.lists()[0].healthy & (node.uuids(*range(8)) if gpu is None else node.uuids(gpu))
        await node.kubelet.wait_allocatable(GPU, left)
        node.node.clear()
        await node.kubelet.wait_allocatable(GPU, 8)


async def test_a_gpu_that_is_too_old_for_events_is_healthy_without(rig, fast):
    """Not supported is knowledge, not a fault."""
    node = rig("l4x4", config=fast())
    node.node.set(1, events=False)
    async with node.running():
        await node.kubelet.wait_allocatable(GPU, 4)
        assert not node.of("cause.added")


@pytest.mark.parametrize("call", ["nvmlEventSetCreate", "nvmlEventSetWait"])
async def test_a_driver_that_is_too_old_for_events_leaves_its_gpus_healthy(rig, fast, call):
    """Before R450 there is no nvmlEventSetWait_v2, which the binding calls. Every GPU of such a node was Unhealthy for good."""
    node = rig("l4x4", config=fast())
    node.node.answer(call, "FUNCTION_NOT_FOUND")
    async with node.running():
        await node.kubelet.wait_allocatable(GPU, 4)
        await asyncio.sleep(0.5)
        assert len(node.healthy()) == 4
        assert not node.of("cause.added")


async def test_an_xid_whose_gpu_the_driver_cannot_name_takes_all_of_them_out(rig, fast):
    """Each recovers by its own evidence."""
    node = rig("dgx-h100", config=fast())
    node.node.set(6, recovery_action="reset")
    async with node.running():
        await node.kubelet.wait_allocatable(GPU, 7)
        node.node.xid(None, 95)
        await node.kubelet.wait_allocatable(GPU, 0)
        await node.kubelet.wait_allocatable(GPU, 7)
        assert node.uuid(6) not in node.healthy()


async def test_a_watch_that_hangs_is_replaced_and_hears_again(rig, fast):
    """The thread that waits for events hangs in the driver: a cause for as long as it does, then another thread hears."""
    node = rig(config=fast())
    async with node.running():
        node.node.hang("nvmlEventSetWait")
        await node.wait(lambda: len(node.healthy()) < 8)
        node.node.release()
        await node.kubelet.wait_allocatable(GPU, 8)
        node.node.xid(2, 79)
        await node.kubelet.wait_allocatable(GPU, 7)


async def test_refusing_restarts_is_switched_by_edits(rig, fast):
    """Kubelet reads at registration whether to ask before a start: the edit registers anew, once, and so does the edit back."""
    node = rig(config=fast())
    refusing = fast().replace("health: {", "health: {refuseUnhealthyRestart: true, ")
    async with node.running():
        pod = await node.admit("a", gpu=1)
        [broken] = pod.devices("main", GPU)
        node.node.set(broken, ecc_uncorrectable=1)
        await node.kubelet.wait_allocatable(GPU, 7)
        await node.kubelet.start_container("a", "main")  # a restart in place asks nobody
        node.write(refusing)
        await node.wait(lambda: node.registrations() == 2)
        await node.kubelet.wait_allocatable(GPU, 7)
        with pytest.raises(StartRefused, match="uncorrectable ECC errors"):
            await node.kubelet.start_container("a", "main")
        node.node.set(broken, ecc_uncorrectable=0)
        await node.kubelet.wait_allocatable(GPU, 8)
        await node.kubelet.start_container("a", "main")
        node.node.set(broken, ecc_uncorrectable=1)
        node.write(fast())
        await node.wait(lambda: node.registrations() == 3)
        await node.kubelet.wait_allocatable(GPU, 7)
        await node.kubelet.start_container("a", "main")
        assert len(node.kubelet.record.of(Happening.START_REFUSED)) == 1


async def test_every_transition_is_one_line_with_the_same_fields(rig, fast):
    """Capacity drifted away over days and the log said nothing useful (NVIDIA/k8s-device-plugin#234): resource, device, cause and
    the hash of the config are in each line, an XID is counted, and nothing is said twice."""
    node = rig(config=fast("sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4}]}}\n"))
    async with node.running() as plugin:
        for gpu in range(4):
            node.node.xid(gpu, 46)
            node.node.xid(gpu, 31)
        await node.kubelet.wait_allocatable(GPU, 16)
        await node.kubelet.wait_allocatable(GPU, 32)
        await node.wait(lambda: plugin.supervisor._health.xids_seen == {46: 4, 31: 4})
        await asyncio.sleep(0.3)  # nothing is said twice
    [loaded] = node.of("config.loaded")
    for event, of_more in (("device.became_unhealthy", {"cause", "detail"}), ("device.became_healthy", set())):
        lines = node.of(event)
        assert sorted(line["device"] for line in lines) == sorted(node.uuids(0, 1, 2, 3))
        for line in lines:
            assert line.keys() == {"event", "log_level", "resource", "device", "devices", "config_hash"} | of_more
            assert (line["resource"], line["devices"], line["config_hash"]) == (GPU, 4, loaded["config_hash"])
    assert all(line["cause"] == "xid" and "XID 46" in line["detail"] for line in node.of("device.became_unhealthy"))
    assert sorted(line["gpu"] for line in node.of("cause.added")) == sorted(node.uuids(0, 1, 2, 3))
