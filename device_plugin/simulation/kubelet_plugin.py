"""One registration, seen from the stand-in kubelet: its connection to the plugin."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, TypeVar

import grpc

from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import DevicePluginStub
from device_plugin.kubelet.sockets import target

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

T = TypeVar("T")

CLOSING = "rpc error: code = Canceled desc = grpc: the client connection is closing"
DIAL_SECONDS = 10.0
PRE_START_SECONDS = 30.0
RECEIVE_LIMIT_BYTES = 4 * 1024 * 1024
_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", RECEIVE_LIMIT_BYTES),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.use_local_subchannel_pool", 1),
)


class CallFailed(Exception):
    """A call to the plugin failed; the text is kubelet's."""


class PluginClient:
    """Kubelet's connection for one registration. Every call raises `CallFailed`."""

    def __init__(self, resource: str, socket: Path) -> None:
        self.resource = resource
        self.options = pb.DevicePluginOptions()
        self._is_closed = False
        self._channel = grpc.aio.insecure_channel(target(socket), options=_OPTIONS)
        self._stub = DevicePluginStub(self._channel)

    async def dial(self, timeout_seconds: float | None) -> None:
        """Connect and ask for the options; `timeout_seconds` is what the plugin's deadline for Register leaves (None: for ever)."""
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                await self._channel.channel_ready()
        except TimeoutError:
            raise CallFailed("failed to dial device plugin: context deadline exceeded") from None
        try:
            self.options = await self._result(lambda: self._stub.GetDevicePluginOptions(pb.Empty(), timeout=timeout_seconds))
        except CallFailed as failure:
            raise CallFailed(f"failed to get device plugin options: {failure}") from failure

    async def lists(self) -> AsyncIterator[pb.ListAndWatchResponse]:
        """The lists, until the plugin ends the stream or the connection goes: kubelet's reader ends the same way for both."""
        call = self._stub.ListAndWatch(pb.Empty())
        with contextlib.suppress(CallFailed):
            while (response := await self._result(call.read)) is not grpc.aio.EOF:
                assert isinstance(response, pb.ListAndWatchResponse)
                yield response

    async def prefer(self, available: list[str], must_include: list[str], size: int) -> list[str]:
        """What the plugin prefers. Without a deadline, as kubelet asks."""
        request = pb.PreferredAllocationRequest()
        request.container_requests.add(available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size)
        answer = await self._result(lambda: self._stub.GetPreferredAllocation(request))
        return list(answer.container_responses[0].deviceIDs) if answer.container_responses else []

    async def allocate(self, devices: list[str]) -> pb.AllocateResponse:
        """The plugin's answer for one container. Without a deadline, as kubelet asks."""
        request = pb.AllocateRequest()
        request.container_requests.add(devices_ids=devices)
        return await self._result(lambda: self._stub.Allocate(request))

    async def pre_start(self, devices: list[str]) -> None:
        request = pb.PreStartContainerRequest(devices_ids=devices)
        await self._result(lambda: self._stub.PreStartContainer(request, timeout=PRE_START_SECONDS))

    async def close(self) -> None:
        """Drop the connection; calls under way fail as cancelled."""
        self._is_closed = True
        await self._channel.close()

    async def _result(self, call: Callable[[], Awaitable[T]]) -> T:
        try:
            return await call()
        except grpc.aio.AioRpcError as error:
            raise CallFailed(_go_text(error)) from error
        except grpc.aio.UsageError:  # dropped between two calls
            raise CallFailed(CLOSING) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._is_closed and task is not None and not task.cancelling():
                raise CallFailed(CLOSING) from None
            raise


def _go_text(error: grpc.aio.AioRpcError) -> str:
    """An RPC's error as Go prints it, which is what kubelet shows."""
    code = "".join(word.capitalize() for word in error.code().name.split("_"))
    return f"rpc error: code = {'Canceled' if code == 'Cancelled' else code} desc = {error.details()}"
