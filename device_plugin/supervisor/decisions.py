"""When something does not fit: which problems of an Offer forbid serving it, at a start and at a reload. Pure.

After a change of the hardware none does: the Offer is then the best that can be served, and serving it is better than not to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.problems import ProblemKind

if TYPE_CHECKING:
    from device_plugin.problems import Problem
    from device_plugin.sharing.offer import Offer

# The operator said two things that cannot both be, or asked for more than kubelet can be told: only an edit helps.
_NEEDS_EDIT = (ProblemKind.CONTRADICTION, ProblemKind.TOO_LARGE)
# The node is not as the config says; both can change without us.
_NEEDS_NODE = (ProblemKind.MIG_SINGLE, ProblemKind.PLATFORM)


def forbids_start(offer: Offer) -> tuple[Problem, ...]:
    """What makes the process end at its start, as a broken file does."""
    return offer.errors(*_NEEDS_EDIT)


def delays_start(offer: Offer) -> tuple[Problem, ...]:
    """What the process waits for at its start, not ready."""
    return offer.errors(*_NEEDS_NODE)


def forbids_reload(candidate: Offer, current: Offer | None) -> tuple[Problem, ...]:
    """What makes an edit be refused and the last good config go on.

    An error of a kind that the config in force has on this node as well is not the edit's fault: refusing would keep out the very
    edit that makes it better.
    """
    standing = {problem.kind for problem in current.errors()} if current else set()
    return tuple(problem for problem in candidate.errors(*_NEEDS_EDIT, *_NEEDS_NODE) if problem.kind not in standing)
