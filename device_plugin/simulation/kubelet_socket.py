"""How the stand-in kubelet opens its sockets: it sweeps, binds, and may take its time before it listens."""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import stat
from typing import TYPE_CHECKING

from device_plugin.kubelet.changes import first_of
from device_plugin.kubelet.sockets import target

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    import grpc


def sweep(directory: Path) -> None:
    """Make the directory (0750) and delete every socket in it, plugins' sockets too; plain files and directories stay."""
    directory.mkdir(mode=0o750, parents=True, exist_ok=True)
    for path in sorted(directory.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            if stat.S_ISSOCK(path.lstat().st_mode):
                path.unlink()


class ListeningSocket:
    """kubelet.sock for one life of kubelet.

    gRPC gets a name of its own, so that it does not unlink kubelet.sock when it stops: a real kubelet leaves the file behind, and
    whoever dials it is refused.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._staging = path.with_name(f".kubelet-{secrets.token_hex(4)}.sock")
        self._bound: socket.socket | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._unpiped: set[socket.socket] = set()  # accepted, and not a stream's own yet

    async def open(self, server: grpc.aio.Server, accept_after_seconds: float = 0.0) -> None:
        """Serve `server` at the path. With a delay, the socket is bound there at once and refuses until the time is over.

        Then connections are piped to gRPC, which cannot be given a socket that is bound already: the file stays the same one.
        """
        if accept_after_seconds:
            self._bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            self._bound.bind(str(self.path))
            await asyncio.sleep(accept_after_seconds)
        server.add_insecure_port(target(self._staging))
        await server.start()
        if self._bound:
            self._bound.listen()
            self._spawn(self._accept(self._bound))
        else:
            os.link(self._staging, self.path)
            self._staging.unlink()

    async def close(self) -> None:
        """Stop listening; the file stays."""
        while self._tasks:  # a connection may come in while the first ones end
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        for connection in self._unpiped:  # of pipes that were cancelled before they began
            connection.close()
        self._unpiped.clear()
        if self._bound:
            self._bound.close()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accept(self, bound: socket.socket) -> None:
        # Not `loop.sock_accept`: cancelled while a connection comes in, it fails in the loop (seen with Python 3.11).
        loop = asyncio.get_running_loop()
        loop.add_reader(bound, self._take, bound)
        try:
            await loop.create_future()  # until cancelled
        finally:
            loop.remove_reader(bound)

    def _take(self, bound: socket.socket) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):  # the caller has gone again
            connection, _ = bound.accept()
            connection.setblocking(False)
            self._unpiped.add(connection)
            self._spawn(self._pipe(connection))

    async def _pipe(self, connection: socket.socket) -> None:
        near_in, near_out = await asyncio.open_unix_connection(sock=connection)
        self._unpiped.discard(connection)
        try:
            far_in, far_out = await asyncio.open_unix_connection(str(self._staging))
            try:
                await first_of(_copy(near_in, far_out), _copy(far_in, near_out))
            finally:
                far_out.close()
        finally:
            near_out.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
