"""The Config: a frozen statement of what the operator wants.

This model is the reference. From it come the file format `v1` (camelCase keys; a superset of the one NVIDIA's plugin takes),
the flags (`--kebab-case`), the environment variables (`UPPER_SNAKE`), their defaults, the reference page and the JSON Schema in
`api/`. A field's flag and variable are derived from its key; where NVIDIA's plugin named one otherwise, `Option` says how.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr
from pydantic.alias_generators import to_camel

from device_plugin.config.values import (
    AllocationPolicy,
    DeviceIdStrategy,
    DeviceListStrategy,
    Devices,
    DiscoveryStrategy,
    Duration,
    GpuSelector,
    MigStrategy,
    ResourceName,
    XidAction,
)
from device_plugin.problems import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Option:
    """That a field can also be given as a flag and an environment variable.

    Empty names are derived from the field's key. `flags` are names without dashes, the first one shown in help. Of several
    `variables` the first one present wins, even if empty, as for the peer.
    """

    flags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


class Model(BaseModel):
    """What all parts have in common: camelCase keys, unknown keys refused, no coercion, frozen."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", strict=True, frozen=True)


class PluginFlags(Model):
    """How containers get their devices."""

    pass_device_specs: Annotated[bool, Option()] = Field(
        default=False, description="Name the device nodes in the answer too; needed beside kubelet's static CPU manager."
    )
    device_list_strategy: Annotated[tuple[DeviceListStrategy, ...], Option()] = Field(
        default=(DeviceListStrategy.ENVVAR,), description="How the runtime is told which devices a container gets."
    )
    device_id_strategy: Annotated[DeviceIdStrategy, Option(flags=("device-id-strategy",), variables=("DEVICE_ID_STRATEGY",))] = (
        Field(default=DeviceIdStrategy.UUID, alias="deviceIDStrategy", description="The name of a device given to the runtime.")
    )
    cdi_annotation_prefix: Annotated[str, Option()] = Field(
        default="cdi.k8s.io/", description="Replaces the prefix of the CDI annotation's key; bring the trailing slash."
    )
    nvidia_ctk_path: Annotated[
        str, Option(flags=("nvidia-cdi-hook-path", "nvidia-ctk-path"), variables=("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"))
    ] = Field(default="/usr/bin/nvidia-ctk", alias="nvidiaCTKPath", description="Host path of the CDI hook program.")
    container_driver_root: Annotated[
        str,
        Option(
            flags=("driver-root-ctr-path", "container-driver-root"), variables=("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT")
        ),
    ] = Field(default="/driver-root", description="Where the driver root is mounted in the plugin's container.")
    shared_devices_allocation_policy: Annotated[AllocationPolicy, Option()] = Field(
        default=AllocationPolicy.DISTRIBUTED, description="Which replicas and MIG devices a container is given."
    )


class GfdFlags(Model):
    """Settings of the peer's label program: known, checked, harmless here."""

    oneshot: bool | None = None
    no_timestamp: bool | None = None
    sleep_interval: Any = None
    output_file: str | None = None
    machine_type_file: str | None = None


class Flags(Model):
    """What can be given as a flag as well."""

    mig_strategy: Annotated[MigStrategy, Option()] = Field(default=MigStrategy.NONE, description="How MIG devices are offered.")
    fail_on_init_error: Annotated[bool, Option()] = Field(
        default=True, description="Exit when the driver cannot be used at the start; false: stay up, not ready, and retry."
    )
    mps_root: Annotated[str | None, Option()] = Field(default=None, description="Host directory of MPS pipes.")
    nvidia_driver_root: Annotated[str, Option(flags=("driver-root", "nvidia-driver-root"), variables=("NVIDIA_DRIVER_ROOT",))] = (
        Field(default="/", description="The driver's install root on the host.")
    )
    nvidia_dev_root: Annotated[str | None, Option(flags=("dev-root", "nvidia-dev-root"), variables=("NVIDIA_DEV_ROOT",))] = Field(
        default=None, description="The root of /dev on the host; the driver root where absent."
    )
    gdrcopy_enabled: Annotated[bool, Option()] = Field(default=False, description="Inject GDRCopy.")
    gds_enabled: Annotated[bool, Option()] = Field(default=False, description="Inject GPUDirect Storage.")
    mofed_enabled: Annotated[bool, Option()] = Field(default=False, description="Inject MOFED.")
    use_node_feature_api: bool | None = Field(
        default=None, alias="useNodeFeatureAPI", description="A setting of the peer's label program: known, harmless here."
    )
    device_discovery_strategy: Annotated[DiscoveryStrategy, Option()] = Field(
        default=DiscoveryStrategy.AUTO, description="Where devices are looked for."
    )
    plugin: PluginFlags = PluginFlags()
    gfd: GfdFlags | None = None

    @property
    def dev_root(self) -> str:
        """The effective root of /dev on the host."""
        return self.nvidia_dev_root or self.nvidia_driver_root


class NamedPattern(Model):
    """Which hardware gets which resource name. `*` in the pattern stands for any characters, all else for itself."""

    pattern: str = Field(min_length=1)
    name: ResourceName


class Resources(Model):
    """Resource names of one's own; the first pattern that matches wins, what none matches keeps its default name."""

    gpus: tuple[NamedPattern, ...] = ()
    mig: tuple[NamedPattern, ...] = ()


class SharedResource(Model):
    """One sharing entry: `replicas` of each of `devices` of the resource `name`, offered as `rename` if given."""

    name: ResourceName
    replicas: int = Field(ge=1)
    devices: Devices = "all"
    rename: ResourceName | None = None
    allocation_policy: AllocationPolicy | None = None


class TimeSlicing(Model):
    """Sharing by time-slicing. It isolates nothing: each replica can use all of the GPU's memory."""

    rename_by_default: bool = False
    fail_requests_greater_than_one: bool = False
    resources: tuple[SharedResource, ...] = Field(min_length=1)


class Sharing(Model):
    time_slicing: TimeSlicing | None = None
    mps: Any = None


class Imex(Model):
    """IMEX channels, injected into every container that gets a GPU."""

    channel_ids: Annotated[tuple[int, ...], Option(flags=("imex-channel-ids",), variables=("IMEX_CHANNEL_IDS",))] = Field(
        default=(), alias="channelIDs", description="[] or [0]."
    )
    required: Annotated[bool, Option(flags=("imex-required",), variables=("IMEX_REQUIRED",))] = Field(
        default=False, description="Whether a missing channel is an error."
    )


class DeviceSelection(Model):
    """Which GPUs are offered at all: by index, UUID, PCI address or product pattern. `exclude` wins over `include`."""

    include: tuple[GpuSelector, ...] = ()
    exclude: tuple[GpuSelector, ...] = ()


class Health(Model):
    """When a GPU must not get new work, and what clears it. See docs/health.md."""

    probe_interval: Duration = Field(default=30.0, gt=0, description="Time between two probes of a GPU.")
    recover_after: Duration = Field(default=300.0, ge=0, description="How long evidence of recovery must stay clean.")
    recover_without_evidence: bool = Field(
        default=False, description="Where the driver has no recovery action: take clean probes alone as evidence."
    )
    refuse_unhealthy_restart: bool = Field(
        default=False, description="Ask kubelet for PreStartContainer and refuse to start a container on a device with a cause."
    )
    classes: dict[str, XidAction] = Field(default_factory=dict, description="What each class of NVIDIA's XID catalogue means.")
    xids: dict[int, XidAction] = Field(default_factory=dict, description="What single XIDs mean; wins over their class.")


class Reconcile(Model):
    """How fast the plugin follows the node."""

    leaving_grace: Duration = Field(
        default=60.0, ge=0, description="How long a device that left the Offer stays listed, Unhealthy."
    )
    rediscovery_interval: Duration = Field(default=60.0, gt=0, description="Time between two looks at the node's hardware.")
    driver_call_timeout: Duration = Field(default=10.0, gt=0, description="After this time a driver call counts as hanging.")
    exit_after_driver_loss: Duration = Field(
        default=600.0, ge=0, description="How long the driver may be away before the process exits to start afresh; 0: never."
    )


class Config(Model):
    """The whole file."""

    version: str = "v1"
    flags: Flags = Flags()
    resources: Resources = Resources()
    sharing: Sharing = Sharing()
    imex: Imex = Imex()
    devices: DeviceSelection = DeviceSelection()
    health: Health = Health()
    reconcile: Reconcile = Reconcile()

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)

    def with_origins(self, origins: Mapping[str, Origin]) -> Config:
        """The same Config, knowing where each value was stated, by config path (`sharing.timeSlicing.resources[0].name`)."""
        copy = self.model_copy()
        copy._origins = dict(origins)  # noqa: SLF001 - our own private attribute, on a copy not yet handed out
        return copy

    def origin(self, path: str) -> Origin:
        """Where the value at that config path was stated; the nearest stated parent if it was not; `default` if none was."""
        while path:
            if path in self._origins:
                return self._origins[path]
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self._origins.get("", Origin("default"))
