"""The two hardware threads. The driver is never called on the event loop, and a call that hangs never holds up an exit.

Daemon threads of our own, not an executor: at the end `asyncio.run` and the interpreter wait for an executor's threads, and a
driver call in the kernel cannot be cancelled.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from device_plugin.errors import DriverError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from device_plugin.hardware.driver import Driver, Event, EventSource

T = TypeVar("T")
Tool = TypeVar("Tool")


@dataclass(slots=True)
class _Job(Generic[Tool, T]):
    work: Callable[[Tool], T]
    future: asyncio.Future[T]
    loop: asyncio.AbstractEventLoop

    def run(self, tool: Tool) -> None:
        try:
            result = self.work(tool)
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits; nothing may end the thread silently
            self._hand_over(self.future.set_exception, error)
        else:
            self._hand_over(self.future.set_result, result)

    def _hand_over(self, deliver: Callable[..., None], value: object) -> None:
        def on_loop() -> None:
            if not self.future.done():
                deliver(value)

        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            self.loop.call_soon_threadsafe(on_loop)


class WorkThread(Generic[Tool]):
    """A daemon thread that runs jobs with one tool (a Driver, say), one after the other."""

    def __init__(self, name: str, tool: Tool) -> None:
        self.tool = tool
        self._jobs: queue.SimpleQueue[_Job[Tool, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Tool], T]) -> asyncio.Future[T]:
        """Queue a job; the future belongs to the running loop."""
        loop = asyncio.get_running_loop()
        job = _Job(work, loop.create_future(), loop)
        self._jobs.put(job)
        return job.future

    def stop(self) -> None:
        """Let the thread end after the jobs queued. Does not wait."""
        self._jobs.put(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.run(self.tool)


class EventThread:
    """A daemon thread that waits for the driver's events in short slices.

    `deliver` gets batches of events and `changed` gets what happened to the watch itself: a dict of UUID -> reason for
    GPUs that cannot be watched ("*" for all), empty when all is well. Both are called on the loop, and no more after `stop`. Bursts
    coalesce: one call of `deliver` for all that came since the last one. What cannot be watched is tried again, with a back-off.
    """

    SLICE_SECONDS = 0.5
    FIRST_RETRY_SECONDS = 0.5
    LAST_RETRY_SECONDS = 30.0

    def __init__(
        self,
        make_driver: Callable[[], Driver],
        deliver: Callable[[Sequence[Event]], None],
        changed: Callable[[dict[str, str]], None],
    ) -> None:
        self._make_driver = make_driver
        self._deliver, self._changed = deliver, changed
        self._loop = asyncio.get_running_loop()
        self._condition = threading.Condition()
        self._target: tuple[str, ...] | None = None  # None: parked, the driver closed
        self._generation = 0
        self._parked_generation = 0
        self._stopping = False
        self._pending: list[Event] = []
        self._pending_lock = threading.Lock()
        self._driver: Driver | None = None
        self._thread = threading.Thread(target=self._run, name="driver-events", daemon=True)
        self._thread.start()

    @property
    def driver(self) -> Driver | None:
        """The driver the thread uses now, for whoever watches over its calls."""
        return self._driver

    def watch(self, gpu_uuids: Sequence[str]) -> None:
        """Watch exactly these GPUs from now on."""
        self._aim(tuple(gpu_uuids))

    async def park(self, timeout_seconds: float) -> bool:
        """Close event source and driver, so that the driver can be re-initialised. False if the thread does not get there."""
        generation = self._aim(None)
        deadline = self._loop.time() + timeout_seconds
        while self._parked_generation < generation:
            if self._loop.time() >= deadline:
                return False
            await asyncio.sleep(0.01)
        return True

    def stop(self) -> None:
        """Let the thread end. Does not wait."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()

    def _aim(self, target: tuple[str, ...] | None) -> int:
        with self._condition:
            if target != self._target:
                self._target = target
                self._generation += 1
                self._condition.notify_all()
            return self._generation

    def _run(self) -> None:
        retry_seconds, proof_seconds = self.FIRST_RETRY_SECONDS, 0.0
        while True:
            with self._condition:
                self._condition.wait_for(
                    lambda: self._stopping or self._target is not None or self._parked_generation < self._generation
                )
                if self._stopping:
                    return
                target, generation = self._target, self._generation
            if target is None:
                self._parked_generation = generation
                continue
            began = time.monotonic()
            try:
                if self._watch_until_changed(target, generation, retry_seconds, proof_seconds):
                    retry_seconds = self.FIRST_RETRY_SECONDS
                else:
                    retry_seconds = min(retry_seconds * 2, self.LAST_RETRY_SECONDS)
                proof_seconds = 0.0
            except Exception as error:  # noqa: BLE001 - the guard of this thread: whatever ends the watch is reported and tried again
                if time.monotonic() - began > self.LAST_RETRY_SECONDS:  # it worked for a while: one failure is not worth a word
                    retry_seconds, proof_seconds = self.FIRST_RETRY_SECONDS, 0.0
                    continue
                self._on_loop(self._changed, {"*": str(error) if isinstance(error, DriverError) else repr(error)})
                proof_seconds = self.SLICE_SECONDS
                self._pause(generation, retry_seconds)
                retry_seconds = min(retry_seconds * 2, self.LAST_RETRY_SECONDS)

    def _pause(self, generation: int, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(lambda: self._stopping or self._generation != generation, timeout=seconds)

    def _watch_until_changed(self, target: tuple[str, ...], generation: int, retry_seconds: float, proof_seconds: float) -> bool:
        """Watch. Returns True once something else is wanted, False when it is time to try again those that refused the watch.

        That there is a watch is said once a wait has worked, of `proof_seconds`: a source that can be made and then refuses every
        wait must not heal all GPUs at each try.
        """
        driver = self._driver = self._make_driver()
        source: EventSource | None = None
        try:
            driver.open()
            source = driver.watch(target)
            event = source.wait(proof_seconds)
            unwatched = dict(source.unwatched)
            self._on_loop(self._changed, unwatched)
            if event is not None:
                self._hand_over(event)
            began = time.monotonic()
            while not self._stopping and self._generation == generation:
                event = source.wait(self.SLICE_SECONDS)
                if event is not None:
                    self._hand_over(event)
                elif source.unwatched != unwatched:
                    unwatched = dict(source.unwatched)
                    self._on_loop(self._changed, unwatched)
                elif unwatched and time.monotonic() - began > retry_seconds:
                    return False
            return True
        finally:
            with contextlib.suppress(DriverError):
                if source is not None:
                    source.close()
            with contextlib.suppress(DriverError):
                driver.close()
            self._driver = None

    def _hand_over(self, event: Event) -> None:
        with self._pending_lock:
            self._pending.append(event)
            is_first = len(self._pending) == 1
        if is_first:
            self._on_loop(self._drain)

    def _drain(self) -> None:
        with self._pending_lock:
            batch, self._pending = self._pending, []
        self._deliver(batch)

    def _on_loop(self, function: Callable[..., None], *args: object) -> None:
        if self._stopping:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process is on its way out
            self._loop.call_soon_threadsafe(function, *args)
