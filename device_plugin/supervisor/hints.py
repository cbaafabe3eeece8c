"""Notifications of changed files, brought to the loop. They only make the next poll come sooner; nothing waits for one."""

from __future__ import annotations

import asyncio
import contextlib
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from device_plugin.config.notifier import Notifier


class Hints:
    """The directories that are watched."""

    def __init__(self) -> None:
        self._notifiers: list[Notifier] = []

    @property
    def is_watching(self) -> bool:
        """Whether any directory is watched."""
        return bool(self._notifiers)

    def watch(self, directory: str, hint: Callable[[], None]) -> None:
        """Call `hint` on the running loop whenever something in the directory changes, from now on until `stop`.

        Nothing at the start needs a hint, so what makes them is imported when the first one is asked for.
        """
        from device_plugin.config.notifier import Notifier  # noqa: PLC0415 - see above

        notifier = Notifier(directory)
        notifier.start(partial(_hand_over, asyncio.get_running_loop(), hint))
        self._notifiers.append(notifier)

    def revive(self) -> None:
        """Start again what has ended: a watch goes with its directory, and nobody tells."""
        for notifier in self._notifiers:
            notifier.revive()

    def stop(self) -> None:
        """End all watches."""
        for notifier in self._notifiers:
            notifier.stop()


def _hand_over(loop: asyncio.AbstractEventLoop, hint: Callable[[], None]) -> None:
    """From a notifier's thread to the loop."""
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody needs the hint any more
        loop.call_soon_threadsafe(hint)
