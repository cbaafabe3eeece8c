"""Hardware: the asynchronous face of the driver for the reconcile loop, with a deadline on every driver call.

A call that hangs is not waited for: its thread is given up, whoever asked gets `CallHangs`, and a new thread goes on. A GPU for
which a call hangs is not asked again before that call returns, so it costs one thread and the others go on being read and watched.
The number of threads given up at one time is bounded; past it every request fails at once until one of them comes back.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

from device_plugin.errors import CallHangs, DriverError
from device_plugin.health.state import EVERY_GPU
from device_plugin.records import record
from device_plugin.supervisor.discovery import Progress, read_inventory
from device_plugin.supervisor.threads import EventThread, WorkThread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from device_plugin.hardware.driver import Call, Driver, DriverFacts, Event, Probe
    from device_plugin.hardware.model import Inventory, Platform
    from device_plugin.hardware.sysfs import Host

T = TypeVar("T")

MAX_GIVEN_UP = 16  # as many as a big node has GPUs: each of them costs one
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


@record
class GivenUp:
    """A driver whose thread was given up in a call about that GPU (UUID, index as text, or "*" for the driver as a whole)."""

    driver: Driver
    gpu: str

    @property
    def is_over(self) -> bool:
        """Whether the call has returned after all."""
        return self.driver.current_call is None


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
        self._on_events, self._on_watch_changed = on_events, on_watch_changed
        self._lock = asyncio.Lock()
        self._thread = WorkThread("driver", make_driver())
        self._facts: DriverFacts | None = None
        self._given_up: list[GivenUp] = []
        self._events = self._make_event_thread()
        self._watched: tuple[str, ...] = ()
        self._indexes: dict[str, int] = {}  # of the GPUs by UUID, as last read

    async def discover(self, *, fresh: bool) -> Inventory:
        async with self._lock:
            if fresh or self._facts is None:
                await self._reopen()
            while True:
                progress = Progress()
                try:
                    inventory = await self._run(self._reading(progress))
                except CallHangs as error:
                    if not self._blame(error, progress):
                        raise
                    await self._reopen()  # and go on without the GPU that hangs
                else:
                    self._indexes |= progress.uuids
                    return inventory

    async def probe(self, gpu_uuid: str) -> Probe:
        async with self._lock:
            if gpu_uuid in self.hanging():
                raise CallHangs("the probe", "an earlier call about this GPU has not returned yet", subject=gpu_uuid)
            if self._facts is None:
                self._facts = await self._run(_reopened)
            return await self._run(lambda driver: driver.probe(gpu_uuid))

    def watch(self, gpu_uuids: Sequence[str]) -> None:
        self._watched = tuple(gpu_uuids)
        self._aim_events()

    def hanging(self) -> dict[str, str]:
        self._replace_events_if_hanging()
        if any(given_up.is_over for given_up in self._given_up):
            self._given_up = [given_up for given_up in self._given_up if not given_up.is_over]
            self._aim_events()
        uuids = {str(index): uuid for uuid, index in self._indexes.items()}
        calls = [(uuids.get(given_up.gpu, given_up.gpu), given_up.driver.current_call) for given_up in self._given_up]
        return {gpu: f"{call.name} does not return" for gpu, call in calls if call is not None}

    def close(self) -> None:
        self._events.stop()
        self._thread.submit(_closed)
        self._thread.stop()

    def _make_event_thread(self) -> EventThread:
        return EventThread(self._make_driver, self._on_events, self._on_watch_changed)

    def _aim_events(self) -> None:
        if not self._watched:
            return
        hanging = {given_up.gpu for given_up in self._given_up}
        self._events.watch([uuid for uuid in self._watched if not hanging & {uuid, str(self._indexes.get(uuid))}])

    async def _reopen(self) -> None:
        """Re-initialise the driver. NVML counts its users: as long as one has it open it keeps its old list of devices."""
        self._facts = None
        await self._events.park(self._call_timeout_seconds())
        self._facts = await self._run(_reopened)
        self._aim_events()

    def _reading(self, progress: Progress) -> Callable[[Driver], Inventory]:
        facts, reasons = self._facts, self.hanging()
        assert facts is not None, "read before the driver was opened"
        indexes = {gpu: int(gpu) if gpu.isdecimal() else self._indexes.get(gpu) for gpu in reasons}
        skipped = {index: reasons[gpu] for gpu, index in indexes.items() if index is not None}

        def read(driver: Driver) -> Inventory:
            return read_inventory(
                driver, facts, self._host, self._platform, simulated=self._simulated, skipped=skipped, progress=progress
            )

        return read

    def _blame(self, error: CallHangs, progress: Progress) -> bool:
        """Have the thread given up last stand for the GPU that was being read; whether it was one."""
        self._indexes |= progress.uuids
        index = progress.index if progress.index is not None else self._indexes.get(error.subject or "")
        if index is None or error.subject is None:
            return False
        uuids = {index: uuid for uuid, index in self._indexes.items()}
        self._given_up[-1] = GivenUp(self._given_up[-1].driver, uuids.get(index, str(index)))
        return True

    def _replace_events_if_hanging(self) -> None:
        driver = self._events.driver
        call = driver.current_call if driver is not None else None
        slice_seconds = EventThread.SLICE_SECONDS  # what a wait for events takes in good order
        if driver is None or call is None or not self._hangs(call, slice_seconds) or len(self._given_up) >= MAX_GIVEN_UP:
            return
        self._events.stop()
        self._given_up.append(GivenUp(driver, call.subject or EVERY_GPU))
        self._events = self._make_event_thread()
        self._aim_events()

    def _hangs(self, call: Call, due_seconds: float = 0.0) -> bool:
        return time.monotonic() - call.since > self._call_timeout_seconds() + due_seconds

    async def _run(self, work: Callable[[Driver], T]) -> T:
        if len(self._given_up) >= MAX_GIVEN_UP:
            self.hanging()  # forgets those that came back
            if len(self._given_up) >= MAX_GIVEN_UP:
                raise CallHangs("the driver", f"{len(self._given_up)} calls hang; no further one is made until one of them returns")
        thread = self._thread
        future = thread.submit(work)
        try:
            while True:
                done, _ = await asyncio.wait({future}, timeout=CHECK_SECONDS)
                if done:
                    return future.result()
                call = thread.tool.current_call
                if call is not None and self._hangs(call):
                    self._give_up(thread, call)
                    raise CallHangs(call.name, f"has not returned for {self._call_timeout_seconds():.0f} s", subject=call.subject)
        finally:
            future.cancel()  # whatever may still come of it, nobody waits for it

    def _give_up(self, thread: WorkThread[Driver], call: Call) -> None:
        thread.submit(_closed)  # should the call ever return
        thread.stop()
        self._given_up.append(GivenUp(thread.tool, call.subject or EVERY_GPU))
        self._thread = WorkThread("driver", self._make_driver())
        self._facts = None  # the new thread's driver is not open yet


def _closed(driver: Driver) -> None:
    with contextlib.suppress(DriverError):  # it is beyond closing; whoever opens it next is told
        driver.close()


def _reopened(driver: Driver) -> DriverFacts:
    _closed(driver)
    return driver.open()
