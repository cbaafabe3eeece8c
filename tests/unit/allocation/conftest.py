"""Makers of small resources and tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from device_plugin.allocation.model import Injection
from device_plugin.allocation.table import AllocationTable, build_table
from device_plugin.hardware.model import Link
from device_plugin.serving.served import ServedDevice, ServedResource
from device_plugin.sharing.offer import Device, PreferencePolicy

Make = Callable[..., Any]


@pytest.fixture
def make_gpu() -> Make:
    """A whole GPU `GPU-<index>`."""

    def make(index: int, **served: Any) -> ServedDevice:
        uuid = f"GPU-{index}"
        return ServedDevice(Device(uuid, uuid, uuid, str(index), device_nodes=(f"/dev/nvidia{index}",)), **served)

    return make


@pytest.fixture
def make_replicas() -> Make:
    """`count` replicas of the GPU `GPU-<index>`, from number `first` on."""

    def make(index: int, count: int, first: int = 0, **served: Any) -> list[ServedDevice]:
        uuid = f"GPU-{index}"
        return [
            ServedDevice(Device(f"{uuid}::{n}", uuid, uuid, str(index), replica=n, device_nodes=(f"/dev/nvidia{index}",)), **served)
            for n in range(first, first + count)
        ]

    return make


@pytest.fixture
def make_mig() -> Make:
    """`count` MIG devices `MIG-<gpu>-<n>` on one GPU, each with its nodes, optionally in replicas."""

    def make(gpu: int, count: int, replicas: int = 0, **served: Any) -> list[ServedDevice]:
        devices = []
        for n in range(count):
            uuid = f"MIG-{gpu}-{n}"
            nodes = (f"/dev/nvidia{gpu}", f"/dev/nvidia-caps/nvidia-cap{9 * n}", f"/dev/nvidia-caps/nvidia-cap{9 * n + 1}")
            for replica in range(replicas) if replicas else [None]:
                device_id = uuid if replica is None else f"{uuid}::{replica}"
                devices.append(
                    ServedDevice(Device(device_id, uuid, f"GPU-{gpu}", f"{gpu}:{n}", replica, device_nodes=nodes), **served)
                )
        return devices

    return make


@pytest.fixture
def make_table() -> Make:
    """A table over these devices."""

    def make(
        devices: Iterable[ServedDevice],
        policy: PreferencePolicy = PreferencePolicy.DISTRIBUTED,
        links: tuple[Link, ...] = (),
        name: str = "nvidia.com/gpu",
        *,
        fail_greater_than_one: bool = False,
        **injection: Any,
    ) -> AllocationTable:
        resource = ServedResource(name, tuple(devices), policy, fail_requests_greater_than_one=fail_greater_than_one)
        return build_table(resource, links, Injection(**injection))

    return make
