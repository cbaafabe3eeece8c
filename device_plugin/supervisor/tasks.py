"""Named and guarded tasks: every long-lived task has an owner, and its unexpected end is logged at once and never ignored."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from device_plugin.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from device_plugin.logs import Logger


class Tasks:
    """The tasks of one owner.

    None of them is meant to end by itself. One that does, by an error or by returning, is logged (a bug with its traceback), and
    makes `wait_failed` raise, so that the process ends and is started afresh rather than living on without it.
    """

    def __init__(self, logger: Logger) -> None:
        self._logger = logger
        self._tasks: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self, name: str, coroutine: Coroutine[object, object, None]) -> asyncio.Task[None]:
        """Run `coroutine` under that name until it is cancelled."""
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._on_done)
        return task

    async def wait_failed(self) -> None:
        """Return never; raise what the first failed task raised."""
        await asyncio.shield(self._failed)

    async def end(self, task: asyncio.Task[None]) -> None:
        """End one task on purpose and wait for its end."""
        self._tasks.discard(task)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def cancel(self) -> None:
        """End all tasks and wait for their end."""
        tasks = list(self._tasks)
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if not self._failed.done():
            self._failed.cancel()

    def _on_done(self, task: asyncio.Task[None]) -> None:
        if task not in self._tasks or task.cancelled():
            return
        self._tasks.discard(task)
        error = task.exception() or RuntimeError(f"task {task.get_name()} returned though it has no end")
        if isinstance(error, PluginError):  # raised on purpose; whoever ends the process says why
            self._logger.error("task.ended", task=task.get_name(), reason=str(error))
        else:
            self._logger.error("task.failed", task=task.get_name(), exc_info=error)
        if not self._failed.done():
            self._failed.set_exception(error)
            self._failed.exception()  # retrieved here, since nobody may be waiting yet
