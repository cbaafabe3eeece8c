"""Which requests Allocate refuses, and what it says then.

A refusal fails the pod for good and its text is all that the user gets. So only what cannot be given is refused: not a
device that is Unhealthy or leaving, since kubelet may have picked it a moment before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.errors import AllocationRefused
from device_plugin.sharing.offer import PreferencePolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from device_plugin.allocation.table import AllocationTable, Entry

_NAMED = 8  # IDs, or GPUs; clients of gRPC's C core take no text of more than 16 KiB, and show an error of their own instead
_LONGEST_ID = 80  # of ours; what somebody else made up may be longer
_TRY_AGAIN = "kubelet does not try this pod again: delete it, a new one is given other devices"


def check_request(table: AllocationTable, ids: Sequence[str]) -> list[Entry]:
    """The devices of a request, in its order. Raises AllocationRefused, naming the resource, the IDs and what to do."""
    entries = _find(table, ids)
    if table.resource.fail_requests_greater_than_one:
        _check_size(table, entries)
    if table.resource.policy is PreferencePolicy.DISTINCT:
        _check_apart(table, entries)
    if table.injection.is_cdi_only:
        _check_injection(table, entries)
    return entries


def _find(table: AllocationTable, ids: Sequence[str]) -> list[Entry]:
    """Every device asked for, if the node still has it."""
    positions = [table.positions.get(device_id) for device_id in ids]
    unknown = [device_id for device_id, position in zip(ids, positions, strict=True) if position is None]
    if unknown:
        raise _refuse(
            table, f"unknown device: {name_ids(unknown)}; this node does not offer it under that resource (any more); {_TRY_AGAIN}"
        )
    entries = [table.entries[position] for position in positions if position is not None]
    gone = [entry.id for entry in entries if not entry.served.present]
    if gone:
        raise _refuse(table, f"device is gone: {name_ids(gone)}; its GPU or MIG device is no longer on this node; {_TRY_AGAIN}")
    return entries


def _check_size(table: AllocationTable, entries: Sequence[Entry]) -> None:
    if len(entries) > 1 and any(entry.served.device.is_shared for entry in entries):
        raise _refuse(
            table,
            f"maximum request size for shared resources is 1; found {len(entries)}: {name_ids(entry.id for entry in entries)}; "
            "more replicas give no larger share of a GPU: ask for 1, or set failRequestsGreaterThanOne to false in the config",
        )


def _check_apart(table: AllocationTable, entries: Sequence[Entry]) -> None:
    """Hard, since preferred allocation is only advice, and none is asked for before an init container's devices are reused."""
    on_gpu: dict[str, list[str]] = {}
    for entry in dict.fromkeys(entries):
        on_gpu.setdefault(entry.served.device.gpu_uuid, []).append(entry.id)
    crowded = {gpu: ids for gpu, ids in on_gpu.items() if len(ids) > 1}
    if crowded:
        gpus = name_first([f"{gpu} would give {name_ids(ids)}" for gpu, ids in crowded.items()], "; ")
        raise _refuse(
            table,
            f"under the policy distinct a container gets at most one device of each GPU, and too few GPUs have one free: {gpus}; "
            "kubelet does not try this pod again: ask for fewer, or set its allocationPolicy to distributed",
        )


def _check_injection(table: AllocationTable, entries: Sequence[Entry]) -> None:
    impossible = [entry for entry in entries if entry.hardware.cdi_name is None]
    if impossible:
        causes = sorted({str(cause) for entry in impossible for cause in entry.served.causes})
        raise _refuse(
            table,
            f"no way to inject {name_ids(entry.id for entry in impossible)}: no CDI specification defines it, and no other "
            f"device-list strategy is on; {'; '.join(causes) or 'the log of the plugin has the cause'}; {_TRY_AGAIN}",
        )


def _refuse(table: AllocationTable, reason: str) -> AllocationRefused:
    return AllocationRefused(f'invalid allocation request for "{table.resource.name}": invalid request: {reason}')


def name_ids(ids: Iterable[str]) -> str:
    """IDs as a text shows them: as many and as much of each as a reader can use."""
    return name_first([name if len(name) <= _LONGEST_ID else f"{name[:_LONGEST_ID]}..." for name in ids], ", ")


def name_first(words: Sequence[str], separator: str) -> str:
    """The words, or the first of many and how many more there are."""
    more = len(words) - _NAMED
    return separator.join(words[:_NAMED]) + (f" and {more} more" if more > 0 else "")
