"""What an XID hits, and what it leaves behind."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device_plugin.config.values import XidAction
from device_plugin.config.xids import XidSet
from device_plugin.hardware.driver import RecoveryAction
from device_plugin.hardware.model import Inventory, MigDevice
from device_plugin.health import events
from device_plugin.health.cause import ClearedBy
from device_plugin.health.policy import XidPolicy
from device_plugin.sharing.offer import Device


def test_an_xid_is_a_cause_on_its_gpu_at_once(sick):
    """The GPU gets no new work from that moment; its condition is to be read next."""
    change = sick.xid(79)
    assert sick.causes == [("GPU-0", "xid", "79")]
    assert sick.transitions == [("added", "79")]
    assert change.wants_probe == ("GPU-0",)


def test_the_cause_says_what_happened_who_decided_and_what_clears_it(sick):
    """NVIDIA/k8s-device-plugin#189, NVIDIA/k8s-device-plugin#129: a GPU went for ever, and nothing said why or how it comes
    back."""
    sick.xid(79)
    sick.xid(46, "GPU-1")
    assert [cause.detail for cause in sick.state.causes] == [
        "XID 79 (ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS), until the node is rebooted (NVIDIA's catalogue: RESTART_BM)",
        "XID 46 (ROBUST_CHANNEL_GPU_TIMEOUT_ERROR), until the GPU is reset (NVIDIA's catalogue: RESET_GPU)",
    ]


@pytest.mark.parametrize("xid", [13, 31, 45, 69, 94])
def test_an_ignored_xid_leaves_no_cause_but_a_note(sick, xid):
    """It is counted and logged with the policy that applied (NVIDIA/k8s-device-plugin#189: 69 was fatal)."""
    before = sick.state
    change = sick.xid(xid)
    assert change.state is before
    assert change.transitions == ()
    assert change.verdict.action is XidAction.IGNORE
    assert f"XID {xid}" in change.note
    assert change.verdict.reason in change.note


def test_all_replicas_of_the_gpu_are_hit(sick):
    """NVIDIA/k8s-device-plugin#1929: an XID took out one replica of the broken GPU and left the others."""
    (cause,) = sick.xid(48).state.causes
    replicas = [Device(f"GPU-0::{number}", "GPU-0", "GPU-0", "0", number) for number in range(4)]
    assert all(cause.hits(device) for device in replicas)
    assert not cause.hits(Device("GPU-1::0", "GPU-1", "GPU-1", "1", 0))


@pytest.mark.parametrize(
    ("gi", "ci", "hit"),
    [
        (None, None, ["GPU-2"]),
        (1, None, ["MIG-a", "MIG-b"]),
        (1, 1, ["MIG-b"]),
        (2, 0, ["MIG-c"]),
        (None, 0, ["MIG-a", "MIG-c"]),
    ],
)
def test_an_event_hits_the_mig_devices_that_it_names(sick, gi, ci, hit):
    """NVIDIA/k8s-device-plugin#1929: events of all but one MIG device were dropped. Either id alone filters, none means all."""
    sick.xid(48, "GPU-2", gi, ci)
    assert [place for place, _, _ in sick.causes] == hit


def test_an_event_without_ids_hits_every_mig_device(sick):
    """The cause on the GPU stands for everything on it."""
    (cause,) = sick.xid(48, "GPU-2").state.causes
    assert all(cause.hits(Device(f"MIG-{name}", f"MIG-{name}", "GPU-2", "2:0")) for name in "abc")


def test_an_event_of_a_mig_device_hits_the_gpu_that_is_offered_as_a_whole(sick):
    """Under `none` a split GPU is one device, and whoever gets it may compute on the part that is broken."""
    (cause,) = sick.xid(48, "GPU-2", 2, 0).state.causes
    assert cause.hits(Device("GPU-2", "GPU-2", "GPU-2", "2"))
    assert cause.hits(Device("GPU-2::1", "GPU-2", "GPU-2", "2", 1))
    assert not cause.hits(Device("MIG-a", "MIG-a", "GPU-2", "2:0"))
    assert not cause.hits(Device("GPU-1", "GPU-1", "GPU-1", "1"))


def test_an_event_of_a_mig_device_that_is_not_there_hits_nothing(sick):
    """Nothing that is offered stands on it; the note names the instance."""
    change = sick.xid(48, "GPU-2", 7, 0)
    assert sick.causes == []
    assert "GPU instance 7" in change.note
    assert change.is_unplaced, "it may have been made since the inventory was read"


def test_an_event_does_not_hit_a_mig_device_without_a_uuid(sick):
    """The driver would not name it, so nothing is known of its instances either: the event waits for the next inventory."""
    *others, split = sick.inventory.gpus
    nameless = MigDevice(uuid="", index=3, fault="it cannot be read")
    sick.inventory = Inventory((*others, replace(split, mig_devices=(*split.mig_devices, nameless))))
    assert sick.xid(48, "GPU-2", 7, 0).is_unplaced
    assert sick.causes == []
    sick.xid(48, "GPU-2", 2, 0)
    assert [place for place, _, _ in sick.causes] == ["MIG-c"]


def test_ids_on_a_gpu_without_mig_do_not_narrow(sick):
    """There is nothing to narrow to."""
    sick.xid(48, "GPU-0", 0, 0)
    assert sick.causes == [("GPU-0", "xid", "48")]


def test_an_event_without_a_gpu_hits_all_of_them(sick):
    """The driver could not say which one: each gets a cause of its own, to recover by its own evidence."""
    change = sick.xid(48, None, 1, 1)
    assert sick.causes == [(f"GPU-{index}", "xid", "48") for index in range(3)]
    assert change.wants_probe == ("GPU-0", "GPU-1", "GPU-2")


def test_an_event_of_a_foreign_gpu_hits_nothing(sick):
    """A UUID that is not ours is named and left alone."""
    before = sick.state
    change = sick.xid(79, "GPU-elsewhere")
    assert change.state is before
    assert "GPU-elsewhere" in change.note


def test_a_burst_is_one_cause_and_one_transition(sick):
    """The cause keeps the time of its first event; the last one is remembered."""
    sick.xid(48)
    for _ in range(99):
        sick.now += 0.001
        assert sick.xid(48).transitions == ()
    assert [cause.since for cause in sick.state.causes] == [1000.0]
    (seen,) = sick.state.gpu("GPU-0").xids
    assert (seen.xid, seen.last_at) == (48, pytest.approx(1000.099))


def test_two_xids_are_two_causes(sick):
    """Health is a set of causes, not the last event."""
    sick.xid(48)
    sick.xid(79)
    assert sick.causes == [("GPU-0", "xid", "48"), ("GPU-0", "xid", "79")]


def test_154_waits_for_the_drivers_word(sick):
    """The XID itself decides nothing: the GPU is to be probed."""
    change = sick.xid(154)
    assert sick.causes == []
    assert change.wants_probe == ("GPU-0",)


@pytest.mark.parametrize(
    ("action", "key"),
    [
        (RecoveryAction.NONE, None),
        (RecoveryAction.RESET, "reset"),
        (RecoveryAction.DRAIN_P2P, "reset"),
        (RecoveryAction.DRAIN_AND_RESET, "reset"),
        (RecoveryAction.REBOOT, "reboot"),
    ],
)
def test_154_overrides_an_xid_of_the_last_30_seconds(sick, action, key):
    """119 then 154, as seen in gpustack/runtime#26: what the driver asks for stands for both."""
    sick.xid(79)
    sick.now += 29.0
    sick.xid(154)
    sick.probe(action=action)
    assert sick.causes == ([("GPU-0", "recovery-action", key)] if key else [])


def test_154_leaves_older_and_other_xids(sick):
    """An XID of 31 s ago, and one of another GPU, keep their causes."""
    sick.xid(48)
    sick.xid(48, "GPU-1")
    sick.now += 31.0
    sick.xid(154)
    sick.probe(action=RecoveryAction.NONE)
    assert sick.causes == [("GPU-0", "xid", "48"), ("GPU-1", "xid", "48")]


def test_154_counts_from_the_last_time_an_xid_came(sick):
    """An XID that began a minute ago and came again just now is overridden."""
    sick.xid(119)
    sick.now += 60.0
    sick.xid(119)
    sick.xid(154)
    sick.probe(action=RecoveryAction.RESET)
    assert sick.causes == [("GPU-0", "recovery-action", "reset")]


def test_154_is_asked_again_while_the_driver_does_not_answer(sick):
    """A probe that fails decides nothing; the next one does."""
    sick.xid(79)
    sick.xid(154)
    sick.probe(action=None, unknown=("recovery_action: timeout",))
    assert sick.causes == [("GPU-0", "xid", "79")]
    sick.probe(action=RecoveryAction.RESET)
    assert sick.causes == [("GPU-0", "recovery-action", "reset")]


def test_154_without_a_recovery_action_to_ask_for_wants_a_reset(sick):
    """An old driver has no such field: then the XID counts like RESET_GPU, and overrides nothing."""
    sick.xid(79)
    sick.xid(154)
    sick.probe(action=None)
    assert sick.causes == [("GPU-0", "xid", "154"), ("GPU-0", "xid", "79")]


def test_any_xid_can_ask_the_driver(sick):
    """`askDriver` is an action like the others; only 154 overrides."""
    sick.policy = XidPolicy(xids={48: XidAction.ASK_DRIVER})
    sick.xid(79)
    sick.xid(48)
    sick.probe(action=RecoveryAction.REBOOT)
    assert sick.causes == [("GPU-0", "recovery-action", "reboot"), ("GPU-0", "xid", "79")]


def test_a_new_policy_reaches_the_causes_that_are_there(sick):
    """An edit that ignores the XID gives the GPU back; one that makes it last longer changes what clears it."""
    sick.xid(48)
    sick.xid(46, "GPU-1")
    change = sick.take(
        events.on_policy(sick.state, XidPolicy(disabled=XidSet(xids=(48,)), xids={46: XidAction.UNTIL_REBOOT}), sick.now)
    )
    assert sick.transitions == [("cleared", "48")]
    assert "DP_DISABLE_HEALTHCHECKS" in change.transitions[0].reason
    (cause,) = sick.state.causes
    assert (cause.gpu_uuid, cause.cleared_by) == ("GPU-1", ClearedBy.REBOOT)
    assert "until the node is rebooted" in cause.detail


def test_a_new_policy_takes_back_a_question(sick):
    """An XID that is now ignored makes no cause when the driver answers late."""
    sick.xid(154)
    sick.take(events.on_policy(sick.state, XidPolicy(xids={154: XidAction.IGNORE}), sick.now))
    sick.probe(action=None)
    assert sick.causes == []
