"""The stand-in kubelet's books: which devices each resource has, who holds them, and what may be chosen for a container.

As kubelet 1.36's device manager keeps them, faults included; no I/O here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from device_plugin.records import record

if TYPE_CHECKING:
    import random
    from collections.abc import Iterable

    from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2 import (
        ContainerAllocateResponse,
        Device,
        DevicePluginOptions,
    )

API_VERSION = "v1beta1"
FORGET_SECONDS = 300.0  # a resource without a registration for this long is forgotten: 0 / 0
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_PREFIX = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_NAME = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")
_QUOTA_PREFIX = "requests."


class PodRejected(Exception):
    """Kubelet does not admit the pod: it is Failed for good. The text is that of the pod's status."""


class StartRefused(Exception):
    """A container was not started this time; kubelet would try again."""


class KubeletCrashed(Exception):
    """Kubelet would have panicked here."""


@record
class Container:
    """One container and what it asks for."""

    name: str
    requests: dict[str, int]
    is_init: bool = False


@record
class Pod:
    """One pod bound to this node. Init containers come first."""

    name: str
    containers: tuple[Container, ...]
    namespace: str = "default"

    @classmethod
    def of(cls, name: str, **requests: int) -> Pod:
        """A pod with one container. `gpu=2` asks for two of `nvidia.com/gpu`; any other name goes in as `**{"a.b/c": 1}`."""
        full = {key if "/" in key else f"nvidia.com/{key}": count for key, count in requests.items()}
        return cls(name, (Container("main", full),))


@dataclass(slots=True)
class Grant:
    """What one container holds of one resource, and the answer of Allocate, which a kubelet keeps in its checkpoint."""

    devices: tuple[str, ...]
    response: ContainerAllocateResponse


@dataclass(slots=True)
class PodState:
    """An admitted pod. `failure` is set once kubelet has given it up. `granted` is by container and resource."""

    pod: Pod
    granted: dict[str, dict[str, Grant]] = field(default_factory=dict)
    running: set[str] = field(default_factory=set)
    failure: str | None = None

    def devices(self, container: str, resource: str) -> tuple[str, ...]:
        grant = self.granted.get(container, {}).get(resource)
        return grant.devices if grant else ()


@dataclass(slots=True)
class ResourceState:
    """One resource kubelet knows. `devices` are those of the last list, None before the first since kubelet's start."""

    devices: dict[str, Device] | None = None
    listed: int = 0  # entries of the last list: an ID sent twice counts twice
    healthy: set[str] = field(default_factory=set)
    lost_at: float | None = None
    pre_start_required: bool = False


class DeviceManager:
    """Resources and pods of one node. `rng` draws every order that kubelet leaves to chance."""

    def __init__(self, rng: random.Random) -> None:
        self.resources: dict[str, ResourceState] = {}
        self.pods: dict[str, PodState] = {}
        self._rng = rng
        self._vanished: dict[str, set[str]] = {}

    def take_list(self, resource: str, devices: Iterable[Device]) -> None:
        """Replace all that is known of the resource. Nothing is validated, as kubelet validates nothing."""
        entries = list(devices)
        state = self.resources.setdefault(resource, ResourceState())
        state.devices = {device.ID: device for device in entries}
        state.listed = len(entries)
        state.healthy = {name for name, device in state.devices.items() if device.health == "Healthy"}

    def mark_registered(self, resource: str, options: DevicePluginOptions) -> None:
        state = self.resources.setdefault(resource, ResourceState())
        state.lost_at = None
        state.pre_start_required = options.pre_start_required

    def mark_lost(self, resource: str, now: float) -> None:
        """The stream ended: every device is unhealthy, the capacity stays."""
        state = self.resources[resource]
        state.healthy = set()
        state.lost_at = now

    def forget_devices(self) -> None:
        """What a restart leaves of the checkpoint: names of resources, pods and their grants, but no device."""
        self.resources = {name: ResourceState() for name in self.resources}

    def capacity(self, resource: str, now: float) -> int:
        state = self.resources.get(resource)
        if state is None or (state.lost_at is not None and now - state.lost_at >= FORGET_SECONDS):
            return 0
        return state.listed

    def allocatable(self, resource: str) -> int:
        state = self.resources.get(resource)
        return len(state.healthy) if state else 0

    def held(self, resource: str) -> set[str]:
        """IDs that pods hold, and those that an empty Allocate answer lost."""
        held = set(self._vanished.get(resource, ()))
        for state in self.pods.values():
            if state.failure is None:
                for container in state.granted:
                    held.update(state.devices(container, resource))
        return held

    def lose(self, resource: str, devices: Iterable[str]) -> None:
        """Keep IDs out of later offers, as kubelet does after an Allocate answer without a container response."""
        self._vanished.setdefault(resource, set()).update(devices)

    def check_kept(self, state: PodState, container: Container, resource: str) -> bool:
        """Whether the container already has its devices. Raises `PodRejected` as kubelet does where they cannot be kept."""
        kept = state.devices(container.name, resource)
        if kept and container.name in state.running:
            return True
        healthy = self.resources[resource].healthy
        if not healthy:
            raise PodRejected(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        if not healthy.issuperset(kept):
            raise PodRejected(f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {resource}")
        return bool(kept)

    def reusable(self, state: PodState, container: Container, resource: str) -> list[str]:
        """IDs that init containers of the pod have and this container takes over, in random order."""
        found = {
            name
            for other in state.pod.containers
            if other.is_init and other.name != container.name
            for name in state.devices(other.name, resource)
        }
        taken = sorted(found)
        self._rng.shuffle(taken)
        return taken[: container.requests[resource]]

    def free(self, resource: str, needed: int) -> list[str]:
        """Healthy IDs that nobody holds, in random order. Raises `PodRejected` if there are fewer than needed."""
        free = sorted(self.resources[resource].healthy - self.held(resource))
        if len(free) < needed:
            raise PodRejected(
                f"requested number of devices unavailable for {resource}. Requested: {needed}, Available: {len(free)}"
            )
        self._rng.shuffle(free)
        return free

    def settle_choice(self, preferred: Iterable[str], offered: list[str], must_include: list[str], size: int) -> list[str]:
        """The devices, from what the plugin preferred.

        IDs not offered are ignored, surplus ones cut in no given order, too few filled up at random, duplicates count once.
        """
        wanted = sorted(set(preferred) & set(offered))
        self._rng.shuffle(wanted)
        return list(dict.fromkeys([*must_include, *wanted, *offered]))[:size]

    def check_listed(self, resource: str, devices: Iterable[str]) -> None:
        """Look each ID up in the current list, as kubelet does after Allocate without checking that it is there."""
        listed = self.resources[resource].devices or {}
        if missing := sorted(set(devices) - listed.keys()):
            raise KubeletCrashed(
                "panic: runtime error: invalid memory address or nil pointer dereference: "
                f"{resource} dropped {', '.join(missing)} from its list while it was being allocated"
            )


def name_fault(resource: str) -> str | None:
    """Kubelet's refusal of a resource name that is not an extended resource's, or None. One text for every reason."""
    prefix, _, name = resource.rpartition("/")
    is_valid = (
        resource.count("/") == 1
        and "kubernetes.io/" not in resource
        and not resource.startswith(_QUOTA_PREFIX)
        and len(_QUOTA_PREFIX + prefix) <= 253
        and _PREFIX.fullmatch(prefix) is not None
        and len(name) <= 63
        and _NAME.fullmatch(name) is not None
    )
    return None if is_valid else f'the ResourceName "{resource}" is invalid'


def version_fault(version: str) -> str | None:
    """Kubelet's refusal of another version of the interface, or None."""
    if version == API_VERSION:
        return None
    return f'requested API version "{version}" is not supported by kubelet. Supported version is ["{API_VERSION}"]'
