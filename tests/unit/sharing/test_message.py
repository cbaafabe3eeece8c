"""The size of a list, worked out without building it."""

from __future__ import annotations

import pytest

from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2 import ListAndWatchResponse
from device_plugin.sharing.message import HEALTHY, UNHEALTHY, list_bytes, replicas_bytes
from device_plugin.sharing.offer import Device
from device_plugin.sharing.replicas import Share, expand


def encode(devices: list[Device], health: str) -> int:
    message = ListAndWatchResponse()
    for device in devices:
        entry = message.devices.add(ID=device.id, health=health)
        if device.numa_node is not None:
            entry.topology.nodes.add(ID=device.numa_node)
    return len(message.SerializeToString())


def device(hardware_id: str, numa_node: int | None) -> Device:
    return Device(hardware_id, hardware_id, hardware_id, "0", numa_node=numa_node)


@pytest.mark.parametrize("numa_node", [None, 0, 1, 127, 128, 2**31, 2**62, -1])
@pytest.mark.parametrize("length", [1, 40, 63, 100, 126, 127, 128, 300, 20_000])
@pytest.mark.parametrize("health", [HEALTHY, UNHEALTHY])
def test_is_what_protobuf_encodes(length, numa_node, health):
    """The computed size equals the encoded one at every width of a length and of a NUMA node, the left-out zero included."""
    devices = [device("x" * length, numa_node), device("y", None)]
    assert encode(devices, health) == list_bytes(devices, health=health)


@pytest.mark.parametrize("replicas", [1, 2, 9, 10, 11, 99, 100, 101, 1234])
def test_of_replicas_is_that_of_their_list(replicas):
    """Counting replicas by the digits of their numbers gives the size of the list that they make."""
    base = device("GPU-00000000-0000-0000-0000-000000000000", 1)
    assert encode(expand(Share("r", base, replicas)), UNHEALTHY) == replicas_bytes(base, replicas)


def test_of_any_number_of_replicas_is_known_at_once():
    """A count that no memory holds has a size, so that it can be refused."""
    base = device("GPU-0", None)
    assert 10**20 * 20 < replicas_bytes(base, 10**20) < 10**20 * 64
