"""Kubelet's pod-resources socket: which pod holds which device. The supported way to know; the checkpoint file is private."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, TypeAlias

import grpc

from device_plugin.kubelet.api.podresources.v1.podresources_pb2 import AllocatableResourcesRequest, ListPodResourcesRequest
from device_plugin.kubelet.api.podresources.v1.podresources_pb2_grpc import PodResourcesListerStub
from device_plugin.kubelet.sockets import SocketIdentity, denied, target
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from pathlib import Path

    from device_plugin.kubelet.api.podresources.v1.podresources_pb2 import ContainerDevices
    from device_plugin.kubelet.api.podresources.v1.podresources_pb2_grpc import PodResourcesListerAsyncStub

TIMEOUT_SECONDS = 5.0
# A node of many pods passes gRPC's default of 4 MiB; kubelet's own client allows 16.
MAX_ANSWER_BYTES = 16 * 1024 * 1024
_CHANNEL_OPTIONS = (
    ("grpc.default_authority", "localhost"),
    ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
    # The channel lives as long as we do, across restarts of kubelet: find the new one soon.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)

DevicesByResource: TypeAlias = dict[str, frozenset[str]]


@record
class Unreadable:
    """Kubelet should have told but did not: nothing is known, which is not the same as nothing being held."""

    reason: str


class PodResources:
    """A client of the pod-resources socket. An answer is None where the socket is not there, `Unreadable` on any error."""

    def __init__(self, socket: Path, *, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        self.socket = socket
        self._timeout_seconds = timeout_seconds
        self._channel: grpc.aio.Channel | None = None

    async def held(self) -> DevicesByResource | Unreadable | None:
        """The device IDs that containers hold, by resource. Names held IDs that have left the list, too."""

        async def call(stub: PodResourcesListerAsyncStub) -> DevicesByResource:
            answer = await stub.List(ListPodResourcesRequest(), timeout=self._timeout_seconds)
            return _group(devices for pod in answer.pod_resources for container in pod.containers for devices in container.devices)

        return await self._ask(call)

    async def allocatable(self) -> DevicesByResource | Unreadable | None:
        """The healthy device IDs that kubelet knows, by resource. IDs that we do not list are another plugin's."""

        async def call(stub: PodResourcesListerAsyncStub) -> DevicesByResource:
            answer = await stub.GetAllocatableResources(AllocatableResourcesRequest(), timeout=self._timeout_seconds)
            return _group(answer.devices)

        return await self._ask(call)

    async def close(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await channel.close()

    async def _ask(
        self, call: Callable[[PodResourcesListerAsyncStub], Awaitable[DevicesByResource]]
    ) -> DevicesByResource | Unreadable | None:
        try:
            if SocketIdentity.of(self.socket) is None:
                return None
        except PermissionError:
            return Unreadable(denied("look at the pod-resources socket", self.socket))
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(target(self.socket), options=_CHANNEL_OPTIONS)
        try:
            return await call(PodResourcesListerStub(self._channel))
        except grpc.aio.AioRpcError as error:
            return Unreadable(f'kubelet did not tell on "{self.socket}" who holds what: {error.details()} ({error.code().name})')


def _group(entries: Iterable[ContainerDevices]) -> DevicesByResource:
    """Entries by resource; one resource may come in several entries, one for each NUMA node."""
    grouped: defaultdict[str, set[str]] = defaultdict(set)
    for entry in entries:
        grouped[entry.resource_name].update(entry.device_ids)
    return {resource: frozenset(grouped[resource]) for resource in sorted(grouped)}
