"""Random edits, repartitions, pods and time: no ID goes early, no hardware is given twice, same facts give the same list."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from device_plugin.hardware.model import Gpu, Inventory, MigDevice
from device_plugin.health.cause import Cause, CauseKind, ClearedBy
from device_plugin.serving.arrangement import arrangement_from_json, arrangement_to_json
from device_plugin.serving.serve import next_change_at, serve
from device_plugin.sharing.offer import Device, Offer, PreferencePolicy, Resource

GRACE, SETTLES = 60.0, 5.0
GPUS = ("GPU-0", "GPU-1")
NAMES = ("nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig")

# How one GPU is offered: under which name, how many replicas (None: exclusive), whether as its two MIG devices; None: not at all.
ARRANGEMENTS = st.sampled_from(
    (
        None,
        (NAMES[0], None, False),
        (NAMES[0], 2, False),
        (NAMES[1], 3, False),
        (NAMES[1], None, False),
        (NAMES[2], None, True),
        (NAMES[2], 2, True),
    )
)


def devices(number, replicas, is_mig):
    uuid = GPUS[number]
    for index, hardware in enumerate((f"MIG-{number}-0", f"MIG-{number}-1") if is_mig else (uuid,)):
        for replica in (None,) if replicas is None else range(replicas):
            yield Device(
                id=hardware if replica is None else f"{hardware}::{replica}",
                hardware_id=hardware,
                gpu_uuid=uuid,
                index=f"{number}:{index}" if is_mig else str(number),
                replica=replica,
            )


def collide(one, other):
    """Whether two pods with these devices would be where only one may be, told without looking at how it is computed."""
    if one.gpu_uuid != other.gpu_uuid:
        return False
    if one.hardware_id != other.hardware_id:
        return not (one.is_mig and other.is_mig)
    return one.replica is None or other.replica is None


class Kubelet(RuleBasedStateMachine):
    """A plugin, and a kubelet that gives what is Healthy and free to pods. Every pod's allocation is answered by the plugin."""

    @initialize(knows_holders=st.booleans())
    def start(self, knows_holders):
        self.knows_holders = knows_holders
        self.arrangement = {0: (NAMES[0], None, False), 1: (NAMES[0], None, False)}
        self.now, self.served, self.answered, self.causes = 1000.0, None, {}, ()
        self.pods = []  # (resource, Device) of every running pod
        self.left_at = {}  # (resource, ID) -> when it left the Offer
        self.reconcile()

    def facts(self):
        held = {}
        for resource, device in self.pods:
            held.setdefault(resource, set()).add(device.id)
        return {
            "inventory": self.inventory(),
            "held": {name: frozenset(ids) for name, ids in held.items()} if self.knows_holders else None,
            "answered": dict(self.answered),
            "now": self.now,
            "grace_seconds": GRACE,
        }

    def inventory(self):
        gpus = []
        for number, arrangement in self.arrangement.items():
            is_mig = arrangement is not None and arrangement[2]
            migs = tuple(MigDevice(uuid=f"MIG-{number}-{index}", index=index) for index in range(2)) if is_mig else ()
            gpus.append(Gpu(index=number, uuid=GPUS[number], name="A", mig_enabled=is_mig, mig_devices=migs))
        return Inventory(tuple(gpus))

    def offer(self):
        by_name = {}
        for number, arrangement in sorted(self.arrangement.items()):
            if arrangement is not None:
                name, replicas, is_mig = arrangement
                by_name.setdefault(name, []).extend(devices(number, replicas, is_mig))
        return Offer(tuple(Resource(name, tuple(found), PreferencePolicy.PACKED) for name, found in sorted(by_name.items())))

    def offered(self):
        return {(resource.name, device.id) for resource in self.offer().resources for device in resource.devices}

    def listed(self):
        resources = self.served.resources if self.served else ()
        return {(resource.name, served.device.id): served for resource in resources for served in resource.devices}

    def reconcile(self):
        before = self.listed()
        first = serve(self.offer(), self.served, self.causes, **self.facts())
        assert first == serve(self.offer(), self.served, tuple(reversed(self.causes)), **self.facts())
        self.served = first
        offered = self.offered()
        for key in before:
            if key not in offered:
                self.left_at.setdefault(key, self.now)
        for key in offered:
            self.left_at.pop(key, None)
        for key in before.keys() - self.listed().keys():
            left_at = self.left_at.pop(key)
            assert self.now >= left_at + GRACE
            assert self.now >= self.answered.get(key, 0.0) + SETTLES
            assert not self.knows_holders or key not in {(resource, device.id) for resource, device in self.pods}

    @rule(number=st.sampled_from((0, 1)), arrangement=ARRANGEMENTS)
    def edit(self, number, arrangement):
        self.arrangement[number] = arrangement
        self.reconcile()

    @rule(data=st.data())
    def admit(self, data):
        taken = {(resource, device.id) for resource, device in self.pods}
        free = [
            (name, served.device)
            for (name, device_id), served in sorted(self.listed().items())
            if served.is_healthy and (name, device_id) not in taken
        ]
        if not free:
            return
        resource, device = data.draw(st.sampled_from(free))
        self.pods.append((resource, device))
        self.answered[resource, device.id] = self.now
        self.reconcile()

    @precondition(lambda self: self.left_at)
    @rule(data=st.data())
    def answer_late(self, data):
        """Kubelet picked a device just before it left: a request names it now."""
        self.answered[data.draw(st.sampled_from(sorted(self.left_at)))] = self.now
        self.reconcile()

    @precondition(lambda self: self.pods)
    @rule(data=st.data())
    def end_pod(self, data):
        self.pods.remove(data.draw(st.sampled_from(self.pods)))
        self.reconcile()

    @rule(seconds=st.sampled_from((0.5, 4.9, 5.0, 30.0, 60.0, 600.0)))
    def wait(self, seconds):
        """Time goes by; whenever the plugin asked to be called, it is called."""
        until = self.now + seconds
        for _ in range(20):
            at = next_change_at(self.served, self.answered, self.facts()["held"], self.now, GRACE)
            if at is None or at > until:
                break
            self.now = at
            self.reconcile()
        else:
            raise AssertionError("the plugin asks to be called again and again")
        self.now = until
        settled = self.served
        self.reconcile()
        assert self.served == settled

    @precondition(lambda self: self.left_at)
    @rule()
    def answer_at_the_last_moment(self):
        """A device that leaves is named a second before its grace is over."""
        key, left_at = min(self.left_at.items(), key=lambda item: (item[1], item[0]))
        self.wait(max(left_at + GRACE - 1.0 - self.now, 0.0))
        self.answered[key] = self.now
        self.reconcile()
        self.wait(1.0)

    @rule(hit=st.sets(st.sampled_from(GPUS)))
    def fall_ill(self, hit):
        self.causes = tuple(Cause(CauseKind.XID, uuid, "48", "XID 48", self.now, ClearedBy.RESET) for uuid in sorted(hit))
        self.reconcile()

    @rule()
    def restart_the_plugin(self):
        self.served, note = arrangement_from_json(arrangement_to_json(self.served))
        assert note is None
        self.reconcile()

    @invariant()
    def what_is_offered_is_listed_and_the_rest_is_unhealthy(self):
        listed, offered = self.listed(), self.offered()
        assert offered <= listed.keys()
        assert not any(served.is_healthy for key, served in listed.items() if key not in offered)
        assert not any(served.is_healthy for served in listed.values() if any(cause.hits(served.device) for cause in self.causes))

    @invariant()
    def nothing_healthy_collides_with_a_pod(self):
        """With pod-resources always; without, for as long as the pod's device is leaving."""
        listed, taken = self.listed(), {(resource, device.id) for resource, device in self.pods}
        for resource, device in self.pods:
            if self.knows_holders or ((resource, device.id) in listed and (resource, device.id) not in self.offered()):
                assert [
                    key
                    for key, served in listed.items()
                    if served.is_healthy and key not in taken and collide(device, served.device)
                ] == []

    @invariant()
    def order_is_defined(self):
        names = [resource.name for resource in self.served.resources]
        assert names == sorted(set(names))
        for resource in self.served.resources:
            ids = [served.device.id for served in resource.devices]
            assert len(ids) == len(set(ids))


Kubelet.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_serving = Kubelet.TestCase
