"""What the stand-in kubelet has seen and done, with the times."""

from __future__ import annotations

import asyncio
from collections import deque
from enum import StrEnum
from typing import TYPE_CHECKING

from device_plugin.kubelet.changes import Changes
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Callable

REMEMBERED = 20_000  # a soak of many hours must not grow


class Happening(StrEnum):
    """What kind of thing happened."""

    STARTED = "started"  # accepts from now on
    STOPPED = "stopped"
    REGISTERED = "registered"
    REFUSED = "refused"
    LIST = "list"
    STREAM_ENDED = "stream-ended"
    PREFERRED = "preferred"
    ALLOCATED = "allocated"
    ADMITTED = "admitted"
    REJECTED = "rejected"
    CONTAINER_STARTED = "container-started"
    START_REFUSED = "start-refused"
    CRASHED = "crashed"


@record
class Entry:
    """One thing that happened. `time` is the event loop's, in seconds; `healthy` and `devices` are set for a list."""

    time: float
    happening: Happening
    resource: str = ""
    detail: str = ""
    healthy: frozenset[str] = frozenset()
    devices: frozenset[str] = frozenset()


class Record:
    """Entries in order, the oldest dropped. `changes` is notified at each."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=REMEMBERED)
        self.changes = Changes()

    def add(
        self,
        happening: Happening,
        resource: str = "",
        detail: str = "",
        *,
        healthy: frozenset[str] = frozenset(),
        devices: frozenset[str] = frozenset(),
    ) -> None:
        now = asyncio.get_running_loop().time()
        self.entries.append(Entry(now, happening, resource, detail, healthy, devices))
        self.changes.notify()

    def of(self, happening: Happening, resource: str | None = None) -> list[Entry]:
        """The entries of one kind, of one resource if it is named."""
        return [entry for entry in self.entries if entry.happening is happening and resource in (None, entry.resource)]

    async def wait_for(self, condition: Callable[[], bool], timeout_seconds: float = 30.0) -> None:
        """Wait until the condition holds, looking at every entry. Raises `TimeoutError`."""
        async with asyncio.timeout(timeout_seconds):
            while not condition():
                await self.changes.next()
