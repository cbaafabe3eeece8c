"""The Allocation, and what a node's answers have in common."""

from __future__ import annotations

from dataclasses import field

from device_plugin.config.values import DeviceIdStrategy, DeviceListStrategy
from device_plugin.records import record

DEFAULT_CDI_KIND_PREFIX = "k8s.device-plugin.nvidia.com"


@record
class Mount:
    """A bind mount: host path to container path."""

    container_path: str
    host_path: str
    read_only: bool = False


@record
class DeviceNode:
    """A device node to be made in the container; `permissions` is a cgroup string such as `rw`."""

    container_path: str
    host_path: str
    permissions: str = "rw"


@record
class Allocation:
    """The answer for one container: env, mounts, device nodes, annotations, CDI device names. Orders are part of the value."""

    envs: dict[str, str] = field(default_factory=dict)
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    annotations: dict[str, str] = field(default_factory=dict)
    cdi_devices: tuple[str, ...] = ()


@record
class Injection:
    """What all answers of a node have in common, worked out once per reconcile.

    `dev_root` is the host's device root that prefixes host paths. `control_nodes` exist on the node and go with every
    device when `pass_device_specs` is on. `extras` are those of `gdrcopy`, `gds`, `mofed` that are switched on;
    `cdi_classes` those classes whose CDI specification was written with content, `cdi_undefined` the hardware that the class
    `gpu` lacks all the same.
    """

    strategies: tuple[DeviceListStrategy, ...] = (DeviceListStrategy.ENVVAR,)
    id_strategy: DeviceIdStrategy = DeviceIdStrategy.UUID
    pass_device_specs: bool = False
    dev_root: str = "/"
    control_nodes: tuple[str, ...] = ()
    imex_channels: tuple[int, ...] = ()
    extras: tuple[str, ...] = ()
    cdi_kind_prefix: str = DEFAULT_CDI_KIND_PREFIX
    cdi_annotation_prefix: str = "cdi.k8s.io/"
    cdi_classes: tuple[str, ...] = ()
    cdi_undefined: frozenset[str] = frozenset()

    @property
    def is_cdi_only(self) -> bool:
        """Whether containers get their devices through CDI and nothing else."""
        return bool(self.strategies) and all(strategy.is_cdi for strategy in self.strategies)
