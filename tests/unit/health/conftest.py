"""A small world for health: an inventory, a policy, and a node that goes through what happens to it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from device_plugin.hardware.driver import Event, Probe, RecoveryAction
from device_plugin.hardware.model import Gpu, Inventory, MigDevice
from device_plugin.health import events, node, probes
from device_plugin.health.policy import XidPolicy
from device_plugin.health.state import HealthState, RecoveryRules

MIG = (
    MigDevice(uuid="MIG-a", index=0, gpu_instance_id=1, compute_instance_id=0),
    MigDevice(uuid="MIG-b", index=1, gpu_instance_id=1, compute_instance_id=1),
    MigDevice(uuid="MIG-c", index=2, gpu_instance_id=2, compute_instance_id=0),
)


class Node:
    """A node's health: GPU-0, GPU-1 and GPU-2, the last one with three MIG devices. Remembers the last Change."""

    def __init__(self):
        self.inventory = Inventory(
            (
                Gpu(index=0, uuid="GPU-0", name="A"),
                Gpu(index=1, uuid="GPU-1", name="A"),
                Gpu(index=2, uuid="GPU-2", name="A", mig_enabled=True, mig_devices=MIG),
            )
        )
        self.policy, self.rules, self.now = XidPolicy(), RecoveryRules(), 1000.0
        self.state, self.change = HealthState(), None
        self.see()

    def take(self, change):
        self.change, self.state = change, change.state
        return change

    def see(self, inventory=None):
        return self.take(node.on_inventory(self.state, inventory or self.inventory, self.now))

    def xid(self, xid, uuid="GPU-0", gi=None, ci=None):
        return self.take(events.on_event(self.state, Event(xid, uuid, gi, ci), self.inventory, self.policy, self.now))

    def probe(self, uuid="GPU-0", *, after=0.0, action=RecoveryAction.NONE, **read):
        self.now += after
        return self.take(probes.on_probe(self.state, Probe(uuid, recovery_action=action, **read), self.rules, self.now))

    def probe_for(self, seconds, uuid="GPU-0", **read):
        """A probe every 30 s, the last one just when that time is over."""
        end = self.now + seconds
        while self.now < end:
            self.probe(uuid, after=min(30.0, end - self.now), **read)

    def tick(self):
        return self.take(probes.on_tick(self.state, self.rules, self.now))

    def around(self, what, *args, **more):
        """One of the functions of health.node, by name."""
        return self.take(getattr(node, what)(self.state, *args, now=self.now, **more))

    @property
    def causes(self):
        """(what is hit, kind, key) of every cause."""
        return [(cause.hardware_id or cause.gpu_uuid, cause.kind.value, cause.key) for cause in self.state.causes]

    @property
    def transitions(self):
        return [(transition.kind.value, transition.cause.key) for transition in self.change.transitions]


@pytest.fixture
def sick():
    """A node whose health can be changed."""
    return Node()


@pytest.fixture
def without():
    """Inventories of the node that lack something."""
    full = Node().inventory

    def inventory(uuid, **more):
        return Inventory(tuple(gpu for gpu in full.gpus if gpu.uuid != uuid), **more)

    return SimpleNamespace(gpu=inventory, full=full)
