"""No double booking: hardware that a pod may still hold under another arrangement gets no new work.

A GPU that is edited from exclusive to shared, or repartitioned, is offered anew while the pod with the old device still runs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.health.cause import Cause, CauseKind, ClearedBy
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from device_plugin.hardware.model import Inventory
    from device_plugin.serving.leaving import Use
    from device_plugin.serving.served import ServedDevice
    from device_plugin.sharing.offer import Device

ALL_GPUS = "all"
"""The hardware ID of the one device under WSL, which stands for every GPU."""


@record
class Holding:
    """Hardware that pods hold, or may hold, under a resource, as devices that are not offered there.

    `known` are the IDs that pods are known to hold, `possible` those that they may hold for all that is known; both ascending.
    """

    resource: str
    hardware_id: str
    gpu_uuid: str
    is_shared: bool
    known: tuple[str, ...]
    possible: tuple[str, ...]

    def excludes(self, device: Device) -> bool:
        """Whether that device, of the same GPU, must not be given away beside this holding.

        Replicas of one GPU may stand beside replicas of the same GPU, MIG devices beside other MIG devices. All else that meets on
        a GPU excludes each other, a GPU as a whole and its MIG devices even where both are shared.
        """
        if self.hardware_id == device.hardware_id or ALL_GPUS in (self.hardware_id, device.hardware_id):
            return not (self.is_shared and device.is_shared)
        return self.hardware_id == self.gpu_uuid or device.hardware_id == device.gpu_uuid


class Bookings:
    """All holdings of a node, found by the GPU they are on."""

    def __init__(self, holdings: Iterable[Holding]) -> None:
        self._by_gpu: dict[str, list[Holding]] = {}
        for holding in holdings:
            gpu = ALL_GPUS if holding.hardware_id == ALL_GPUS else holding.gpu_uuid
            self._by_gpu.setdefault(gpu, []).append(holding)

    def causes(self, device: Device, before: ServedDevice | None, now: float) -> tuple[Cause, ...]:
        """Why that device must not be given away yet: one cause for each resource its hardware is held under."""
        by_resource: dict[str, list[Holding]] = {}
        for holding in self._on(device):
            if holding.excludes(device):
                by_resource.setdefault(holding.resource, []).append(holding)
        if not by_resource:
            return ()
        since = {cause.key: cause.since for cause in before.causes if cause.kind is CauseKind.HELD} if before else {}
        return tuple(
            Cause(
                kind=CauseKind.HELD,
                gpu_uuid=device.gpu_uuid,
                key=resource,
                detail=_detail(resource, holdings),
                since=min(since.get(resource, now), now),
                cleared_by=ClearedBy.RELEASE,
                device_id=device.id,
            )
            for resource, holdings in sorted(by_resource.items())
        )

    def _on(self, device: Device) -> Iterator[Holding]:
        if device.hardware_id == ALL_GPUS:
            for holdings in self._by_gpu.values():
                yield from holdings
            return
        yield from self._by_gpu.get(device.gpu_uuid, ())
        yield from self._by_gpu.get(ALL_GPUS, ())


def _detail(resource: str, holdings: list[Holding]) -> str:
    ids = [holding.known for holding in holdings if holding.known] or [holding.possible for holding in holdings]
    others = sum(map(len, ids)) - 1
    more = f" and {others} more" if others else ""
    doubt = "" if any(holding.known for holding in holdings) else ", for all that is known"
    return f"held under {resource} as {min(ids)[0]}{more}{doubt}"


def find_holdings(
    leaving: Mapping[str, tuple[ServedDevice, ...]],
    offered: Mapping[str, Mapping[str, Device]],
    inventory: Inventory,
    use: Use,
) -> tuple[Holding, ...]:
    """What pods hold, or may hold, beside the Offer.

    That is each leaving device until it is free, and each ID that pod-resources names and whose hardware this node has, though it
    stands in no list: the plugin may have lost its memory, or another plugin have given the ID. `leaving` has the leaving devices
    by resource, `offered` the devices of the Offer by resource and ID.
    """
    seen: set[tuple[str, str]] = set()
    found: dict[tuple[str, str, str, bool], tuple[list[str], list[str]]] = {}

    def find(resource: str, device_id: str, hardware_id: str, gpu_uuid: str, *, is_shared: bool, is_known: bool) -> None:
        known, possible = found.setdefault((resource, hardware_id, gpu_uuid, is_shared), ([], []))
        (known if is_known else possible).append(device_id)

    for name, devices in leaving.items():
        for served in devices:
            device = served.device
            seen.add((name, device.id))
            free_at = use.free_at(name, served)
            if free_at is None or free_at > use.now:
                is_known = use.holds(name, device.id)
                find(name, device.id, device.hardware_id, device.gpu_uuid, is_shared=device.is_shared, is_known=is_known)
    parents = {gpu.uuid: gpu.uuid for gpu in inventory.gpus}
    parents |= {mig.uuid: gpu.uuid for gpu in inventory.gpus for mig in gpu.mig_devices}
    for name, ids in (use.held or {}).items():
        for device_id in ids:
            hardware_id, _, replica = device_id.partition("::")
            if hardware_id in parents and device_id not in offered.get(name, {}) and (name, device_id) not in seen:
                find(name, device_id, hardware_id, parents[hardware_id], is_shared=bool(replica), is_known=True)
    return tuple(
        Holding(*hardware, known=tuple(sorted(known)), possible=tuple(sorted(possible)))
        for hardware, (known, possible) in sorted(found.items())
    )
