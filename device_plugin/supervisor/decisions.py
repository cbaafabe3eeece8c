"""When something does not fit: which problems of an Offer forbid serving it, at a start and at a reload. Pure.

After a change of the hardware none does: the Offer is then the best that can be served, and serving it is better than not to.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

from device_plugin.problems import ProblemKind

if TYPE_CHECKING:
    from device_plugin.problems import Problem
    from device_plugin.sharing.offer import Offer

# The operator said two things that cannot both be, or asked for more than kubelet can be told: only an edit helps.
_NEEDS_EDIT = (ProblemKind.CONTRADICTION, ProblemKind.TOO_LARGE)
# The node is not as the config says; both can change without us.
_NEEDS_NODE = (ProblemKind.MIG_SINGLE, ProblemKind.PLATFORM)


class Fit(IntEnum):
    """How well a config fits the node; more is worse."""

    SERVABLE = 0
    AWAITED = 1  # once the node is another
    IMPOSSIBLE = 2  # whatever the node does


def fit(offer: Offer) -> Fit:
    """How well the config behind an Offer fits the node."""
    if forbids_start(offer):
        return Fit.IMPOSSIBLE
    return Fit.AWAITED if delays_start(offer) else Fit.SERVABLE


def forbids_start(offer: Offer) -> tuple[Problem, ...]:
    """What makes the process end at its start, as a broken file does."""
    return offer.errors(*_NEEDS_EDIT)


def delays_start(offer: Offer) -> tuple[Problem, ...]:
    """What the process waits for at its start, not ready."""
    return offer.errors(*_NEEDS_NODE)


def forbids_reload(candidate: Offer, current: Offer | None) -> tuple[Problem, ...]:
    """What makes an edit be refused and the last good config go on.

    An error of a kind that the config in force has on this node as well is not the edit's fault: refusing would keep out the very
    edit that makes it better. That holds for an edit when it is made. One that was refused then is compared with nothing (`current`
    is None): it comes into force once it fits, not once the config in force fits no more either.
    """
    standing = {problem.kind for problem in current.errors()} if current else set()
    return tuple(problem for problem in candidate.errors(*_NEEDS_EDIT, *_NEEDS_NODE) if problem.kind not in standing)
