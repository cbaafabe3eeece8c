"""The list that kubelet is shown, and the feed that carries its versions to every open stream."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2 import ListAndWatchResponse
from device_plugin.kubelet.changes import Changes

if TYPE_CHECKING:
    from device_plugin.serving.served import ServedDevice, ServedResource

# Kubelet's client keeps gRPC's default: one byte more ends the stream, and with it every device of the resource.
# (kubernetes/kubernetes#109304)
MAX_LIST_BYTES = 4 * 1024 * 1024
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


def list_from_resource(resource: ServedResource, max_bytes: int = MAX_LIST_BYTES) -> tuple[ListAndWatchResponse, int]:
    """The resource's list, and how many devices had to be left out to keep it within `max_bytes`.

    None is left out of a planned list; but leaving devices come on top of the plan, and a list that is too long by one device
    would cost all of them. Leaving devices are never the ones to go, since kubelet may still look them up; the last of the
    others are, and are listed once there is room.
    """
    message = ListAndWatchResponse()
    for served in resource.devices:
        _add(message, served)
    order = sorted(range(len(resource.devices)), key=lambda index: (resource.devices[index].leaving_since is None, index))
    left_out = 0
    while (excess := message.ByteSize() - max_bytes) > 0:
        # No device takes more than its ID, the words around it and its topology: at least this many must go.
        longest = max(device.ByteSize() for device in message.devices) + 4
        for _ in range(max(1, excess // longest)):
            del message.devices[order.pop()]
            left_out += 1
    return message, left_out


def _add(message: ListAndWatchResponse, served: ServedDevice) -> None:
    # add() and assignment take half the time of constructor keywords; a node can have 8,000 devices.
    device = message.devices.add()
    device.ID = served.device.id
    device.health = HEALTHY if served.is_healthy else UNHEALTHY
    if served.device.numa_node is not None:
        device.topology.nodes.add().ID = served.device.numa_node


class Stream:
    """One open ListAndWatch stream: which version it was given last."""

    __slots__ = ("sent",)

    def __init__(self) -> None:
        self.sent = 0


class Feed:
    """The versions of one list, followed by any number of streams.

    A stream follows versions instead of receiving notifications, so that a dead stream can take nothing from a living one, and a
    burst of changes becomes one message. The *registered* stream is the first one opened after `end_streams`: so the stream
    of the latest registration is told from one that a curious operator opens.
    """

    def __init__(self) -> None:
        self.version = 0
        self.lost_stream = False  # the registered stream was open and has ended
        self.message = ListAndWatchResponse()
        self._round = 0
        self._streams: dict[Stream, int] = {}
        self._registered: Stream | None = None
        self.changes = Changes()

    @property
    def open_streams(self) -> int:
        return len(self._streams)

    @property
    def is_followed(self) -> bool:
        """Whether the registered stream is open and has been given the current version."""
        return self._registered is not None and self._registered.sent == self.version

    @property
    def is_registered(self) -> bool:
        """Whether the registered stream is open."""
        return self._registered is not None

    def publish(self, message: ListAndWatchResponse) -> None:
        """Make this the current list, unless it equals it."""
        if self.version and message == self.message:
            return
        self.message = message
        self.version += 1
        self.changes.notify()

    def open(self) -> Stream:
        stream = Stream()
        self._streams[stream] = self._round
        if self._registered is None:
            self._registered = stream
            self.lost_stream = False
        return stream

    def mark_sent(self, stream: Stream, version: int) -> None:
        stream.sent = version
        self.changes.notify()

    def is_ended(self, stream: Stream) -> bool:
        """Whether the stream should return."""
        return self._streams[stream] != self._round

    def close(self, stream: Stream) -> None:
        del self._streams[stream]
        if self._registered is stream:
            self._registered = None
            self.lost_stream = True
        self.changes.notify()

    async def end_streams(self, timeout_seconds: float) -> bool:
        """Ask the open streams to end, each after the version it is still owed. False if one did not within the time."""
        self._round += 1
        self._registered = None
        self.lost_stream = False
        ending = set(self._streams)
        self.changes.notify()
        try:
            async with asyncio.timeout(timeout_seconds):
                while ending & self._streams.keys():
                    await self.changes.next()
        except TimeoutError:
            return False
        return True
