"""Shares: how many devices each group gives to a request, by policy. A group is a physical GPU, or one MIG device on it.

The rule is a greedy one: pick a device from the group with the fewest (distributed) or most (packed) allocated devices,
count it as allocated, repeat; on a tie take the group picked least often, then the one that stands first. Only the numbers
matter, so they are worked out directly: a request for thousands of replicas costs no more than one for two.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence


@record
class Load:
    """One group: how many of its devices are allocated, and how many it can give."""

    allocated: int
    free: int


def pack(loads: Sequence[Load], wanted: int) -> list[int]:
    """Fill groups one after the other, the most allocated first.

    A group picked once has more allocated than its equals, so it stays the choice until it has nothing left.
    """
    shares = [0] * len(loads)
    for group in sorted(range(len(loads)), key=lambda group: (-loads[group].allocated, group)):
        shares[group] = min(loads[group].free, wanted)
        wanted -= shares[group]
    return shares


def distribute(loads: Sequence[Load], wanted: int) -> list[int]:
    """Raise the least allocated groups to one level, as water finds it; what is left over goes one each to groups at that level."""

    def filled_to(level: int) -> list[int]:
        return [min(load.free, max(0, level - load.allocated)) for load in loads]

    wanted = min(wanted, sum(load.free for load in loads))
    if wanted <= 0:
        return [0] * len(loads)
    top = max(load.allocated + load.free for load in loads)
    level = bisect_right(range(top + 1), wanted, key=lambda level: sum(filled_to(level))) - 1
    shares = filled_to(level)
    open_groups = [g for g, load in enumerate(loads) if load.allocated <= level and shares[g] < load.free]
    open_groups.sort(key=lambda group: (shares[group], group))
    for group in open_groups[: wanted - sum(shares)]:
        shares[group] += 1
    return shares
