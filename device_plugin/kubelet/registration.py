"""Keeping one resource registered with kubelet.

Nothing tells a plugin that its registration is gone, and one made in the wrong order is lost at once: when a stream ends, kubelet
drops whatever client it then has under that resource's name. So the old stream ends first, and a registration counts only once
kubelet has opened its ListAndWatch stream and has been given the list.
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import TYPE_CHECKING, NoReturn, TypeAlias

import grpc

from device_plugin.errors import PluginError, RegistrationFailed
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2 import DevicePluginOptions, RegisterRequest
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import RegistrationStub
from device_plugin.kubelet.backoff import Backoff
from device_plugin.kubelet.changes import Changes, first_of
from device_plugin.kubelet.sockets import target

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from device_plugin.kubelet.presence import Kubelet, Presence
    from device_plugin.kubelet.server import ResourceServer

Register: TypeAlias = "Callable[[Path, str, str, DevicePluginOptions], Awaitable[None]]"

API_VERSION = "v1beta1"
# Inside Register kubelet dials us for up to 10 s and then says why it could not: leave it the time to.
REGISTER_SECONDS = 15.0
STREAM_SECONDS = 5.0  # kubelet opens the stream within milliseconds of Register
SETTLE_SECONDS = 5.0  # our answers take milliseconds; a call pending longer belongs to a kubelet that has gone
# Of registrations that followed the end of a stream at once, one in forty was refused; of those 1 ms later, none.
PAUSE_SECONDS = 0.005
STEADY_SECONDS = 10.0  # a registration that held this long owes nothing to earlier failures

CHANNEL_OPTIONS = (
    # gRPC would send the socket's escaped path, which strict servers refuse (grpc/grpc#38142, kubernetes/kubernetes#112597).
    ("grpc.default_authority", "localhost"),
    # Each attempt stands alone: no connection state shared with an earlier channel, and no delay of gRPC's own. Not
    # `min_reconnect_backoff_ms`: that is how long a connection may take, and a kubelet that has just bound its socket may be slow.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 200),
    ("grpc.enable_retries", 0),
)


class Loss(StrEnum):
    """Why a registration holds no longer."""

    NEW_KUBELET = "new kubelet"
    SOCKET = "socket taken away"
    STREAM = "stream ended"
    OPTIONS = "options changed"
    FORGOTTEN = "kubelet has none of its devices"


class Registration:
    """Keeps `server` registered with whichever kubelet `presence` sees. `run` is the task.

    `failure` is why the last attempt failed, None once one has succeeded. `register` makes the call; another one is for tests.
    """

    def __init__(
        self,
        server: ResourceServer,
        presence: Presence,
        *,
        logger: FilteringBoundLogger,
        backoff: Backoff | None = None,
        register: Register | None = None,
    ) -> None:
        self.failure: str | None = None
        self._call_register = register or call_register
        self._server = server
        self._presence = presence
        self._logger = logger.bind(resource=server.name, endpoint=server.endpoint)
        self._backoff = backoff or Backoff()
        self._kubelet_number: int | None = None
        self._options: DevicePluginOptions | None = None
        self._is_forgotten = False
        self._changes = Changes()

    @property
    def is_registered(self) -> bool:
        """Whether the kubelet that is there now has the current list."""
        return self._kubelet_number == self._presence.kubelet.number and self._server.is_listed

    async def wait_registered(self) -> None:
        """Wait until `is_registered`."""
        while not self.is_registered:
            await first_of(self._changes.next(), self._server.changes.next(), self._presence.changes.next())

    def note_forgotten(self) -> None:
        """Kubelet was seen to have none of the devices it was given: another plugin took the name, and has gone since."""
        self._is_forgotten = True
        self._changes.notify()

    async def run(self) -> NoReturn:
        """Register, and again whenever the registration is lost, for ever. Only cancelling ends it."""
        unguard = self._presence.guard(self._server.owns_socket)
        try:
            while True:
                kubelet = await self._presence.wait_accepting()
                if await self._try(kubelet):
                    await self._hold(kubelet)
        finally:
            unguard()
            self._kubelet_number = None

    async def _try(self, kubelet: Kubelet) -> bool:
        """One attempt, and after a failure the wait before the next one."""
        started = asyncio.get_running_loop().time()
        try:
            await self._unless_replaced(kubelet, self._register())
        except _Replaced:
            self._backoff.reset()
            return False
        except PluginError as failure:
            self._report(failure)
            self._presence.look(doubting=True)
            await self._wait_turn(kubelet)
            return False
        self.failure = None
        self._kubelet_number = kubelet.number
        self._changes.notify()
        took = asyncio.get_running_loop().time() - started
        self._logger.info("resource.registered", kubelet=kubelet.number, seconds=round(took, 3))
        return True

    async def _register(self) -> None:
        server = self._server
        await server.settle(SETTLE_SECONDS)
        if not server.owns_socket():
            await server.rebind()
        elif server.open_streams:
            await server.end_streams()
            await asyncio.sleep(PAUSE_SECONDS)
        self._options, self._is_forgotten = server.options, False
        await self._call_register(self._presence.socket, server.endpoint, server.name, self._options)
        if not await server.wait_listed(STREAM_SECONDS):
            raise RegistrationFailed(
                f"kubelet took the registration of {server.name}, but opened no ListAndWatch stream within {STREAM_SECONDS:g} s, "
                "or ended it at once"
            )

    async def _hold(self, kubelet: Kubelet) -> None:
        """Wait until the registration is lost, and as long as it takes before it may be tried again."""
        loop = asyncio.get_running_loop()
        since = loop.time()
        while (reason := self._lost_because(kubelet)) is None:
            await first_of(self._changes.next(), self._server.changes.next(), self._presence.changes.next())
        self._kubelet_number = None
        self._changes.notify()
        held = loop.time() - since
        self._logger.warning("resource.registration_lost", reason=str(reason), held_seconds=round(held, 1))
        self._presence.look(doubting=True)  # kubelet may have gone: then its successor is looked for at once
        if held >= STEADY_SECONDS or reason is Loss.NEW_KUBELET:
            self._backoff.reset()
        elif reason is not Loss.OPTIONS:
            await self._wait_turn(kubelet)

    def _lost_because(self, kubelet: Kubelet) -> Loss | None:
        if self._presence.kubelet.number != kubelet.number:
            return Loss.NEW_KUBELET
        if not self._server.owns_socket():
            return Loss.SOCKET
        if not self._server.has_stream:
            return Loss.STREAM
        if self._is_forgotten:
            return Loss.FORGOTTEN
        # Kubelet reads the options at registration only.
        return None if self._server.options == self._options else Loss.OPTIONS

    async def _unless_replaced(self, kubelet: Kubelet, attempt: Coroutine[None, None, None]) -> None:
        """Run the attempt, but give it up when another kubelet has come: a hung one must not hold us."""
        task = asyncio.ensure_future(attempt)
        await first_of(task, self._presence.wait_other(kubelet.number))
        if task.cancelled():
            raise _Replaced
        await task

    async def _wait_turn(self, kubelet: Kubelet) -> None:
        """Wait for the next delay of the back-off, or for another kubelet, which starts with a clean sheet."""
        try:
            async with asyncio.timeout(self._backoff.next_delay()):
                await self._presence.wait_other(kubelet.number)
        except TimeoutError:
            return
        self._backoff.reset()

    def _report(self, failure: PluginError) -> None:
        """Log a failure once; the same text again is for those who debug."""
        log = self._logger.debug if str(failure) == self.failure else self._logger.warning
        self.failure = str(failure)
        log("resource.registration_failed", reason=self.failure)


class _Replaced(Exception):
    """Another kubelet came while we talked to the last one."""


async def call_register(socket: Path, endpoint: str, resource: str, options: DevicePluginOptions) -> None:
    """Announce one resource to the kubelet behind `socket`. Raises `RegistrationFailed` with kubelet's own text."""
    request = RegisterRequest(version=API_VERSION, endpoint=endpoint, resource_name=resource, options=options)
    async with grpc.aio.insecure_channel(target(socket), options=CHANNEL_OPTIONS) as channel:
        try:
            await RegistrationStub(channel).Register(request, timeout=REGISTER_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise RegistrationFailed(_text(error, socket, resource)) from error


def _text(error: grpc.aio.AioRpcError, socket: Path, resource: str) -> str:
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return f'could not reach kubelet on "{socket}" to register {resource}: {error.details()}'
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"kubelet did not answer the registration of {resource} within {REGISTER_SECONDS:g} s"
    return f"kubelet refused to register {resource}: {error.details()} ({error.code().name})"
