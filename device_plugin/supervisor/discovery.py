"""Driver and host -> Inventory. Runs in a hardware thread; one GPU that does not answer costs one GPU."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from device_plugin.errors import DriverError, NotSupported
from device_plugin.hardware.model import Inventory, UnreadableGpu
from device_plugin.hardware.sysfs import complete

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from device_plugin.hardware.driver import Driver, DriverFacts
    from device_plugin.hardware.model import Gpu, Platform
    from device_plugin.hardware.sysfs import Host

_NONE: Mapping[int, str] = MappingProxyType({})


@dataclass(slots=True)
class Progress:
    """How far a reading has come, for whoever has to give it up: the index under way, and the UUIDs read before it."""

    index: int | None = None
    uuids: dict[str, int] = field(default_factory=dict)


def read_inventory(
    driver: Driver,
    facts: DriverFacts,
    host: Host,
    platform: Callable[[Sequence[str]], Platform],
    *,
    simulated: bool,
    skipped: Mapping[int, str] = _NONE,
    progress: Progress | None = None,
) -> Inventory:
    """Everything the opened driver and the host's files tell. Never raises `DriverError` for a single GPU.

    `skipped` has GPUs that must not be asked, by index, with the reason: they count as unreadable.
    """
    progress = progress or Progress()
    gpus: list[Gpu] = []
    unreadable: list[UnreadableGpu] = []
    unsuited: list[int] = []
    for index in range(facts.gpu_count):
        progress.index = index
        if index in skipped:
            unreadable.append(UnreadableGpu(index=index, reason=skipped[index]))
            continue
        try:
            gpus.append(driver.read_gpu(index))
            progress.uuids[gpus[-1].uuid] = index
        except NotSupported:
            unsuited.append(index)  # a device that is not meant for computing, such as a DGX Display
        except DriverError as error:
            unreadable.append(UnreadableGpu(index=index, reason=str(error)))
    progress.index = None
    inventory = Inventory(
        gpus=tuple(gpus),
        unreadable=tuple(unreadable),
        skipped=tuple(unsuited),
        links=driver.read_links(gpus),
        driver_version=facts.driver_version,
        cuda_version=facts.cuda_version,
        platform=platform([gpu.name for gpu in gpus]),
        simulated=simulated,
    )
    return complete(inventory, host)


def keep_last_known(inventory: Inventory, last: Inventory | None) -> Inventory:
    """The Inventory with each GPU that could not be read as it was last known, where its index says which one it is.

    So a GPU that is lost stays what it was offered as, Unhealthy, and no other GPU is offered as something else in its place.
    """
    if last is None or not inventory.unreadable:
        return inventory
    present = {gpu.uuid for gpu in inventory.gpus}
    missed = {gpu.index: gpu for gpu in last.gpus if gpu.uuid not in present}
    kept = {gpu.index: missed[gpu.index] for gpu in inventory.unreadable if gpu.index in missed}
    indexes = {gpu.index for gpu in inventory.gpus} | kept.keys()
    links = [link for link in last.links if kept.keys() & {link.source, link.target} and indexes >= {link.source, link.target}]
    return replace(
        inventory,
        gpus=tuple(sorted((*inventory.gpus, *kept.values()), key=lambda gpu: gpu.index)),
        unreadable=tuple(replace(gpu, uuid=kept[gpu.index].uuid) if gpu.index in kept else gpu for gpu in inventory.unreadable),
        links=tuple(sorted((*inventory.links, *links), key=lambda link: (link.source, link.target))),
    )


def readable_gpus(inventory: Inventory) -> tuple[Gpu, ...]:
    """The GPUs that the driver described, without those that are only known from before."""
    kept = {gpu.uuid for gpu in inventory.unreadable}
    return tuple(gpu for gpu in inventory.gpus if gpu.uuid not in kept)


def without_kept(inventory: Inventory) -> Inventory:
    """The Inventory for `plan`, to which a GPU known from before is a GPU like any other: its cause says that it is lost."""
    known = {gpu.uuid for gpu in inventory.gpus}
    return replace(inventory, unreadable=tuple(gpu for gpu in inventory.unreadable if gpu.uuid not in known))
