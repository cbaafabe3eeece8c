"""Hardware: the asynchronous face of the driver for the reconcile loop, with a deadline on every driver call.

A call that hangs is not waited for: its thread is given up, whoever asked gets `CallHangs`, and a new thread goes on. The number
of threads given up at one time is bounded; past it every request fails at once until one of them comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from device_plugin.errors import CallHangs, DriverError
from device_plugin.supervisor.discovery import read_inventory
from device_plugin.supervisor.threads import EventThread, WorkThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from device_plugin.hardware.driver import Driver, DriverFacts, Event, Probe
    from device_plugin.hardware.model import Inventory, Platform
    from device_plugin.hardware.sysfs import Host

T = TypeVar("T")

MAX_GIVEN_UP = 4
CHECK_SECONDS = 0.1


class Hardware(Protocol):
    """What the reconcile loop asks of the node's hardware. Errors are `DriverError` and its kin."""

    async def discover(self, *, fresh: bool) -> Inventory:
        """The Inventory now. `fresh` re-initialises the driver first, which alone shows GPUs added or removed."""
        ...

    async def probe(self, gpu_uuid: str) -> Probe:
        """That GPU's condition now."""
        ...

    def watch(self, gpu_uuids: Sequence[str]) -> None:
        """Watch these GPUs' events from now on."""
        ...

    def hanging(self) -> dict[str, str]:
        """GPUs (UUID or "*") for which a driver call hangs now, with what hangs."""
        ...

    def close(self) -> None: ...


class DriverThreads:
    """Hardware over two threads of our own and a Driver for each."""

    def __init__(
        self,
        make_driver: Callable[[], Driver],
        host: Host,
        platform: Callable[[Sequence[str]], Platform],
        *,
        call_timeout_seconds: Callable[[], float],
        on_events: Callable[[Sequence[Event]], None],
        on_watch_changed: Callable[[dict[str, str]], None],
        simulated: bool = False,
    ) -> None:
        self._make_driver, self._host, self._platform, self._simulated = make_driver, host, platform, simulated
        self._call_timeout_seconds = call_timeout_seconds
        self._lock = asyncio.Lock()
        self._thread = WorkThread("driver", make_driver())
        self._facts: DriverFacts | None = None
        self._given_up: list[WorkThread[Driver]] = []
        self._events = EventThread(make_driver, on_events, on_watch_changed)
        self._watched: tuple[str, ...] = ()

    async def discover(self, *, fresh: bool) -> Inventory:
        async with self._lock:
            if fresh or self._facts is None:
                await self._events.park(self._call_timeout_seconds())
                self._facts = await self._run(_reopen)
                if self._watched:
                    self._events.watch(self._watched)
            facts = self._facts

            def read(driver: Driver) -> Inventory:
                return read_inventory(driver, facts, self._host, self._platform, simulated=self._simulated)

            return await self._run(read)

    async def probe(self, gpu_uuid: str) -> Probe:
        async with self._lock:
            if self._facts is None:
                self._facts = await self._run(_reopen)
            return await self._run(lambda driver: driver.probe(gpu_uuid))

    def watch(self, gpu_uuids: Sequence[str]) -> None:
        self._watched = tuple(gpu_uuids)
        self._events.watch(self._watched)

    def hanging(self) -> dict[str, str]:
        now = time.monotonic()
        found: dict[str, str] = {}
        for driver in [thread.tool for thread in self._given_up] + ([self._events.driver] if self._events.driver else []):
            call = driver.current_call
            if call is not None and now - call.since > self._call_timeout_seconds():
                found[call.subject or "*"] = f"{call.name} has not returned for {now - call.since:.0f} s"
        self._given_up = [thread for thread in self._given_up if thread.tool.current_call is not None]
        return found

    def close(self) -> None:
        self._events.stop()
        self._thread.stop()

    async def _run(self, work: Callable[[Driver], T]) -> T:
        if len(self._given_up) >= MAX_GIVEN_UP:
            self.hanging()  # forgets those that came back
            if len(self._given_up) >= MAX_GIVEN_UP:
                raise CallHangs("the driver", f"{len(self._given_up)} calls hang; no further one is made until one of them returns")
        thread = self._thread
        future = thread.submit(work)
        while True:
            done, _ = await asyncio.wait({future}, timeout=CHECK_SECONDS)
            if done:
                return future.result()
            call = thread.tool.current_call
            if call is not None and time.monotonic() - call.since > self._call_timeout_seconds():
                self._give_up(thread)
                raise CallHangs(call.name, f"has not returned for {self._call_timeout_seconds():.0f} s", subject=call.subject)

    def _give_up(self, thread: WorkThread[Driver]) -> None:
        thread.stop()  # it ends by itself should the call ever return
        self._given_up.append(thread)
        self._thread = WorkThread("driver", self._make_driver())
        self._facts = None  # the new thread's driver is not open yet


def _reopen(driver: Driver) -> DriverFacts:
    with contextlib.suppress(DriverError):  # it was not open, or is beyond closing; opening will tell
        driver.close()
    return driver.open()
