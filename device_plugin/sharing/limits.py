"""Kubelet's limit on a list: what of a resource fits, in index order."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace
from typing import TYPE_CHECKING

from device_plugin.problems import ProblemKind
from device_plugin.sharing.message import KUBELET_LIMIT_BYTES, replicas_bytes
from device_plugin.sharing.replicas import ENTRIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from device_plugin.sharing.replicas import Share
    from device_plugin.sharing.report import Report


def fit_shares(name: str, shares: Sequence[Share], report: Report, *, limit_bytes: int = KUBELET_LIMIT_BYTES) -> list[Share]:
    """The shares of one resource, in index order, up to the first that makes the list too large; an error says what would fit.

    A share is offered with all its replicas or left out, but for the first: where even that is too large, as many of its replicas
    as fit are better than none. Sizes are computed, so that a count of a billion costs nothing.
    """
    kept: list[Share] = []
    size = 0
    for share in shares:
        grown = size + replicas_bytes(share.device, share.replicas)
        if grown > limit_bytes:
            break
        kept.append(share)
        size = grown
    if len(kept) == len(shares):
        return kept
    if not kept:
        first = shares[0]
        most = largest_that_fits(lambda count: replicas_bytes(first.device, count), first.replicas, limit_bytes)
        kept = [replace(first, replicas=most)] if most else []
    total = sum(replicas_bytes(share.device, share.replicas) for share in shares)
    most = largest_that_fits(
        lambda count: sum(replicas_bytes(share.device, min(count, share.replicas)) for share in shares),
        max(share.replicas for share in shares),
        limit_bytes,
    )
    largest = max(shares, key=lambda share: share.replicas)
    report.error(
        ProblemKind.TOO_LARGE,
        f"the list of {name} would take {total} bytes, and kubelet takes {limit_bytes} at most: at most {most} replicas of each of "
        f"its {len(shares)} devices fit. As they are, the first {sum(share.replicas for share in kept)} of "
        f"{sum(share.replicas for share in shares)} do",
        f"{ENTRIES}[{largest.entry}].replicas" if largest.entry is not None else "",
    )
    for share in shares[len(kept) :]:
        report.withhold_device(share.device, f"the list of {name} is full")
    return kept


def largest_that_fits(size_of: Callable[[int], int], most: int, limit_bytes: int) -> int:
    """The largest count from 1 to `most` whose size is within the limit, 0 if there is none. `size_of` must not fall."""
    return bisect_right(range(1, min(most, limit_bytes) + 1), limit_bytes, key=size_of)
