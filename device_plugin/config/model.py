"""The Config: a frozen statement of what the operator wants.

This model is the reference. From it come the file format `v1` (camelCase keys; a superset of the one NVIDIA's plugin takes),
the flags (`--kebab-case`), the environment variables (`UPPER_SNAKE`), their defaults, the reference page and the JSON Schema in
`api/`. A field's flag and variable are derived from its key; where NVIDIA's plugin named one otherwise, `Option` says how.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, WithJsonSchema

from device_plugin.config.durations import Duration, LabelInterval, PositiveDuration
from device_plugin.config.values import (
    AllocationPolicy,
    AnnotationPrefix,
    DeviceIdStrategy,
    DeviceListStrategy,
    Devices,
    DiscoveryStrategy,
    DriverRoot,
    GpuSelector,
    HostPath,
    MigStrategy,
    OptionalPath,
    ResourceName,
    Version,
    XidAction,
    camel_case,
    shown,
)
from device_plugin.config.xids import Xid, XidClass, XidNumbers, XidPolicy, XidSet
from device_plugin.problems import Origin
from device_plugin.records import record


@record
class Option:
    """That a field can also be given as a flag and an environment variable.

    Empty names are derived from the field's key. `flags` are names without dashes, the first one shown in help. Of several
    `variables` the first one present wins, even if empty, as for the peer.
    """

    flags: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


def _as_list(value: object) -> object:
    if not isinstance(value, (str, list, tuple)):
        raise ValueError(f"expected {', '.join(DeviceListStrategy)}, or a list of these, not {shown(value)}")
    return [value] if isinstance(value, str) else value


def _refuse_mps(value: object) -> None:
    if value is not None:
        raise ValueError("sharing through MPS is not supported; remove it, or share by sharing.timeSlicing, which isolates nothing")


def _check_channel_ids(value: object) -> tuple[int, ...]:
    if isinstance(value, (list, tuple)) and (not value or (len(value) == 1 and type(value[0]) is int and value[0] == 0)):
        return tuple(value)
    more = ", ..." if isinstance(value, list) and len(value) > 8 else ""
    found = f"[{', '.join(shown(item) for item in value[:8])}{more}]" if isinstance(value, list) else shown(value)
    raise ValueError(f"expected [] or [0], not {found}")


# Lax about list and enumeration members, because a validator in front of a field hides from pydantic that the text is JSON.
# It still takes nothing but one name or a list of names.
_StrategyList = Annotated[
    tuple[Annotated[DeviceListStrategy, Field(strict=False)], ...],
    Field(strict=False, min_length=1),
    BeforeValidator(_as_list, json_schema_input_type=DeviceListStrategy | Annotated[list[DeviceListStrategy], Field(min_length=1)]),
]


class Model(BaseModel):
    """What all parts have in common: camelCase keys, unknown keys refused, no coercion, frozen."""

    model_config = ConfigDict(alias_generator=camel_case, populate_by_name=True, extra="forbid", strict=True, frozen=True)


class PluginFlags(Model):
    """How containers get their devices."""

    pass_device_specs: Annotated[bool, Option()] = Field(
        default=False, description="Name the device nodes in the answer too; needed beside kubelet's static CPU manager."
    )
    device_list_strategy: Annotated[_StrategyList, Option()] = Field(
        default=(DeviceListStrategy.ENVVAR,), description="How the runtime is told which devices a container gets."
    )
    device_id_strategy: Annotated[DeviceIdStrategy, Option(flags=("device-id-strategy",), variables=("DEVICE_ID_STRATEGY",))] = (
        Field(default=DeviceIdStrategy.UUID, alias="deviceIDStrategy", description="The name of a device given to the runtime.")
    )
    cdi_annotation_prefix: Annotated[AnnotationPrefix, Option()] = Field(
        default="cdi.k8s.io/", description="Replaces the prefix of the CDI annotation's key; bring the trailing slash."
    )
    nvidia_ctk_path: Annotated[
        HostPath, Option(flags=("nvidia-cdi-hook-path", "nvidia-ctk-path"), variables=("NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"))
    ] = Field(default="/usr/bin/nvidia-ctk", alias="nvidiaCTKPath", description="Host path of the CDI hook program.")
    container_driver_root: Annotated[
        DriverRoot,
        Option(
            flags=("driver-root-ctr-path", "container-driver-root"), variables=("DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT")
        ),
    ] = Field(default="/driver-root", description="Where the driver root is mounted in the plugin's container.")
    shared_devices_allocation_policy: Annotated[AllocationPolicy, Option()] = Field(
        default=AllocationPolicy.DISTRIBUTED, description="Which replicas and MIG devices a container is given."
    )


class GfdFlags(Model):
    """Settings of the peer's label program: known, checked, harmless here."""

    oneshot: bool | None = Field(default=None, description="Known, harmless here.")
    no_timestamp: bool | None = Field(default=None, description="Known, harmless here.")
    sleep_interval: LabelInterval | None = Field(default=None, description="Known, harmless here.")
    output_file: str | None = Field(default=None, description="Known, harmless here.")
    machine_type_file: str | None = Field(default=None, description="Known, harmless here.")


class Flags(Model):
    """What can be given as a flag as well."""

    mig_strategy: Annotated[MigStrategy, Option()] = Field(default=MigStrategy.NONE, description="How MIG devices are offered.")
    fail_on_init_error: Annotated[bool, Option()] = Field(
        default=True, description="Exit when the driver cannot be used at the start; false: stay up, not ready, and retry."
    )
    mps_root: Annotated[OptionalPath, Option()] = Field(
        default=None, description="Host directory of MPS pipes; known, without effect while there is no sharing through MPS."
    )
    nvidia_driver_root: Annotated[
        DriverRoot, Option(flags=("driver-root", "nvidia-driver-root"), variables=("NVIDIA_DRIVER_ROOT",))
    ] = Field(default="/", description="The driver's install root on the host.")
    nvidia_dev_root: Annotated[OptionalPath, Option(flags=("dev-root", "nvidia-dev-root"), variables=("NVIDIA_DEV_ROOT",))] = Field(
        default=None, description="The root of /dev on the host; the driver root where absent."
    )
    gdrcopy_enabled: Annotated[bool, Option()] = Field(default=False, description="Inject GDRCopy.")
    gds_enabled: Annotated[bool, Option()] = Field(default=False, description="Inject GPUDirect Storage.")
    mofed_enabled: Annotated[bool, Option()] = Field(default=False, description="Inject MOFED.")
    use_node_feature_api: bool | None = Field(
        default=None, alias="useNodeFeatureAPI", description="A setting of the label program: known, harmless here."
    )
    device_discovery_strategy: Annotated[DiscoveryStrategy, Option()] = Field(
        default=DiscoveryStrategy.AUTO, description="Where devices are looked for."
    )
    plugin: PluginFlags = Field(default=PluginFlags(), description="How containers get their devices.")
    gfd: GfdFlags | None = Field(default=None, description="Settings of the label program: known, harmless here.")

    @property
    def dev_root(self) -> str:
        """The effective root of /dev on the host."""
        return self.nvidia_dev_root or self.nvidia_driver_root


class NamedPattern(Model):
    """Which hardware gets which resource name. `*` in the pattern stands for any characters, all else for itself."""

    pattern: str = Field(
        min_length=1, description="The product name (for `mig`: the profile, such as 1g.10gb); `*` stands for any characters."
    )
    name: ResourceName = Field(description="The resource; a name without a domain gets nvidia.com/.")


class Resources(Model):
    """Resource names of one's own; the first pattern that matches wins, what none matches keeps its default name."""

    gpus: tuple[NamedPattern, ...] = Field(default=(), description="Names for GPUs, by product.")
    mig: tuple[NamedPattern, ...] = Field(default=(), description="Names for MIG devices, by profile.")


class SharedResource(Model):
    """One sharing entry: `replicas` of each of `devices` of the resource `name`, offered as `rename` if given."""

    name: ResourceName = Field(description="The resource to share, as it is called without sharing.")
    replicas: int = Field(ge=1, description="How many devices stand for each GPU or MIG device; 1: unshared.")
    devices: Devices = Field(
        default="all", description="`all` that earlier entries left, a count of them in index order, or a list by index or UUID."
    )
    rename: ResourceName | None = Field(default=None, description="The name to offer them under; the old name where absent.")
    allocation_policy: AllocationPolicy | None = Field(
        default=None, description="Which replicas a container is given; flags.plugin.sharedDevicesAllocationPolicy where absent."
    )


class TimeSlicing(Model):
    """Sharing by time-slicing. It isolates nothing: each replica can use all of the GPU's memory."""

    rename_by_default: bool = Field(default=False, description="Offer what is shared as `<name>.shared` where `rename` is absent.")
    fail_requests_greater_than_one: bool = Field(
        default=False, description="Refuse a container that asks for more than one shared device."
    )
    resources: tuple[SharedResource, ...] = Field(
        min_length=1, description="What is shared. Entries claim devices in file order; several may name the same resource."
    )

    def offered_name(self, entry: SharedResource) -> str:
        """The name under which an entry's devices are offered; what is not replicated keeps its own unless renamed."""
        if entry.rename is not None:
            return entry.rename
        return f"{entry.name}.shared" if self.rename_by_default and entry.replicas > 1 else entry.name


class Sharing(Model):
    """How one GPU or MIG device serves several containers."""

    time_slicing: TimeSlicing | None = Field(default=None, description="Sharing by time-slicing.")
    mps: Annotated[Any, BeforeValidator(_refuse_mps), WithJsonSchema({"type": "null"})] = Field(
        default=None, description="Sharing through MPS: refused, not supported."
    )


class Imex(Model):
    """IMEX channels, injected into every container that gets a GPU."""

    channel_ids: Annotated[
        tuple[int, ...],
        Field(strict=False),
        BeforeValidator(_check_channel_ids),
        WithJsonSchema({"type": "array", "items": {"const": 0}, "maxItems": 1}),
        Option(flags=("imex-channel-ids",), variables=("IMEX_CHANNEL_IDS",)),
    ] = Field(default=(), alias="channelIDs", description="The IMEX channels to inject: [] or [0].")
    required: Annotated[bool, Option(flags=("imex-required",), variables=("IMEX_REQUIRED",))] = Field(
        default=False, description="Whether a missing channel is an error."
    )


class DeviceSelection(Model):
    """Which GPUs are offered at all: by index, UUID, PCI address or product pattern. `exclude` wins over `include`."""

    include: tuple[GpuSelector, ...] = Field(default=(), description="The GPUs to offer; empty: all.")
    exclude: tuple[GpuSelector, ...] = Field(default=(), description="The GPUs not to offer; wins over `include`.")


class Health(Model):
    """When a GPU must not get new work, and what clears it. See docs/health.md."""

    probe_interval: PositiveDuration = Field(default=30.0, description="Time between two probes of a GPU.")
    recover_after: Duration = Field(default=300.0, description="How long evidence of recovery must stay clean.")
    recover_without_evidence: bool = Field(
        default=False, description="Where the driver has no recovery action: take clean probes alone as evidence."
    )
    refuse_unhealthy_restart: bool = Field(
        default=False, description="Ask kubelet for PreStartContainer and refuse to start a container on a device with a cause."
    )
    policy: XidPolicy = Field(
        default=XidPolicy.CATALOGUE,
        description="Which XIDs count to begin with: by NVIDIA's XID catalogue, as NVIDIA's device plugin (all but 13, 31, 43, "
        "45, 68, 109), or as Google's (48 alone).",
    )
    disable_xids: Annotated[XidNumbers, Option(variables=("DP_DISABLE_HEALTHCHECKS",))] = Field(
        default=XidSet(), description="XIDs that do not count: a list of numbers, or `all`."
    )
    enable_xids: Annotated[XidNumbers, Option(variables=("DP_ENABLE_HEALTHCHECKS",))] = Field(
        default=XidSet(), description="XIDs that count, whatever `disableXids`, their class or the policy say: numbers, or `all`."
    )
    classes: dict[XidClass, XidAction] = Field(
        default_factory=dict,
        description="What each class of NVIDIA's XID catalogue means: ignore, untilReset, untilReboot or askDriver.",
    )
    xids: dict[Xid, XidAction] = Field(
        default_factory=dict,
        description="What single XIDs mean, by number, in the same words; wins over everything else that is said about them.",
    )


class Reconcile(Model):
    """How fast the plugin follows the node."""

    leaving_grace: Duration = Field(default=60.0, description="How long a device that left the Offer stays listed, Unhealthy.")
    rediscovery_interval: PositiveDuration = Field(default=60.0, description="Time between two looks at the node's hardware.")
    driver_call_timeout: PositiveDuration = Field(default=10.0, description="After this time a driver call counts as hanging.")
    exit_after_driver_loss: Duration = Field(
        default=600.0, description="How long the driver may be away before the process exits to start afresh; 0: never."
    )


class Config(Model):
    """The whole file."""

    version: Version = Field(default="v1", description="The format of this file.")
    flags: Flags = Field(default=Flags(), description="What can be given as a flag as well.")
    resources: Resources = Field(default=Resources(), description="Resource names of one's own.")
    sharing: Sharing = Field(default=Sharing(), description="How one GPU serves several containers.")
    imex: Imex = Field(default=Imex(), description="IMEX channels.")
    devices: DeviceSelection = Field(default=DeviceSelection(), description="Which GPUs are offered at all.")
    health: Health = Field(default=Health(), description="When a GPU must not get new work.")
    reconcile: Reconcile = Field(default=Reconcile(), description="How fast the plugin follows the node.")

    _origins: Mapping[str, Origin] = PrivateAttr(default_factory=dict)

    def with_origins(self, origins: Mapping[str, Origin]) -> Self:
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
