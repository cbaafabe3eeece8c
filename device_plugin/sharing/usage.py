"""What each GPU of the node ends up as, for the table of the `plan` command."""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from typing import TYPE_CHECKING

from device_plugin.records import record
from device_plugin.sharing.phrases import join_words
from device_plugin.sharing.platforms import WSL_ID
from device_plugin.sharing.references import index_key

if TYPE_CHECKING:
    from device_plugin.hardware.model import Inventory
    from device_plugin.sharing.offer import Device, Offer


class UseKind(StrEnum):
    """In which way a GPU is offered."""

    WHOLE = "whole"
    SHARED = "shared"
    MIG = "mig"
    SHARED_MIG = "shared mig"


@record
class Use:
    """`count` devices of one resource that stand on the GPU."""

    resource: str
    count: int
    kind: UseKind


@record
class GpuUse:
    """One physical GPU, what it is offered as, and what of it is not offered, with the reason. `name` is empty if unreadable."""

    index: int
    uuid: str
    name: str
    uses: tuple[Use, ...] = ()
    withheld: tuple[str, ...] = ()


def describe_gpus(inventory: Inventory, offer: Offer) -> tuple[GpuUse, ...]:
    """Every GPU that the driver counts, in index order, with what it ends up as under that Offer."""
    uses: dict[str, Counter[tuple[str, UseKind]]] = {}
    for resource in offer.resources:
        for device in resource.devices:
            uses.setdefault(_carrier(device), Counter())[resource.name, _kind(device)] += 1
    withheld: dict[int, dict[str, list[str]]] = {}
    for item in offer.withheld:
        withheld.setdefault(item.gpu_index, {}).setdefault(item.reason, []).extend([item.index] if ":" in item.index else ())
    gpus = [(gpu.index, gpu.uuid, gpu.name) for gpu in inventory.gpus]
    gpus += [(lost.index, lost.uuid or "", "") for lost in inventory.unreadable]
    rows = []
    for index, uuid, name in sorted(gpus):
        reasons = tuple(
            f"MIG {'devices' if len(migs) > 1 else 'device'} {join_words(migs)}: {reason}" if migs else reason
            for gpu_index in (index, index_key(WSL_ID)[0])
            for reason, migs in withheld.get(gpu_index, {}).items()
        )
        hidden = any(item.gpu_index == index and item.index == str(index) for item in offer.withheld)
        counts = Counter[tuple[str, UseKind]]() if hidden else uses.get(uuid, Counter()) + uses.get(WSL_ID, Counter())
        rows.append(GpuUse(index, uuid, name, tuple(Use(key[0], n, key[1]) for key, n in sorted(counts.items())), reasons))
    return tuple(rows)


def _carrier(device: Device) -> str:
    return WSL_ID if device.hardware_id == WSL_ID else device.gpu_uuid


def _kind(device: Device) -> UseKind:
    if device.is_mig:
        return UseKind.SHARED_MIG if device.is_shared else UseKind.MIG
    return UseKind.SHARED if device.is_shared else UseKind.WHOLE
