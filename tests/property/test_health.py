"""Random events, probes, losses, restarts and reboots: what is bad has a cause, and no cause clears but by its own rule."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from device_plugin.config.values import XidAction
from device_plugin.hardware.driver import Event, Probe, RecoveryAction
from device_plugin.hardware.model import Gpu, Inventory
from device_plugin.health.cause import CauseKind, ClearedBy
from device_plugin.health.events import on_event
from device_plugin.health.memory import from_json, to_json
from device_plugin.health.node import on_boot, on_inventory
from device_plugin.health.policy import XidPolicy
from device_plugin.health.probes import on_probe, on_tick
from device_plugin.health.state import HealthState, RecoveryRules, TransitionKind

UUIDS = ("GPU-0", "GPU-1")
POLICY, RULES = XidPolicy(), RecoveryRules()
XIDS = st.sampled_from((13, 45, 46, 48, 79, 154, 9999)) | st.integers(0, 200)
OPTIONAL_BOOLS = st.none() | st.booleans()
PROBES = st.builds(
    Probe,
    gpu_uuid=st.sampled_from(UUIDS),
    ecc_uncorrectable=st.none() | st.integers(0, 2),
    remap_pending=OPTIONAL_BOOLS,
    remap_failed=OPTIONAL_BOOLS,
    recovery_action=st.none() | st.sampled_from(RecoveryAction),
    fabric_state=st.none() | st.integers(0, 3),
    fabric_status=st.none() | st.integers(0, 1),
    unknown=st.sampled_from(((), (), ("fabric: timeout",))),
    lost=st.sampled_from((None, None, None, "GPU is lost")),
)
CLEAN = st.builds(Probe, gpu_uuid=st.sampled_from(UUIDS), recovery_action=st.sampled_from((None, RecoveryAction.NONE)))


class Health(RuleBasedStateMachine):
    """A node's health, beside the plainest record of what happened to it."""

    @initialize()
    def start(self):
        self.now, self.boot = 1000.0, 0
        self.state = HealthState()
        self.last_bad = dict.fromkeys(UUIDS, 0.0)  # the last XID that counts, or look that was not clean
        self.has_returned = dict.fromkeys(UUIDS, False)
        self.gone = set()
        self.take(on_boot(self.state, "0", self.now))
        self.take(on_inventory(self.state, self.inventory(), self.now))

    def inventory(self):
        return Inventory(tuple(Gpu(index=i, uuid=uuid, name="A") for i, uuid in enumerate(UUIDS) if uuid not in self.gone))

    def take(self, change):
        """Every difference of causes is a transition, and every transition a difference."""
        before = {cause.place for cause in self.state.causes}
        after = {cause.place for cause in change.state.causes}
        for transition in change.transitions:
            place = transition.cause.place
            if transition.kind is TransitionKind.ADDED:
                assert place not in before
                before.add(place)
            else:
                assert place in before
                before.remove(place)
            assert transition.reason
        assert before == after
        self.state = change.state
        return change

    def cleared(self, change, cleared_by):
        return [
            transition.cause
            for transition in change.transitions
            if transition.kind is TransitionKind.CLEARED and transition.cause.cleared_by is cleared_by
        ]

    @rule(xid=XIDS, uuid=st.sampled_from((*UUIDS, None, "GPU-elsewhere")))
    def event(self, xid, uuid):
        change = self.take(on_event(self.state, Event(xid, uuid), self.inventory(), POLICY, self.now))
        assert [t for t in change.transitions if t.kind is TransitionKind.CLEARED] == []
        action = POLICY.verdict(xid).action
        for hit in UUIDS if uuid is None else {uuid} & set(UUIDS):
            has_cause = any(cause.kind is CauseKind.XID and cause.key == str(xid) for cause in self.state.causes_of(hit))
            if action in (XidAction.UNTIL_RESET, XidAction.UNTIL_REBOOT):
                assert has_cause
            if action is not XidAction.IGNORE:
                self.last_bad[hit] = self.now

    @rule(probe=PROBES | CLEAN)
    def probe(self, probe):
        uuid = probe.gpu_uuid
        is_asked = bool(self.state.gpu(uuid).asked)
        known_lost = any(cause.kind is CauseKind.GPU_LOST and cause.key == "handle" for cause in self.state.causes_of(uuid))
        change = self.take(on_probe(self.state, probe, RULES, self.now))
        is_overridden = is_asked and probe.recovery_action is not None
        assert self.cleared(change, ClearedBy.REBOOT) == [] or is_overridden
        self.has_returned[uuid] |= known_lost and probe.lost is None
        if self.cleared(change, ClearedBy.RESET) and not is_overridden:
            has_evidence = (
                probe.recovery_action is RecoveryAction.NONE and self.now - self.last_bad[uuid] >= RULES.recover_after_seconds
            )
            assert has_evidence or self.has_returned[uuid]
            assert probe.unknown == ()
            assert not probe.ecc_uncorrectable
            assert not probe.remap_failed
            assert probe.recovery_action in (None, RecoveryAction.NONE)
        if probe.lost or probe.unknown or probe.ecc_uncorrectable or probe.remap_failed or probe.remap_pending:
            self.last_bad[uuid] = self.now
        if probe.recovery_action not in (None, RecoveryAction.NONE):
            self.last_bad[uuid] = self.now
            assert probe.lost or self.state.causes_of(uuid)
        if probe.ecc_uncorrectable or probe.remap_failed or probe.remap_pending or probe.lost:
            assert self.state.causes_of(uuid)

    @rule(uuid=st.sampled_from(UUIDS))
    def recover(self, uuid):
        """Clean probes for the calm period with a recovery action leave nothing that a reset clears."""
        for _ in range(13):
            self.probe(Probe(uuid, recovery_action=RecoveryAction.NONE))
            self.now += 30.0
        left = self.state.causes_of(uuid)
        assert all(cause.cleared_by is ClearedBy.REBOOT or cause.kind is CauseKind.GPU_LOST for cause in left) or any(
            cause.kind is CauseKind.RECOVERY_ACTION for cause in left
        )

    @rule(uuid=st.sampled_from(UUIDS))
    def go_or_come(self, uuid):
        if uuid in self.gone:
            self.gone.remove(uuid)
            self.has_returned[uuid] = True
        else:
            self.gone.add(uuid)
        change = self.take(on_inventory(self.state, self.inventory(), self.now))
        assert self.cleared(change, ClearedBy.REBOOT) == self.cleared(change, ClearedBy.RESET) == []

    @rule(seconds=st.sampled_from((1.0, 30.0, 400.0)))
    def wait(self, seconds):
        self.now += seconds
        change = self.take(on_tick(self.state, RULES, self.now))
        assert [t for t in change.transitions if t.kind is TransitionKind.CLEARED] == []

    @rule()
    def restart_the_plugin(self):
        before = self.state
        self.state, notes = from_json(json.loads(json.dumps(to_json(self.state))))
        assert notes == ()
        kept = [cause for cause in before.causes if cause.kind is not CauseKind.NOT_ANSWERING]
        assert list(self.state.causes) == kept
        for uuid in UUIDS:
            self.last_bad[uuid] = max(self.last_bad[uuid], self.now)

    @rule()
    def reboot(self):
        self.boot += 1
        self.take(on_boot(self.state, str(self.boot), self.now))
        assert self.state.causes == ()
        self.has_returned = dict.fromkeys(UUIDS, False)
        self.gone = set()
        self.take(on_inventory(self.state, self.inventory(), self.now))

    @invariant()
    def a_gpu_that_is_gone_has_a_cause(self):
        assert all(self.state.causes_of(uuid) for uuid in self.gone)

    @invariant()
    def order_is_defined(self):
        places = [cause.place for cause in self.state.causes]
        assert places == sorted(set(places))
        uuids = [gpu.uuid for gpu in self.state.gpus]
        assert uuids == sorted(set(uuids))


Health.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
test_health = Health.TestCase

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(("version", "gpus", "causes", "uuid", "asked", "kind", "key", "since")), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(JSON, st.booleans())
def test_no_memory_is_too_strange(value, is_versioned):
    """Whatever stands in the state file, the plugin starts; what it took in, it can write."""
    if is_versioned and isinstance(value, dict):
        value["version"] = 1
    state, notes = from_json(value)
    assert all(isinstance(note, str) for note in notes)
    assert from_json(to_json(state)) == (state, ())
