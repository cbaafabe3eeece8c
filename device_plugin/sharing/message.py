"""The size of a ListAndWatch message, worked out without building it.

Kubelet's gRPC client takes messages of at most 4,194,304 bytes and ends the stream at one more, after which the node has no
device of the resource (kubernetes/kubernetes#109304); no sender can change that. The sizes follow from protobuf's wire format
for v1beta1's `ListAndWatchResponse{repeated Device devices = 1}`, `Device{ID = 1, health = 2, topology = 3}`,
`TopologyInfo{repeated NUMANode nodes = 1}` and `NUMANode{int64 ID = 1}`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from device_plugin.sharing.offer import Device

KUBELET_LIMIT_BYTES = 4_194_304
HEALTHY, UNHEALTHY = "Healthy", "Unhealthy"


def device_bytes(device: Device, *, health: str = UNHEALTHY) -> int:
    """The bytes that one device adds to a list."""
    return _entry_bytes(len(device.id.encode()), device.numa_node, health)


def list_bytes(devices: Iterable[Device], *, health: str = UNHEALTHY) -> int:
    """The encoded size of a list. The default is the list's largest state: every device Unhealthy, the longer word.

    A list must fit in that state, or it would be the first fault of the whole node that ends the stream.
    """
    return sum(device_bytes(device, health=health) for device in devices)


def replicas_bytes(device: Device, replicas: int, *, health: str = UNHEALTHY) -> int:
    """The bytes that `replicas` of a device add to a list: `<id>::0` and so on, or the plain ID for one. Takes any number."""
    id_bytes = len(device.id.encode())
    if replicas == 1:
        return _entry_bytes(id_bytes, device.numa_node, health)
    size, digits, first = 0, 1, 0
    while first < replicas:
        end = min(10**digits, replicas)
        size += (end - first) * _entry_bytes(id_bytes + 2 + digits, device.numa_node, health)
        digits, first = digits + 1, end
    return size


def _entry_bytes(id_bytes: int, numa_node: int | None, health: str) -> int:
    content = _field_bytes(id_bytes) + _field_bytes(len(health))
    if numa_node is not None:
        # proto3 leaves a zero out: node 0 is an empty NUMANode.
        node = 1 + _varint_bytes(numa_node) if numa_node else 0
        content += _field_bytes(_field_bytes(node))
    return _field_bytes(content)


def _field_bytes(length: int) -> int:
    """A length-delimited field whose number is below 16: its tag, its length, its content."""
    return 1 + _varint_bytes(length) + length


def _varint_bytes(value: int) -> int:
    """Seven bits a byte; a negative int64 takes ten."""
    return 10 if value < 0 else max(1, -(-value.bit_length() // 7))
