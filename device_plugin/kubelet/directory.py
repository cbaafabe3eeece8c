"""The directory that all device plugins of a node share: one process of ours in it, and an eye on the others' sockets."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
import stat
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NoReturn

from device_plugin.errors import SocketTaken, SocketUnusable
from device_plugin.kubelet.sockets import PREFIX, denied, is_served
from device_plugin.records import ordered_record

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

# A plain file: kubelet's start removes sockets only.
HOLDER_FILE = f"{PREFIX.rstrip('-')}.holder"
LOCK_POLL_SECONDS = 0.5
KEEP_POLL_SECONDS = 1.0
_LOCKED = (errno.EWOULDBLOCK, errno.EACCES)
_FULL = (errno.ENOSPC, errno.EDQUOT)


@ordered_record
class ForeignSocket:
    """A living socket of another device plugin that, by its name, serves a resource of ours."""

    resource: str
    path: str


class SocketDirectory:
    """Holds the lock of one socket directory from `acquire` to `release`.

    Two processes on one directory would take each other's sockets away (grpc/grpc#17122). The lock is on the directory itself, so
    it works across containers and goes with the process, however that ends. `holder` is what a process that waits is told of us.
    """

    def __init__(self, path: Path, *, logger: FilteringBoundLogger, holder: str | None = None) -> None:
        self.path = path
        self._holder = holder or f"pid {os.getpid()} on {socket.gethostname()}"
        self._logger = logger
        self._descriptor: int | None = None
        self._had_links = False  # not every file system counts them

    async def acquire(self) -> None:
        """Wait for the lock, naming its holder in the log, then clear away dead sockets that an earlier process of ours left.

        Raises `SocketUnusable` if the directory is missing or closed to us.
        """
        while self._descriptor is None:
            with ExitStack() as undo:
                descriptor = self._open()
                undo.callback(os.close, descriptor)
                if await self._lock(descriptor):
                    self._take(descriptor)
                    undo.pop_all()

    async def keep(self) -> NoReturn:
        """Hold the lock of whatever directory has the path, for ever.

        Whoever removes kubelet's directory removes the lock with it: the one that kubelet makes in its place is free for any
        process. Raises SocketTaken if another has taken it, SocketUnusable if we shall never see it.
        """
        while True:
            await asyncio.sleep(KEEP_POLL_SECONDS)
            self.look()

    def look(self) -> None:
        """One look at what has the path now; raises as `keep` does."""
        held = self._descriptor
        if held is None:
            return
        if not self._is_here(held):
            with suppress(SocketUnusable):  # not there for the moment: kubelet makes it at its start
                self._take_anew(held)
        elif self._had_links and not os.fstat(held).st_nlink:
            raise SocketUnusable(
                f'the directory "{self.path}" was removed on the host while it was mounted here, and one made in its place '
                "can be seen only by a container started afresh"
            )

    def release(self) -> None:
        """Give the lock back. Harmless where it is not held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):  # the lock is what counts
                if self._is_here(descriptor):
                    (self.path / HOLDER_FILE).unlink(missing_ok=True)
            os.close(descriptor)

    def foreign_sockets(self, resources: Iterable[str]) -> tuple[ForeignSocket, ...]:
        """Living sockets that by their names belong to another plugin's server of one of these resources, in order.

        The last registration of a name wins, so two plugins overwrite each other's lists (kubernetes/kubernetes#52190).
        """
        found = []
        for resource in resources:
            for name in _foreign_names(resource):
                path = self.path / name
                if _is_socket(path) and is_served(path):
                    found.append(ForeignSocket(resource, str(path)))
        return tuple(sorted(found))

    def _open(self) -> int:
        try:
            return os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise SocketUnusable(
                f'there is no directory "{self.path}" for the sockets of device plugins. Kubelet makes it at its start, always as '
                "/var/lib/kubelet/device-plugins on the host, whatever its --root-dir is: mount that, or say with --kubelet-socket "
                "where kubelet.sock is"
            ) from error
        except NotADirectoryError as error:
            raise SocketUnusable(f'"{self.path}" should be the directory of device-plugin sockets, but is no directory') from error
        except PermissionError as error:
            raise SocketUnusable(denied("open the directory", self.path)) from error

    def _take(self, descriptor: int) -> None:
        self._write_holder()
        self._clear_stale()
        self._descriptor, self._had_links = descriptor, os.fstat(descriptor).st_nlink > 0
        self._logger.info("directory.acquired", directory=str(self.path))

    def _take_anew(self, held: int) -> None:
        with ExitStack() as undo:
            descriptor = self._open()
            undo.callback(os.close, descriptor)
            if not _try_lock(descriptor):
                raise SocketTaken(
                    f'the directory "{self.path}" was removed, and another process has the one made in its place: '
                    + self._read_holder()
                )
            self._take(descriptor)
            undo.pop_all()
        os.close(held)

    def _is_here(self, descriptor: int) -> bool:
        """Whether the path leads to the directory of that descriptor."""
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except OSError:
            return False

    async def _lock(self, descriptor: int) -> bool:
        """Wait for the lock. False if another directory was made in the place of this one meanwhile."""
        told = None
        while not _try_lock(descriptor):
            if not self._is_here(descriptor):
                return False
            if (holder := self._read_holder()) != told:
                self._logger.warning("directory.awaited", directory=str(self.path), holder=holder)
                told = holder
            await asyncio.sleep(LOCK_POLL_SECONDS)
        return self._is_here(descriptor)

    def _read_holder(self) -> str:
        try:
            return (self.path / HOLDER_FILE).read_text(encoding="utf-8").strip() or "unknown"
        except OSError:
            return "unknown"

    def _write_holder(self) -> None:
        try:
            (self.path / HOLDER_FILE).write_text(f"{self._holder}\n", encoding="utf-8")
        except PermissionError as error:
            raise SocketUnusable(denied("write in the directory", self.path)) from error
        except OSError as error:
            if error.errno not in _FULL:
                raise SocketUnusable(f'could not write in the directory "{self.path}": {error.strerror}') from error
            # A socket takes no room; who holds the lock is only for those who wait to read.
            self._logger.warning("directory.full", directory=str(self.path), reason=error.strerror)

    def _clear_stale(self) -> None:
        for path in sorted(self.path.iterdir()):
            if path.name.lstrip(".").startswith(PREFIX) and _is_socket(path) and not is_served(path):
                try:
                    path.unlink(missing_ok=True)
                except OSError as error:
                    self._logger.warning("socket.not_cleared", socket=str(path), reason=error.strerror)
                else:
                    self._logger.info("socket.cleared", socket=str(path))


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in _LOCKED:
            return False
        raise SocketUnusable(f"could not lock the socket directory: {error.strerror}") from error
    return True


def _is_socket(path: Path) -> bool:
    try:
        return stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return False


def _foreign_names(resource: str) -> tuple[str, ...]:
    """What other plugins call the socket of that resource: NVIDIA's `nvidia-gpu.sock`, others' `nvidia.com-gpu.sock`."""
    domain, _, name = resource.rpartition("/")
    return (f"nvidia-{name}.sock", f"{domain}-{name}.sock", f"{domain}_{name}.sock")
