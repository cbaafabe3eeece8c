"""How long to wait before trying again."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_RANDOM = random.SystemRandom()


@dataclass(slots=True)
class Backoff:
    """Exponential delays with jitter: each is drawn between half and the whole of a bound that doubles up to a limit.

    The jitter keeps the resources of a node, and the nodes of a cluster, from knocking in step.
    """

    first_seconds: float = 0.1
    limit_seconds: float = 180.0
    random: Callable[[], float] = _RANDOM.random
    _bound_seconds: float = field(init=False)

    def __post_init__(self) -> None:
        self._bound_seconds = self.first_seconds

    def next_delay(self) -> float:
        """The next delay in seconds."""
        bound = self._bound_seconds
        self._bound_seconds = min(bound * 2, self.limit_seconds)
        return bound * (0.5 + self.random() / 2)

    def reset(self) -> None:
        """Begin with the shortest delay again."""
        self._bound_seconds = self.first_seconds
