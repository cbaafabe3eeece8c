"""Whether kubelet is there: its socket's identity, and whether it accepts.

After its start kubelet admits stopped containers anew within a second, and those that find no healthy device are failed for good
(kubernetes/kubernetes#118559). So the socket is polled often, a notification only makes the next look sooner, and nothing is
debounced.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from device_plugin.errors import SocketUnusable
from device_plugin.kubelet.changes import Changes
from device_plugin.kubelet.sockets import SocketIdentity, denied, is_served
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

POLL_SECONDS = 0.2
# A kubelet that has gone, or whose new socket still refuses, is most often back at once, and then every millisecond counts.
EAGER_POLL_SECONDS = 0.02
EAGER_FOR_SECONDS = 10.0


@record
class Kubelet:
    """What is known of kubelet now.

    `number` grows with each new kubelet: a socket of another device, inode or ctime that accepts, or one that accepts after having
    refused. It is 0 until the first.
    """

    identity: SocketIdentity | None = None
    is_accepting: bool = False
    number: int = 0


class Presence:
    """Watches kubelet's socket. `run` is the task.

    `changes` is notified whenever `kubelet` has changed, and at each look that finds a guarded socket lost.
    """

    def __init__(self, socket: Path, *, logger: FilteringBoundLogger) -> None:
        self.socket = socket
        self.kubelet = Kubelet()
        self._logger = logger
        self._guards: list[Callable[[], bool]] = []
        self.changes = Changes()
        self._hinted = asyncio.Event()
        self._eager_until = 0.0
        self._told: str | None = None

    async def run(self) -> NoReturn:
        """Look, for ever."""
        while True:
            self._hinted.clear()
            self.look()
            try:
                async with asyncio.timeout(self._pause_seconds()):
                    await self._hinted.wait()
            except TimeoutError:
                pass

    def hint(self) -> None:
        """Something may have happened in the directory: look now."""
        self._hinted.set()

    def guard(self, is_intact: Callable[[], bool]) -> Callable[[], None]:
        """Also look after `is_intact` (a socket of our own): waiters are woken while it is false. Returns what ends that."""
        self._guards.append(is_intact)
        return lambda: self._guards.remove(is_intact)

    def look(self, *, doubting: bool = False) -> Kubelet:
        """Look now. A kubelet that was found accepting is not asked again, unless `doubting`."""
        before = self.kubelet
        now = self._observe(doubting=doubting)
        if now.is_accepting and (not before.is_accepting or now.identity != before.identity):
            now = replace(now, number=before.number + 1)
        if now != before:
            self._eager_until = asyncio.get_running_loop().time() + EAGER_FOR_SECONDS
            self.hint()  # a pause under way was reckoned before this change
        self.kubelet = now
        if now != before or not all(is_intact() for is_intact in self._guards):
            self.changes.notify()
        return now

    async def wait_accepting(self) -> Kubelet:
        """Wait until kubelet accepts connections."""
        while not self.kubelet.is_accepting:
            await self.changes.next()
        return self.kubelet

    async def wait_other(self, number: int) -> Kubelet:
        """Wait until there is another kubelet than that one."""
        while self.kubelet.number == number:
            await self.changes.next()
        return self.kubelet

    def _observe(self, *, doubting: bool) -> Kubelet:
        before = self.kubelet
        try:
            identity = SocketIdentity.of(self.socket)
            if identity is None:
                self._tell("kubelet.awaited", "there is no such socket")
                return Kubelet(None, is_accepting=False, number=before.number)
            is_known = before.is_accepting and identity == before.identity
            is_accepting = (is_known and not doubting) or is_served(self.socket)
        except PermissionError:
            self._tell("kubelet.denied", denied("look at kubelet's socket", self.socket))
            return Kubelet(None, is_accepting=False, number=before.number)
        except (SocketUnusable, OSError) as problem:
            self._tell("kubelet.denied", str(problem))
            return Kubelet(None, is_accepting=False, number=before.number)
        if is_accepting:
            self._tell("kubelet.found", None)
        else:
            self._tell("kubelet.awaited", "the socket is there, but nobody listens on it")
        return Kubelet(identity, is_accepting, before.number)

    def _tell(self, event: str, reason: str | None) -> None:
        """Log a change of what is seen, once."""
        state = f"{event} {reason}"
        if state == self._told:
            return
        self._told = state
        if reason is None:
            self._logger.info(event, socket=str(self.socket))
        else:
            self._logger.warning(event, socket=str(self.socket), reason=reason)

    def _pause_seconds(self) -> float:
        is_eager = not self.kubelet.is_accepting and asyncio.get_running_loop().time() < self._eager_until
        return EAGER_POLL_SECONDS if is_eager else POLL_SECONDS
