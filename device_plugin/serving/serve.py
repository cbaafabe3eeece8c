"""serve(): what kubelet is shown now, from what should be offered, what is wrong, and what kubelet was shown before. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from device_plugin.health.cause import CauseKind
from device_plugin.serving.booking import ALL_GPUS, Bookings, find_holdings
from device_plugin.serving.leaving import Use, outlives_grace
from device_plugin.serving.served import Served, ServedDevice, ServedResource

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from device_plugin.hardware.model import Inventory
    from device_plugin.health.cause import Cause
    from device_plugin.sharing.offer import Device, Offer, Resource


def serve(
    offer: Offer,
    previous: Served | None,
    causes: tuple[Cause, ...],
    *,
    inventory: Inventory,
    held: Mapping[str, frozenset[str]] | None,
    answered: Mapping[tuple[str, str], float],
    now: float,
    grace_seconds: float,
    silent: bool = False,
    owed: frozenset[str] = frozenset(),
) -> Served:
    """What kubelet is to be shown now.

    `previous` is what it was shown last (None at a first start), `inventory` the last one that could be read. `held`, `answered`
    and `silent` are those of `Use`; a request under way that names an ID counts as answered `now`, and a request that names a
    leaving device is noted, and served anew, before its answer goes out. `now` is Unix seconds of a clock that does not jump.

    A device of the Offer is shown with its causes. One that was shown and is in the Offer no more is leaving: Unhealthy, given away
    while its hardware is there, and listed for at least one round, `grace_seconds`, 5 s after the last answer that named it and,
    where `held` tells, until no pod holds it. One that comes back leaves no longer.

    A resource that is in the Offer no more is `closing`: first with its leaving devices, then with none for one round and for as
    long as it is in `owed`, the resources whose list kubelet has yet to be given (the empty list is what takes its figures to zero
    at once), then it is not there, and its server may go. So with the same arguments the result stays the same, but for that one
    step.
    """
    use = Use(held, answered, now, grace_seconds, silent)
    hardware = _Hardware(inventory)
    before = {resource.name: resource for resource in previous.resources} if previous else {}
    offered = {resource.name: {device.id: device for device in resource.devices} for resource in offer.resources}
    leaving = {
        name: tuple(_leaving_devices(resource, offered.get(name), causes, hardware, use)) for name, resource in before.items()
    }
    bookings = Bookings(find_holdings(leaving, offered, inventory, use))

    def show(resource: Resource) -> ServedResource:
        was = {served.device.id: served for served in before[resource.name].devices} if resource.name in before else {}
        current = tuple(
            _served(device, (*_hitting(device, causes), *bookings.causes(device, was.get(device.id), now)), hardware)
            for device in resource.devices
        )
        return ServedResource(
            resource.name,
            current + leaving.get(resource.name, ()),
            resource.policy,
            fail_requests_greater_than_one=resource.fail_requests_greater_than_one,
        )

    closing = (
        replace(resource, devices=leaving[name], closing=True)
        for name, resource in before.items()
        if name not in offered and (leaving[name] or name in owed or not was_emptied(resource))
    )
    return Served(tuple(sorted((*map(show, offer.resources), *closing), key=lambda resource: resource.name)))


def next_change_at(
    served: Served,
    answered: Mapping[tuple[str, str], float],
    held: Mapping[str, frozenset[str]] | None,
    now: float,
    grace_seconds: float,
    *,
    silent: bool = False,
    owed: frozenset[str] = frozenset(),
) -> float | None:
    """When `serve` is to be called again though nothing happens, in Unix seconds, `now` at the earliest.

    None: time alone changes nothing.
    """
    use = Use(held, answered, now, grace_seconds, silent)
    times = []
    for resource in served.resources:
        if was_emptied(resource):
            if resource.name in owed:
                continue
            return now
        for device in resource.devices:
            if device.leaving_since is None:
                continue
            free_at = use.free_at(resource.name, device)
            if free_at is not None and free_at > now:
                times.append(free_at)
            drop_at = use.droppable_at(resource.name, device)
            if drop_at is not None and not outlives_grace(device, closing=resource.closing):
                times.append(max(drop_at, now))
    return min(times, default=None)


def was_emptied(resource: ServedResource) -> bool:
    """Whether what kubelet is shown of a closing resource is its last, empty list."""
    return resource.closing and not resource.devices


def _leaving_devices(
    resource: ServedResource, offered: Mapping[str, Device] | None, causes: Iterable[Cause], hardware: _Hardware, use: Use
) -> Iterator[ServedDevice]:
    """The devices shown last that the Offer has no more and that must stay listed, by GPU, MIG and replica number."""
    gone = [served for served in resource.devices if offered is None or served.device.id not in offered]
    for was in sorted(gone, key=lambda served: _position(served.device)):
        since = use.now if was.leaving_since is None else use.left_at(was)
        served = _served(was.device, _hitting(was.device, causes), hardware, leaving_since=since)
        drop_at = use.droppable_at(resource.name, served)
        is_new = was.leaving_since is None  # one round as Unhealthy at least, even without any grace
        if is_new or drop_at is None or drop_at > use.now or outlives_grace(served, closing=offered is None):
            yield served


class _Hardware:
    """Which hardware the inventory has."""

    def __init__(self, inventory: Inventory) -> None:
        self._ids = {gpu.uuid for gpu in inventory.gpus}
        self._ids |= {mig.uuid for gpu in inventory.gpus for mig in gpu.mig_devices}
        if inventory.gpus:
            self._ids.add(ALL_GPUS)

    def has(self, device: Device) -> bool:
        return device.hardware_id in self._ids


def _hitting(device: Device, causes: Iterable[Cause]) -> Iterator[Cause]:
    return (cause for cause in causes if cause.hits(device))


def _served(device: Device, causes: Iterable[Cause], hardware: _Hardware, leaving_since: float | None = None) -> ServedDevice:
    """A device with its causes in order. Its hardware is gone where the inventory lacks it, and where its GPU is lost."""
    in_order = tuple(sorted(causes, key=lambda cause: cause.place))
    is_lost = any(cause.kind is CauseKind.GPU_LOST for cause in in_order)
    return ServedDevice(device, in_order, leaving_since, present=hardware.has(device) and not is_lost)


def _position(device: Device) -> tuple[tuple[int, ...], int, str]:
    index = tuple(int(part) if part.isdecimal() else -1 for part in device.index.split(":"))
    return (index, -1 if device.replica is None else device.replica, device.id)
