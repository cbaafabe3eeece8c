"""Health survives a restart of the plugin."""

from __future__ import annotations

import json

import pytest

from device_plugin.health.memory import from_json, to_json
from device_plugin.health.state import HealthState


def through_json(state):
    return from_json(json.loads(json.dumps(to_json(state))))


def test_a_restart_launders_no_gpu(sick):
    """NVIDIA/k8s-device-plugin#111: a restarted plugin called the broken GPU healthy."""
    sick.around("on_boot", "this")
    sick.xid(79)
    sick.xid(48, "GPU-2", 1, 1)
    sick.probe("GPU-1", ecc_uncorrectable=3)
    before = sick.causes
    sick.state, notes = through_json(sick.state)
    sick.around("on_boot", "this")
    assert notes == ()
    assert sick.causes == before
    sick.probe_for(7200)
    assert ("GPU-0", "xid", "79") in sick.causes


def test_a_reboot_meanwhile_is_noticed(sick):
    """The boot id is in the file."""
    sick.around("on_boot", "this")
    sick.xid(79)
    sick.state, _ = through_json(sick.state)
    sick.around("on_boot", "next")
    assert sick.causes == []


def test_a_gpu_lost_meanwhile_is_missed(sick, without):
    """The GPUs that were there are in the file."""
    sick.state, _ = through_json(sick.state)
    sick.see(without.gpu("GPU-1"))
    assert sick.causes == [("GPU-1", "gpu-lost", "gone")]


def test_a_calm_period_starts_anew(sick):
    """Nobody looked while the plugin was away."""
    sick.xid(48)
    sick.probe()
    sick.probe_for(299)
    sick.state, _ = through_json(sick.state)
    sick.probe(after=60.0)
    assert sick.causes == [("GPU-0", "xid", "48")]
    sick.probe_for(300)
    assert sick.causes == []


def test_a_question_to_the_driver_is_kept(sick):
    """154 came, the plugin went before the driver was asked."""
    sick.xid(48)
    sick.xid(154)
    sick.state, _ = through_json(sick.state)
    sick.probe()
    assert sick.causes == []


def test_failed_probes_go_on_counting(sick):
    """A plugin that is restarted again and again still gets to three."""
    for _ in range(3):
        sick.probe(action=None, unknown=("handle: timeout",))
        sick.state, _ = through_json(sick.state)
    assert sick.causes == [("GPU-0", "probe-failed", "probe")]


def test_what_belongs_to_the_process_is_left_behind(sick):
    """A fresh process finds out for itself."""
    sick.around("on_driver_lost", "away")
    sick.around("on_call_hanging", "GPU-0", "hangs")
    sick.around("on_events_lost", "gone")
    sick.around("on_injection", {("*", None): "disk full"})
    assert through_json(sick.state)[0].causes == ()


def test_the_same_state_is_the_same_bytes(sick):
    """Whatever order it came about in."""
    sick.xid(79)
    sick.xid(48)
    first = json.dumps(to_json(sick.state))
    sick.state = HealthState()
    sick.see()
    sick.xid(48)
    sick.xid(79)
    assert json.dumps(to_json(sick.state)) == first


@pytest.mark.parametrize("value", [None, [], 7, "text", {}, {"version": 2}, {"version": "1"}])
def test_another_thing_is_no_memory(value):
    """The start goes on without it and says so."""
    state, notes = from_json(value)
    assert state == HealthState()
    assert "starting without it" in notes[0]


GOOD = {
    "kind": "xid",
    "gpuUuid": "GPU-0",
    "key": "79",
    "detail": "XID 79",
    "since": 1.0,
    "clearedBy": "reboot",
    "hardwareId": None,
    "deviceId": None,
}


@pytest.mark.parametrize(
    "bad",
    [
        None,
        "x",
        {},
        GOOD | {"kind": "mood"},
        GOOD | {"kind": []},
        GOOD | {"kind": "driver"},
        GOOD | {"key": "seventy-nine"},
        GOOD | {"key": 79},
        GOOD | {"detail": "XID \ud800"},
        GOOD | {"since": "then"},
        GOOD | {"since": float("inf")},
        GOOD | {"since": 10**400},
        GOOD | {"clearedBy": "hope"},
        GOOD | {"hardwareId": 7},
    ],
)
def test_a_cause_that_cannot_be_read_costs_only_itself(bad):
    """The others are kept: half the causes are better than none."""
    state, notes = from_json({"version": 1, "bootId": 7, "gpus": [], "causes": [bad, GOOD]})
    assert [cause.key for cause in state.causes] == ["79"]
    assert len(notes) == 1
    assert state.boot_id is None


@pytest.mark.parametrize(
    "bad",
    [
        None,
        {"uuid": 7, "failedProbes": 0, "asked": []},
        {"uuid": "GPU-0", "failedProbes": -1, "asked": []},
        {"uuid": "GPU-0", "failedProbes": True, "asked": []},
        {"uuid": "GPU-0", "failedProbes": 0, "asked": [[float("inf"), 1]]},
        {"uuid": "GPU-0", "failedProbes": 0, "asked": [1]},
        {"uuid": "GPU-0", "failedProbes": 0},
    ],
)
def test_a_gpu_that_cannot_be_read_costs_only_itself(bad):
    """As with causes."""
    state, notes = from_json({"version": 1, "gpus": [bad, {"uuid": "GPU-1", "failedProbes": 0, "asked": []}], "causes": None})
    assert [gpu.uuid for gpu in state.gpus] == ["GPU-1"]
    assert len(notes) == 2
