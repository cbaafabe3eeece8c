"""Unix time that never jumps: the wall clock at the start, moved on by the event loop's own clock.

Grace and calm periods are measured in it, so that neither a corrected system clock shortens them nor a test has to wait for them.
"""

from __future__ import annotations

import asyncio
import time


class SteadyClock:
    """`now()` in Unix seconds. Make it on the running loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._offset = time.time() - self._loop.time()

    def now(self) -> float:
        return self._offset + self._loop.time()
