"""Hints that something in a directory changed. Polling is the truth; a hint only makes the next poll come sooner."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirModifiedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer

if TYPE_CHECKING:
    from collections.abc import Callable

    from watchdog.observers.api import BaseObserver

# Reading a file must not count as a change of it: the reader would wake itself up for ever.
_CHANGES: list[type[FileSystemEvent]] = [
    DirCreatedEvent,
    DirDeletedEvent,
    DirModifiedEvent,
    DirMovedEvent,
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
]
_STOP_SECONDS = 1.0  # after that a thread stuck in the kernel, over an unmounted directory, is left behind; all are daemons


class Notifier:
    """Watches one directory, not what is below it.

    A watch can fail to start (no directory, no inotify instances left), end with its directory, or fall silent with its thread
    still alive (gorakhargosh/watchdog#276, gorakhargosh/watchdog#441). None of that raises: `is_alive` tells the first two,
    `revive` starts anew where possible, and nobody may wait for a hint.
    """

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.trouble = ""
        """Why there is no watch, for the log; empty while there is one."""
        self._callback: Callable[[], None] | None = None
        self._observer: BaseObserver | None = None
        self._identity: tuple[int, int] | None = None

    def start(self, callback: Callable[[], None]) -> bool:
        """Calls `callback` at every change, from a thread of its own, until `stop`. Returns whether there is a watch."""
        self._callback = callback
        return self.revive()

    @property
    def is_alive(self) -> bool:
        """Whether the watch stands, as far as can be seen: its threads run and the path still leads to the directory watched."""
        observer = self._observer
        return (
            observer is not None
            and observer.is_alive()
            and all(emitter.is_alive() for emitter in observer.emitters)
            and self._identity == _identity(self.directory)
        )

    def revive(self) -> bool:
        """Starts the watch again if it does not stand. Returns whether it stands now."""
        if self._callback is None or self.is_alive:
            return self._callback is not None
        self._end_watch()
        identity = _identity(self.directory)
        if identity is None:
            self.trouble = "the directory does not exist"
            return False
        observer = None
        try:
            observer = Observer()
            observer.schedule(_Handler(self._notify), str(Path(self.directory).resolve()), event_filter=_CHANGES)
            observer.start()
        except OSError as error:
            self.trouble = error.strerror or str(error)
            if observer is not None:
                _end(observer)
            return False
        self._observer, self._identity, self.trouble = observer, identity, ""
        return True

    def stop(self) -> None:
        """Ends the watch within a second. May be called at any time, more than once."""
        self._callback = None
        self._end_watch()

    def _notify(self) -> None:
        callback = self._callback  # the watch's thread may be a little behind `stop`
        if callback is not None:
            callback()

    def _end_watch(self) -> None:
        observer, self._observer = self._observer, None
        if observer is not None:
            _end(observer)


class _Handler(FileSystemEventHandler):
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def on_any_event(self, event: FileSystemEvent) -> None:
        del event  # what happened does not matter: the reader looks at everything again
        self._callback()


def _identity(directory: str) -> tuple[int, int] | None:
    try:
        status = Path(directory).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _end(observer: BaseObserver) -> None:
    """Stops the observer. It waits for its own threads without end while it stops, so that is left to a thread that may be lost."""
    ending = threading.Thread(target=observer.stop, name="notifier-end", daemon=True)
    ending.start()
    ending.join(_STOP_SECONDS)
