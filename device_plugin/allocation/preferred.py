"""GetPreferredAllocation: which of the free devices a container should get.

Kubelet takes the answer as advice: it ignores what it did not offer, cuts off what is too much and fills up at random what
is too little. But an *error* fails the pod for good. So nothing here raises, whatever is asked: what cannot be had as
wished becomes a plain valid choice. The order in which kubelet names devices is random, and no answer depends on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.allocation.aligned import choose_aligned
from device_plugin.allocation.shares import Load, distribute, pack
from device_plugin.sharing.offer import PreferencePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from device_plugin.allocation.table import AllocationTable

    Share = Callable[[Sequence[Load], int], list[int]]
    Level = tuple[Sequence[int], Mapping[int, int]]


def prefer(table: AllocationTable, available: Sequence[str], must_include: Sequence[str], size: int) -> tuple[str, ...]:
    """The IDs that a container asking for `size` devices should get, those of `must_include` among them, in device order.

    At most `size` IDs, each once, all of them offered by kubelet in `available` or `must_include`; fewer only where no more
    can be given. IDs that this resource does not have, or whose hardware is gone, are never chosen freely, since Allocate
    would refuse them. A device that became Unhealthy after kubelet asked is chosen only where the healthy ones do not
    suffice.
    """
    size = max(size, 0)
    strangers = sorted({device_id for device_id in must_include if device_id not in table.positions})[:size]
    held = sorted({table.positions[device_id] for device_id in must_include if device_id in table.positions})
    held = held[: size - len(strangers)]
    wanted = size - len(strangers) - len(held)
    free = _usable(table, available, held, wanted)
    if not 0 < wanted < len(free):
        chosen = free[:wanted]
    elif table.resource.policy is PreferencePolicy.ALIGNED:
        chosen = _align(table, free, held, wanted)
    elif table.resource.policy is PreferencePolicy.DISTINCT:
        chosen = _keep_apart(table, free, held, wanted)
    else:
        share = pack if table.resource.policy is PreferencePolicy.PACKED else distribute
        chosen = _share_out(free, wanted, share, _levels(table))
    return (*strangers, *(table.entries[position].id for position in sorted(held + chosen)))


def _usable(table: AllocationTable, available: Sequence[str], held: list[int], wanted: int) -> list[int]:
    """The positions of what may be chosen, ascending: the healthy ones, or if they are too few all that are there.

    Where Allocate refuses shared devices to whoever gets more than one, those are left out if the others suffice.
    """
    offered = sorted({table.positions[device_id] for device_id in available if device_id in table.positions}.difference(held))
    usable = [position for position in offered if table.healthy[position]]
    if len(usable) < wanted:
        usable = [position for position in offered if table.entries[position].served.present]
    if table.resource.fail_requests_greater_than_one and wanted + len(held) > 1:
        whole = [position for position in usable if not table.entries[position].served.device.is_shared]
        usable = whole if len(whole) >= wanted else usable
    return usable


def _align(table: AllocationTable, free: list[int], held: list[int], wanted: int) -> list[int]:
    """Whole GPUs that belong together and with those already held."""
    group = choose_aligned(table.scores, sorted(free + held), frozenset(held), wanted + len(held))
    return [position for position in group if position not in held]


def _levels(table: AllocationTable) -> tuple[Level, ...]:
    """What devices are grouped by, outermost first: the physical GPU, then the MIG device on it."""
    return (table.gpu_of, table.healthy_on_gpu), (table.hardware_of, table.healthy_on_hardware)


def _share_out(free: list[int], wanted: int, share: Share, levels: Sequence[Level]) -> list[int]:
    """So many devices of each GPU, of these so many of each MIG device, and there the first ones."""
    if wanted >= len(free) or not levels:
        return free[:wanted]
    (group_of, healthy), *deeper = levels
    groups = _group(free, group_of)
    shares = share([_load(healthy[number], members) for number, members in groups.items()], wanted)
    return [
        position
        for members, count in zip(groups.values(), shares, strict=True)
        for position in _share_out(members, count, share, deeper)
    ]


def _keep_apart(table: AllocationTable, free: list[int], held: list[int], wanted: int) -> list[int]:
    """One device per physical GPU; where GPUs do not suffice the rest is spread, and Allocate refuses it with the reason."""
    used = {table.gpu_of[position] for position in held}
    by_gpu, by_hardware = _levels(table)
    groups = {gpu: members for gpu, members in _group(free, table.gpu_of).items() if gpu not in used}
    loads = [Load(_load(table.healthy_on_gpu[gpu], members).allocated, 1) for gpu, members in groups.items()]
    chosen = [
        position
        for members, count in zip(groups.values(), distribute(loads, wanted), strict=True)
        for position in _share_out(members, count, distribute, [by_hardware])
    ]
    rest = sorted(set(free).difference(chosen))
    return chosen + _share_out(rest, wanted - len(chosen), distribute, [by_gpu, by_hardware])


def _group(positions: list[int], group_of: Sequence[int]) -> dict[int, list[int]]:
    groups: dict[int, list[int]] = {}
    for position in positions:
        groups.setdefault(group_of[position], []).append(position)
    return groups


def _load(healthy: int, free: list[int]) -> Load:
    """A group's load: devices that kubelet may hand out and does not offer are allocated.

    Unhealthy devices are not offered either, so they count neither as allocated nor as free: a broken device is no sign of use.
    """
    return Load(allocated=max(healthy - len(free), 0), free=len(free))
