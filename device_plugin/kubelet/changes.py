"""Waiting for the next change of a value that others replace."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine


class Changes:
    """Wakes everyone who waits, at every `notify`.

    The waiter looks at the value, and if it does not suit, awaits `next()`. What counts is the moment of that call, not of the
    await: no change between a look and the wait is missed, also where the wait begins in another task.
    """

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Let everyone who waits look again."""
        event, self._event = self._event, asyncio.Event()
        event.set()

    def next(self) -> Coroutine[None, None, object]:
        """What ends at the first `notify` after this call."""
        return self._event.wait()


async def first_of(*waits: Awaitable[object]) -> None:
    """Wait until one of these is done, and cancel the others. Results and errors stay with the awaitables."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
