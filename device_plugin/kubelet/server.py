"""One resource's gRPC server on its own socket: start, show another snapshot, bind anew, stop."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import grpc

from device_plugin.allocation.table import build_table
from device_plugin.errors import SocketUnusable
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import add_DevicePluginServicer_to_server
from device_plugin.kubelet.listing import MAX_LIST_BYTES, Feed, list_from_resource
from device_plugin.kubelet.servicer import Answers, Servicer, options_from_snapshot
from device_plugin.kubelet.sockets import OwnSocket, denied, socket_name, target

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2 import DevicePluginOptions
    from device_plugin.kubelet.changes import Changes
    from device_plugin.kubelet.snapshot import Snapshot

STREAM_END_SECONDS = 1.0  # a stream ends at once unless its client has stopped reading
SERVER_END_SECONDS = 0.5  # a server stops in milliseconds
BIND_ATTEMPTS = 3  # kubelet's start may sweep the directory between our binding and naming the socket
_SERVER_OPTIONS = (
    # A preference request names every free device twice; with 4 MiB of list it may pass gRPC's default of 4 MiB.
    ("grpc.max_receive_message_length", 4 * MAX_LIST_BYTES),
)


class ResourceServer:
    """Serves one resource on one unix socket in `directory`.

    `answered` is called with the IDs of each Allocate and GetPreferredAllocation answer, before it is sent: kubelet looks them up
    in its list afterwards, and crashes where it does not find them. All methods must be called on one event loop.
    """

    def __init__(
        self, name: str, directory: Path, *, answered: Callable[[Sequence[str]], None], logger: FilteringBoundLogger
    ) -> None:
        self.name = name
        self._path = directory / socket_name(name, directory)
        self._answered = answered
        self._logger = logger.bind(resource=name)
        self._feed = Feed()
        self._servicer: Servicer | None = None
        self._server: grpc.aio.Server | None = None
        self._socket: OwnSocket | None = None

    @property
    def endpoint(self) -> str:
        """The socket's file name, which is what kubelet is given."""
        return self._path.name

    @property
    def options(self) -> DevicePluginOptions:
        """The options in force, the same that GetDevicePluginOptions answers."""
        return options_from_snapshot(self._running().answers.snapshot)

    @property
    def pending_calls(self) -> int:
        """Calls other than ListAndWatch whose answer has not left yet."""
        return self._servicer.pending if self._servicer else 0

    @property
    def open_streams(self) -> int:
        return self._feed.open_streams

    @property
    def is_listed(self) -> bool:
        """Whether the stream of the latest registration is open and has been given the current list."""
        return self._feed.is_followed

    @property
    def has_stream(self) -> bool:
        """Whether the stream of the latest registration is open, up to date or not."""
        return self._feed.is_registered

    def owns_socket(self) -> bool:
        """Whether the path that kubelet dials leads to this server."""
        return self._socket is not None and self._socket.is_ours()

    async def start(self, snapshot: Snapshot) -> None:
        """Listen, and answer from `snapshot`. Raises `SocketTaken`, or `SocketUnusable` where the socket cannot be made."""
        self._servicer = Servicer(self._feed, self._answers(snapshot), self._answered, self._logger)
        self._publish(snapshot)
        await self._listen()

    def update(self, snapshot: Snapshot) -> None:
        """Answer from `snapshot` from now on, and send its list if it differs from the last one."""
        self._running().answers = self._answers(snapshot)
        self._publish(snapshot)
        self._feed.changes.notify()

    async def rebind(self) -> None:
        """Make the socket anew, after it was taken away. Ends the streams; raises as `start` does."""
        await self.end_streams()
        await self._close()
        await self._listen()

    async def stop(self, grace_seconds: float) -> None:
        """Let pending calls finish, end the streams, then the server; the socket goes if it is ours.

        Takes at most about `grace_seconds`, and a second more for a client that does not read. A stream is given the current list
        before it ends.
        """
        try:
            await self.settle(grace_seconds)
            await self.end_streams()
        finally:
            await self._close()

    async def settle(self, timeout_seconds: float) -> bool:
        """Wait until no call is pending. False if one still is after the time.

        A stream that ends while kubelet waits for Allocate fails that pod for good.
        """
        if self._servicer is None:
            return True
        try:
            async with asyncio.timeout(timeout_seconds):
                await self._servicer.idle.wait()
        except TimeoutError:
            self._logger.warning("calls.outlasted_grace", pending=self.pending_calls, grace_seconds=timeout_seconds)
            return False
        return True

    async def end_streams(self) -> None:
        """End every open stream. What opens afterwards belongs to the next registration."""
        if not await self._feed.end_streams(STREAM_END_SECONDS):
            self._logger.warning("stream.outlasted_end", streams=self._feed.open_streams)

    async def wait_listed(self, timeout_seconds: float) -> bool:
        """Wait until the latest registration's stream has the current list. False if it has not within the time, or has ended."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while not self.is_listed:
                    if self._feed.lost_stream:
                        return False
                    await self._feed.changes.next()
        except TimeoutError:
            return False
        return True

    @property
    def changes(self) -> Changes:
        """Notified when something about the streams, the list or the options may have changed."""
        return self._feed.changes

    def _running(self) -> Servicer:
        if self._servicer is None:
            raise RuntimeError(f"the server of {self.name} has not been started")
        return self._servicer

    def _answers(self, snapshot: Snapshot) -> Answers:
        return Answers(snapshot, build_table(snapshot.resource, snapshot.links, snapshot.injection))

    def _publish(self, snapshot: Snapshot) -> None:
        message, left_out = list_from_resource(snapshot.resource)
        if left_out:
            self._logger.error("list.cut", devices=len(message.devices), left_out=left_out, limit_bytes=MAX_LIST_BYTES)
        self._feed.publish(message)

    async def _listen(self) -> None:
        for attempt in range(1, BIND_ATTEMPTS + 1):
            try:
                self._path.parent.stat()  # gRPC would find out too, and write a line of its own each time
                await self._bind()
            except FileNotFoundError as error:
                if not self._path.parent.is_dir() or attempt == BIND_ATTEMPTS:
                    raise SocketUnusable(f'could not make the socket "{self._path}": its directory is not there') from error
            except PermissionError as error:
                raise SocketUnusable(denied("make the socket", self._path)) from error
            except OSError as error:
                raise SocketUnusable(f'could not make the socket "{self._path}": {error.strerror}') from error
            else:
                return

    async def _bind(self) -> None:
        own = OwnSocket(self._path)
        server = grpc.aio.server(options=_SERVER_OPTIONS)
        add_DevicePluginServicer_to_server(self._running(), server)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(lambda: self._end(server))
            try:
                server.add_insecure_port(target(own.staging))
            except RuntimeError as error:
                raise own.why_unbound(error) from error
            await _whole(asyncio.ensure_future(server.start()))
            own.publish()
            undo.pop_all()
        self._server, self._socket = server, own

    async def _close(self) -> None:
        own, self._socket = self._socket, None
        server, self._server = self._server, None
        if own is not None:
            own.withdraw()
        if server is not None:
            # No stream is left to wait for, and pending calls have had their time.
            await self._end(server)

    async def _end(self, server: grpc.aio.Server) -> None:
        """Stop gRPC's server. What it still has to write to a client whose process stands still is not waited for.

        Such a server ends when that process goes on or ends. Nothing leads to it any more: its socket has lost its name.
        """
        stopping = asyncio.ensure_future(server.stop(None))
        try:
            if not await _whole(stopping, SERVER_END_SECONDS):
                self._logger.warning("server.outlasted_end", seconds=SERVER_END_SECONDS)
        finally:
            if not stopping.done():
                _ENDING.add(stopping)
                stopping.add_done_callback(_ENDING.discard)


_ENDING: set[asyncio.Future[None]] = set()  # an event loop alone would let them be collected


async def _whole(step: asyncio.Future[None], timeout_seconds: float | None = None) -> bool:
    """Take the step to its end though we are cancelled meanwhile, as when another kubelet comes. False if the time is over first.

    A gRPC server whose start or stop is cancelled is broken for good, and raises InvalidStateError at the next one.
    """
    done: set[asyncio.Future[None]]
    try:
        done, _ = await asyncio.wait({step}, timeout=timeout_seconds)
    except asyncio.CancelledError:
        await asyncio.wait({step}, timeout=timeout_seconds)
        raise
    if done:
        step.result()
    return bool(done)
