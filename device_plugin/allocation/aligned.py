"""Aligned choice: which whole GPUs belong together, and leave together what is left over.

The objective is that of NVIDIA's plugin. Split the free GPUs into groups of the size asked for; if they do not come out
even, one group is short. The best split is the one whose groups have the highest sum of pair scores over all groups; a
split counts only if one of its full groups has all GPUs that must be included. The answer is the best full group of the
best split. So a request does not take a GPU whose partner the next request will miss. Of equals the first in the order of
enumeration wins: the first group holds the first GPU, groups and their members ascend, the missing places of the short
group stand after all GPUs.

While there are few splits (always up to 8 GPUs) the answer is exact. Beyond that the number explodes (2,027,025 for pairs
of 16), and a local search with a fixed amount of work takes over.
"""

from __future__ import annotations

from heapq import merge
from itertools import combinations
from math import factorial, inf
from typing import TYPE_CHECKING

from device_plugin.allocation.local_search import split_well

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from device_plugin.allocation.links import Scores

Group = tuple[int, ...]
Split = tuple[Group, ...]

MAX_EXACT_WORK = 840
"""Splits times group size, up to which all splits are weighed. 8 GPUs have at most this: 280 splits into groups of 3."""

MAX_GPUS = 64
"""Beyond this, more than any node has, neighbours in index order are taken unweighed: the search's work grows with the square."""

_IMPOSSIBLE: tuple[float, Split] = (-inf, ())  # no way to split this remainder: what is required would land in the short group


def choose_aligned(scores: Scores, available: Sequence[int], required: frozenset[int], size: int) -> Group:
    """The best `size` of `available` with all of `required`.

    `available` are ascending positions in `scores`; `required` is a part of it, and 1 <= size <= len(available),
    len(required) <= size.
    """
    if size == len(available):
        return tuple(available)
    if size == 1:  # every split is the same: the first will do
        return (min(required, default=available[0]),)
    if len(available) > MAX_GPUS:
        return tuple(sorted([*required, *(gpu for gpu in available if gpu not in required)][:size]))
    is_small = count_splits(len(available), size) * size <= MAX_EXACT_WORK
    split: Sequence[Group] = (_best_split if is_small else split_well)(scores, available, required, size)
    full = [group for group in split if len(group) == size and required.issubset(group)]
    return max(full, key=lambda group: score_group(scores, group))


def count_splits(gpus: int, size: int) -> int:
    """In how many ways that many GPUs fall into groups of that size, one of them short if they do not come out even."""
    full, short = divmod(gpus, size)
    alike: int = factorial(full) * factorial(short) * factorial(size) ** full
    return factorial(gpus) // alike


def score_group(scores: Scores, group: Sequence[int]) -> int:
    """The sum over all pairs of a group."""
    return sum(sum(map(scores[first].__getitem__, group[place:])) for place, first in enumerate(group, 1))


def _best_split(scores: Scores, available: Sequence[int], required: frozenset[int], size: int) -> Split:
    """The first of the best splits in the order of enumeration.

    Scores add up, so the best way to split a remainder does not depend on how it came about; it is worked out once.
    """
    known: dict[Group, tuple[float, Split]] = {(): (0, ())}

    def best(remaining: Group) -> tuple[float, Split]:
        if remaining not in known:
            known[remaining] = max(weighed(remaining), key=lambda found: found[0], default=_IMPOSSIBLE)
        return known[remaining]

    def weighed(remaining: Group) -> Iterator[tuple[float, Split]]:
        for group in _first_groups(remaining, size):
            if required.isdisjoint(group) or (len(group) == size and required.issubset(group)):
                score, split = best(tuple(gpu for gpu in remaining if gpu not in group))
                yield score_group(scores, group) + score, (group, *split)

    return best(tuple(available))[1]


def _first_groups(remaining: Group, size: int) -> Iterator[Group]:
    """Each group that the first of `remaining` can be in, in order: full ones, and the short one if it is still to come."""
    first, rest = remaining[0], remaining[1:]
    groups: Iterator[Group] = combinations(rest, size - 1)
    short_size = len(remaining) % size
    if short_size:
        missing = remaining[-1] + 1  # stands after every GPU
        groups = merge(groups, combinations(rest, short_size - 1), key=lambda others: (*others, missing))
    return ((first, *others) for others in groups)
