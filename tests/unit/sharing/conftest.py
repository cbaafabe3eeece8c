"""Nodes and configs for the tests of `plan`, made in the words of a test."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from device_plugin.config.model import Config
from device_plugin.hardware.model import Gpu, Inventory, MigAttributes, MigDevice, Platform, UnreadableGpu
from device_plugin.problems import Origin
from device_plugin.sharing.plan import plan

if TYPE_CHECKING:
    from device_plugin.problems import Problem, ProblemKind
    from device_plugin.sharing.offer import Offer

A100 = "NVIDIA A100-SXM4-40GB"
SLICES = {"1g": (1, 14), "2g": (2, 28), "3g": (3, 42), "4g": (4, 56), "7g": (7, 98)}


class Make:
    """Values for tests, each call one value."""

    @staticmethod
    def uuid(index: int) -> str:
        return f"GPU-00000000-0000-0000-0000-{index:012d}"

    @staticmethod
    def mig_uuid(gpu: int, index: int) -> str:
        return f"MIG-00000000-0000-0000-{gpu:04d}-{index:012d}"

    @staticmethod
    def attributes(profile: str) -> MigAttributes:
        slices, multiprocessors = SLICES.get(profile.split(".", maxsplit=1)[0], (1, 14))
        return MigAttributes(multiprocessors, 1, 0, 0, 0, 0, slices, slices, 4864 * slices)

    def gpu(self, index: int, *profiles: str, **fields: Any) -> Gpu:
        """A GPU; with profiles it is split into MIG devices of these."""
        if profiles:
            fields.setdefault("mig_devices", tuple(self.mig(index, number, profile) for number, profile in enumerate(profiles)))
            fields.setdefault("mig_enabled", True)
        known = {
            "uuid": self.uuid(index),
            "name": A100,
            "minor": index,
            "pci_bus_id": f"00000000:{0x17 + index:02X}:00.0",
            "numa_node": index // 4,
            "device_nodes": (f"/dev/nvidia{index}",),
        }
        return Gpu(index=index, **(known | fields))

    def mig(self, gpu: int, index: int, profile: str | None = "1g.5gb", **fields: Any) -> MigDevice:
        known = {
            "uuid": self.mig_uuid(gpu, index),
            "profile": profile,
            "gpu_instance_id": index + 7,
            "compute_instance_id": 0,
            "attributes": self.attributes(profile or "1g"),
        }
        return MigDevice(index=index, **(known | fields))

    def node(self, *gpus: Gpu, unreadable: tuple[UnreadableGpu, ...] = (), platform: Platform = Platform.NVML) -> Inventory:
        return Inventory(gpus=gpus, unreadable=unreadable, platform=platform)

    def gpus(self, count: int, **fields: Any) -> Inventory:
        return self.node(*(self.gpu(index, **fields) for index in range(count)))

    @staticmethod
    def config(data: dict[str, Any] | None = None, *, mig: str = "none") -> Config:
        """A Config from a file's content, every value said to stand at `<its path>:1:1`."""
        data = {**(data or {})}
        data["flags"] = {"migStrategy": mig, **data.get("flags", {})}
        return Config.model_validate_json(json.dumps(data)).with_origins(_origins(data))

    def slicing(self, *entries: dict[str, Any], mig: str = "none", **options: Any) -> Config:
        """A Config with these time-slicing entries."""
        return self.config({"sharing": {"timeSlicing": {"resources": list(entries), **options}}}, mig=mig)


class Look:
    """What is in an Offer, in the words of a test."""

    @staticmethod
    def counts(offer: Offer) -> dict[str, int]:
        return {resource.name: len(resource.devices) for resource in offer.resources}

    @staticmethod
    def ids(offer: Offer, name: str) -> list[str]:
        resource = offer.resource(name)
        return [device.id for device in resource.devices] if resource else []

    @staticmethod
    def indexes(offer: Offer, name: str) -> list[str]:
        resource = offer.resource(name)
        return [device.index for device in resource.devices] if resource else []

    @staticmethod
    def problems(offer: Offer, kind: ProblemKind) -> list[Problem]:
        return [problem for problem in offer.problems if problem.kind is kind]

    def only(self, offer: Offer, kind: ProblemKind) -> Problem:
        (problem,) = self.problems(offer, kind)
        return problem

    def offered(self, inventory: Inventory, config: Config) -> dict[str, int]:
        return self.counts(plan(inventory, config))


def _origins(value: Any, path: str = "") -> dict[str, Origin]:
    found = {path: Origin("config.yaml", 1, 1, path)}
    if isinstance(value, dict):
        for key, item in value.items():
            found |= _origins(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for number, item in enumerate(value):
            found |= _origins(item, f"{path}[{number}]")
    return found


@pytest.fixture(scope="session")
def make() -> Make:
    return Make()


@pytest.fixture(scope="session")
def look() -> Look:
    return Look()
