"""A good split of many GPUs into groups, in bounded time: grow groups from several starts, then swap GPUs while that helps.

Used where there are too many splits to weigh them all. The amount of work depends on the number of GPUs, not on their scores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from device_plugin.allocation.links import Scores

    Weights = list[list[int]]

MAX_STARTS = 10
STARTS_AND_PAIRS = 10 * 16 * 16  # the work of 10 starts with 16 GPUs: about 2 ms; more GPUs get fewer starts
MAX_SWEEPS = 8  # of one start; 16 GPUs with random scores need 2 to 5


def split_well(scores: Scores, available: Sequence[int], required: frozenset[int], size: int) -> list[tuple[int, ...]]:
    """Groups of `size` GPUs, one of them short if they do not come out even, a full one with all of `required`.

    The same input gives the same split; of equally good ones that of the first start, which begins with the first GPU.
    """
    weights = [[scores[first][second] for second in available] for first in available]
    together = [place for place, gpu in enumerate(available) if gpu in required]
    others = [place for place, gpu in enumerate(available) if gpu not in required]
    layouts = _layouts(len(available), size, short_at=1 if together else 0)
    starts = min(MAX_STARTS, len(others), max(1, STARTS_AND_PAIRS // len(available) ** 2))
    best: list[list[int]] = []
    best_score = -1
    for start in range(starts):
        first = others[start * len(others) // starts]
        groups = _grow(weights, together, first, layouts[start % len(layouts)])
        score = _improve(weights, groups, others)
        if score > best_score:
            best, best_score = groups, score
    return [tuple(available[place] for place in sorted(group)) for group in best]


def _layouts(count: int, size: int, short_at: int) -> list[list[int]]:
    """The sizes of groups in the order in which they are grown: the short one last, or early so that it gets a choice too."""
    full, short = divmod(count, size)
    if not short:
        return [[size] * full]
    early = [size] * full
    early.insert(short_at, short)
    return [[size] * full + [short], early]


def _grow(weights: Weights, together: list[int], first: int, sizes: Sequence[int]) -> list[list[int]]:
    """Groups grown one after the other, each from one GPU by adding the one that is best joined to those already in it.

    `together` is the beginning of the first group; `first` begins the first group that is empty.
    """
    left = [place for place in range(len(weights)) if place not in together]
    left.remove(first)
    left.insert(0, first)
    groups: list[list[int]] = []
    for size in sizes:
        group = [] if groups else list(together)
        if not group:
            group.append(left.pop(0))
            left.sort()
        pull = [sum(row[member] for member in group) for row in weights]
        while len(group) < size:
            added = max(left, key=pull.__getitem__)
            left.remove(added)
            group.append(added)
            pull = [sum(pair) for pair in zip(pull, weights[added], strict=True)]
        groups.append(group)
    return groups


def _improve(weights: Weights, groups: list[list[int]], movable: list[int]) -> int:
    """Swap `movable` GPUs between `groups` (changed in place) while the sum of scores grows. Returns that sum."""
    home = [0] * len(weights)
    for number, group in enumerate(groups):
        for member in group:
            home[member] = number
    pull = [[sum(row[member] for member in group) for group in groups] for row in weights]  # of each group on each GPU
    for _ in range(MAX_SWEEPS):
        swaps = 0
        for place, one in enumerate(movable):
            other = _best_partner(weights[one], home, pull, one, movable[place + 1 :])
            if other is not None:
                _swap(weights, home, pull, one, other)
                swaps += 1
        if not swaps:
            break
    for number, group in enumerate(groups):
        group[:] = [place for place, at in enumerate(home) if at == number]
    return sum(pulls[at] for pulls, at in zip(pull, home, strict=True)) // 2


def _best_partner(row: list[int], home: list[int], pull: list[list[int]], one: int, others: list[int]) -> int | None:
    """The GPU of another group whose swap with `one` gains most, if any gains."""
    best, best_gain = None, 0
    here, pulls_on_one = home[one], pull[one]
    loss = pulls_on_one[here]
    for other in others:
        there = home[other]
        if there != here:
            pulls_on_other = pull[other]
            gain = pulls_on_one[there] + pulls_on_other[here] - loss - pulls_on_other[there] - 2 * row[other]
            if gain > best_gain:
                best, best_gain = other, gain
    return best


def _swap(weights: Weights, home: list[int], pull: list[list[int]], one: int, other: int) -> None:
    here, there = home[one], home[other]
    home[one], home[other] = there, here
    for joined, left, pulls in zip(weights[other], weights[one], pull, strict=True):
        pulls[here] += joined - left
        pulls[there] -= joined - left
