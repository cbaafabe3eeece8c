"""What a look at a GPU finds, and how a GPU recovers."""

from __future__ import annotations

import pytest

from device_plugin.config.model import Health
from device_plugin.hardware.driver import RecoveryAction
from device_plugin.health.probes import has_lost_access, on_rules
from device_plugin.health.state import RecoveryRules, recovery_rules_from


@pytest.mark.parametrize(
    ("read", "kind", "key"),
    [
        ({"ecc_uncorrectable": 1}, "ecc", "uncorrectable"),
        ({"remap_pending": True}, "row-remap", "pending"),
        ({"remap_failed": True}, "row-remap", "failed"),
        ({"action": RecoveryAction.RESET}, "recovery-action", "reset"),
        ({"action": RecoveryAction.DRAIN_P2P}, "recovery-action", "reset"),
        ({"action": RecoveryAction.DRAIN_AND_RESET}, "recovery-action", "reset"),
        ({"fabric_state": 1, "fabric_status": 0}, "fabric", "registration"),
        ({"fabric_state": 2, "fabric_status": 0}, "fabric", "registration"),
        ({"fabric_state": 3, "fabric_status": 999}, "fabric", "registration"),
    ],
)
def test_a_bad_condition_is_a_cause_until_it_reads_clean(sick, read, kind, key):
    """NVIDIA/k8s-device-plugin#267: a state that raised no event, or came before the watch, was missed. No event here."""
    sick.probe(**read)
    assert sick.causes == [("GPU-0", kind, key)]
    sick.probe(after=30.0, ecc_uncorrectable=0, remap_pending=False, remap_failed=False, fabric_state=3, fabric_status=0)
    assert sick.causes == []
    assert sick.transitions == [("cleared", key)]


def test_what_a_gpu_does_not_have_is_no_fault(sick):
    """All properties unsupported: healthy."""
    sick.probe(action=None)
    sick.probe(fabric_state=0, fabric_status=0)
    assert sick.causes == []


def test_a_condition_keeps_its_time_and_tells_the_newest_figure(sick):
    """Two errors after one are the same cause."""
    sick.probe(ecc_uncorrectable=1)
    assert sick.probe(after=30.0, ecc_uncorrectable=2).transitions == ()
    (cause,) = sick.state.causes
    assert (cause.since, cause.detail) == (1000.0, "2 uncorrectable ECC errors since the last reset")


def test_a_reboot_that_the_driver_asks_for_takes_a_reboot(sick):
    """It does not end though the action reads none again."""
    sick.around("on_boot", "one")
    sick.probe(action=RecoveryAction.REBOOT)
    sick.probe_for(3600)
    assert sick.causes == [("GPU-0", "recovery-action", "reboot")]
    sick.around("on_boot", "another")
    assert sick.causes == []


def test_one_failed_probe_says_nothing_three_in_a_row_do(sick):
    """A time-out is "unknown", not a fault, until it is one."""
    failed = {"action": None, "unknown": ("ecc_uncorrectable: timeout",)}
    sick.probe(**failed)
    sick.probe(**failed)
    sick.probe()
    sick.probe(**failed)
    sick.probe(**failed)
    assert sick.causes == []
    sick.probe(**failed)
    assert sick.causes == [("GPU-0", "probe-failed", "probe")]
    assert "ecc_uncorrectable: timeout" in sick.state.causes[0].detail


def test_a_failing_gpu_is_back_with_its_first_good_probe(sick):
    """NVIDIA/k8s-device-plugin#403: an "unknown error" kept the GPU out for days, until somebody restarted the container."""
    for _ in range(5):
        sick.probe(action=None, unknown=("handle: unknown error",))
    assert sick.probe(after=30.0).transitions[0].reason == "probed without an error"
    assert sick.causes == []


def test_what_could_not_be_read_keeps_its_verdict(sick):
    """gpustack/runtime#26: swallowed errors made a broken GPU look healthy."""
    sick.probe(ecc_uncorrectable=1)
    sick.probe(unknown=("ecc_uncorrectable: unknown error",))
    assert sick.causes == [("GPU-0", "ecc", "uncorrectable")]


@pytest.mark.parametrize("action", [None, RecoveryAction.NONE])
def test_a_recovery_action_counts_only_if_it_was_read(sick, action):
    """With another property's error beside it: none read is no verdict, one that reads none is."""
    sick.probe(action=RecoveryAction.RESET)
    sick.probe(action=action, unknown=("fabric: timeout",))
    assert sick.causes == ([("GPU-0", "recovery-action", "reset")] if action is None else [])


def test_what_could_be_read_counts_though_something_else_failed(sick):
    """One property's error hides neither another's fault nor its recovery."""
    sick.probe(ecc_uncorrectable=1, unknown=("fabric: timeout",))
    assert sick.causes == [("GPU-0", "ecc", "uncorrectable")]
    sick.probe(ecc_uncorrectable=0, unknown=("fabric: timeout",))
    assert sick.causes == []


def test_a_lost_handle_is_a_lost_gpu(sick):
    """And it is back when it answers again."""
    sick.probe(action=None, lost="GPU is lost")
    assert sick.causes == [("GPU-0", "gpu-lost", "handle")]
    sick.probe()
    assert sick.causes == []


def test_an_xid_clears_after_a_calm_period_with_evidence(sick):
    """NVIDIA/k8s-device-plugin#1014: there was no way back to Healthy but deleting the plugin's pod."""
    sick.xid(48)
    sick.probe(after=30.0)
    sick.probe_for(299)
    assert sick.causes == [("GPU-0", "xid", "48")]
    change = sick.probe(after=1.0)
    assert sick.causes == []
    assert change.transitions[0].reason == "recovery action none and probes clean for 300 s"


def test_another_xid_starts_the_calm_period_anew(sick):
    """Each XID that counts, not the first."""
    sick.xid(48)
    sick.probe_for(290)
    sick.xid(48)
    sick.probe_for(329)
    assert sick.causes
    sick.probe_for(30)
    assert sick.causes == []


@pytest.mark.parametrize("read", [{"ecc_uncorrectable": 1}, {"unknown": ("fabric: timeout",)}, {"action": RecoveryAction.RESET}])
def test_a_probe_that_is_not_clean_starts_the_calm_period_anew(sick, read):
    """Neither a bad one nor one that failed is evidence."""
    sick.xid(48)
    sick.probe_for(290)
    sick.probe(**read)
    sick.probe(after=30.0)
    sick.probe_for(299)
    assert ("GPU-0", "xid", "48") in sick.causes
    sick.probe(after=1.0)
    assert sick.causes == []


def test_time_alone_clears_nothing_without_a_recovery_action(sick):
    """An old driver gives no evidence, however long the probes are clean."""
    sick.xid(48)
    sick.probe_for(7200, action=None)
    assert sick.causes == [("GPU-0", "xid", "48")]


def test_the_operator_may_take_clean_probes_for_evidence(sick):
    """`recoverWithoutEvidence` makes the calm period enough."""
    sick.rules = RecoveryRules(recover_without_evidence=True)
    sick.xid(48)
    sick.probe_for(329, action=None)
    assert sick.causes
    sick.probe_for(30, action=None)
    assert sick.causes == []


def test_no_time_clears_what_a_reboot_clears(sick):
    """Also with every evidence there is, short of another boot id."""
    sick.xid(79)
    sick.probe_for(7200)
    sick.around("on_boot", None)
    sick.around("on_boot", "this")
    sick.around("on_boot", "this")
    assert sick.causes == [("GPU-0", "xid", "79")]
    sick.around("on_boot", "next")
    assert sick.causes == []


def test_a_mig_devices_cause_recovers_by_its_gpus_evidence(sick):
    """Probes look at GPUs; what they find holds for what stands on them."""
    sick.xid(48, "GPU-2", 1, 0)
    sick.probe("GPU-2")
    sick.probe_for(300, "GPU-2")
    assert sick.causes == []


def test_one_gpus_evidence_is_not_anothers(sick):
    """Each GPU recovers for itself."""
    sick.xid(48)
    sick.xid(48, "GPU-1")
    sick.probe("GPU-1")
    sick.probe_for(300, "GPU-1")
    assert sick.causes == [("GPU-0", "xid", "48")]


def test_a_verdict_has_an_age_limit(sick):
    """A GPU that has been looked at is Healthy only for so long without another look."""
    sick.probe()
    sick.now += 150.0
    sick.tick()
    assert sick.causes == []
    sick.now += 0.1
    sick.tick()
    assert sick.causes == [("GPU-0", "not-answering", "age")]
    sick.probe()
    assert sick.causes == []


def test_a_shorter_age_limit_counts_from_the_edit(sick):
    """An edit of the probe interval, from an hour to half a minute, makes no verdict of ten minutes ago too old."""
    sick.rules = recovery_rules_from(Health(probe_interval="1h"))
    sick.probe()
    sick.now += 600.0
    sick.rules = recovery_rules_from(Health(probe_interval="30s"))
    sick.take(on_rules(sick.state, sick.now))
    sick.now += 150.0
    sick.tick()
    assert sick.causes == []
    sick.now += 0.1
    sick.tick()
    assert sick.causes == [("GPU-0", "not-answering", "age")]


def test_a_clock_set_back_makes_no_verdict_last_longer(sick):
    """Its age counts from the new now."""
    sick.probe()
    sick.now = 10.0
    sick.tick()
    sick.now = 161.0
    sick.tick()
    assert sick.causes == [("GPU-0", "not-answering", "age")]


DENIED = {"action": None, "unknown": ("handle: nvmlDeviceGetHandleByUUID: Insufficient Permissions",)}


def test_lost_access_is_told_from_broken_gpus(sick):
    """NVIDIA/k8s-device-plugin#426: after `systemctl daemon-reload` every call is refused, and the GPUs are fine."""
    for uuid in ("GPU-0", "GPU-1", "GPU-2"):
        for _ in range(3):
            assert not has_lost_access(sick.state)
            sick.probe(uuid, **DENIED)
    assert has_lost_access(sick.state)
    assert "the driver refuses access" in sick.state.causes[0].detail
    sick.probe("GPU-1")
    assert not has_lost_access(sick.state)


def test_one_refused_property_is_no_lost_access(sick):
    """Where the driver answers anything, the container has access, and a fresh one would be refused the same property again."""
    for uuid in ("GPU-0", "GPU-1", "GPU-2"):
        for _ in range(3):
            sick.probe(uuid, action=None, ecc_uncorrectable=0, unknown=("fabric: Insufficient Permissions",))
    assert not has_lost_access(sick.state)


def test_other_errors_everywhere_are_no_lost_access(sick):
    """A fresh container would not cure them."""
    for uuid in ("GPU-0", "GPU-1", "GPU-2"):
        for _ in range(3):
            sick.probe(uuid, action=None, unknown=("handle: unknown error",))
    assert not has_lost_access(sick.state)


def test_the_rules_come_from_the_config():
    """A verdict outlives some probes of the interval that is set."""
    rules = recovery_rules_from(Health(probe_interval="60s", recover_after="1m", recover_without_evidence=True))
    assert rules == RecoveryRules(60.0, recover_without_evidence=True, verdict_lasts_seconds=300.0)
    assert recovery_rules_from(Health(probe_interval="1s")).verdict_lasts_seconds == 120.0
