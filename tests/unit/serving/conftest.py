"""A small world for serving: GPUs, their MIG devices and replicas, and offers of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from device_plugin.hardware.model import Gpu, Inventory, MigDevice
from device_plugin.serving.serve import next_change_at, serve
from device_plugin.serving.served import Served
from device_plugin.sharing.offer import Device, Offer, PreferencePolicy, Resource


def gpu(index, *migs):
    uuid = f"GPU-{index}"
    return Gpu(
        index=index,
        uuid=uuid,
        name="A",
        mig_enabled=bool(migs),
        mig_devices=tuple(MigDevice(uuid=f"MIG-{index}-{mig}", index=mig) for mig in migs),
    )


def device(hardware, replica=None):
    """`GPU-0` or `MIG-0-1`, whole or as a replica."""
    _, number, *mig = hardware.split("-")
    index = f"{number}:{mig[0]}" if mig else number
    return Device(
        id=hardware if replica is None else f"{hardware}::{replica}",
        hardware_id=hardware,
        gpu_uuid=f"GPU-{number}",
        index=index,
        replica=replica,
        device_nodes=(f"/dev/nvidia{number}",),
    )


def whole(*hardware):
    return tuple(device(name) for name in hardware)


def shared(hardware, replicas):
    return tuple(device(hardware, number) for number in range(replicas))


def offer(**resources):
    """One resource for each keyword: `gpu` stands for nvidia.com/gpu, `_` for `-`."""
    return Offer(
        tuple(
            Resource(f"nvidia.com/{name.replace('_', '-')}", devices, PreferencePolicy.PACKED)
            for name, devices in sorted(resources.items())
        )
    )


@dataclass
class Plugin:
    """The plugin as far as serving goes: it remembers what it served, and its facts can be changed between rounds."""

    inventory: Inventory
    held: dict | None = None
    answered: dict = field(default_factory=dict)
    causes: tuple = ()
    now: float = 1000.0
    grace: float = 60.0
    silent: bool = False
    owed: frozenset = frozenset()
    served: Served | None = None

    def serve(self, an_offer):
        self.served = serve(
            an_offer,
            self.served,
            self.causes,
            inventory=self.inventory,
            held=None if self.held is None else {name: frozenset(ids) for name, ids in self.held.items()},
            answered=self.answered,
            now=self.now,
            grace_seconds=self.grace,
            silent=self.silent,
            owed=self.owed,
        )
        return self.served

    def next_change(self):
        return next_change_at(self.served, self.answered, self.held, self.now, self.grace, silent=self.silent, owed=self.owed)

    def listed(self, name="nvidia.com/gpu"):
        """ID -> why it is not Healthy (empty text: Healthy); None where the resource is not served."""
        resource = self.served.resource(name)
        return None if resource is None else {served.device.id: reason(served) for served in resource.devices}


def reason(served):
    causes = "; ".join(cause.detail for cause in served.causes)
    return "; ".join(part for part in ("leaving" if served.leaving_since is not None else "", causes) if part)


@pytest.fixture
def world():
    return SimpleNamespace(
        gpu=gpu,
        device=device,
        whole=whole,
        shared=shared,
        offer=offer,
        plugin=lambda *gpus, **facts: Plugin(Inventory(gpus), **facts),
    )
