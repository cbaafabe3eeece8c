"""A reason to look again: any number of calls before the next look are one."""

from __future__ import annotations

import asyncio


class Wakeup:
    """An event that resets itself when it is waited for."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def set(self) -> None:
        self._event.set()

    async def wait(self, timeout_seconds: float | None = None) -> bool:
        """Wait for a call of `set` since the last wait, or for the time to pass. Returns whether there was a call."""
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._event.wait()
        except TimeoutError:
            return False
        self._event.clear()
        return True
