"""Node profiles: YAML files that describe a node, its hardware and what goes wrong with it. See docs/simulation.md."""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from device_plugin.config.document import decode
from device_plugin.config.values import camel_case
from device_plugin.errors import ConfigError
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.simulation.instances import WantedInstance, place_instances
from device_plugin.simulation.live import base_name
from device_plugin.simulation.machine import Machine, MigShape, SimulatedGpu, generated_uuid
from device_plugin.simulation.placed_yaml import PlacedYaml

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)

PROFILES = Path(__file__).parent / "profiles"

COMPUTE_MODES = {"default": 0, "exclusive-thread": 1, "prohibited": 2, "exclusive-process": 3}
ADDRESSING_MODES = {"none": 0, "hmm": 1, "ats": 2}
RECOVERY_ACTIONS = {"none": 0, "reset": 1, "reboot": 2, "drain-p2p": 3, "drain-and-reset": 4}
FABRIC_STATES = {"not-started": 1, "in-progress": 2, "completed": 3}
_PCIE_LEVELS = {"PIX": 10, "PXB": 20, "PHB": 30, "NODE": 40, "SYS": 50}  # as `nvidia-smi topo -m` writes NVML's levels
_NVLINKS = r"(?:NV)?([0-9]{1,2})"  # a number, or one as `nvidia-smi topo -m` writes it
_NOTHING = "."  # in a matrix: no NVLink, or the ancestor that follows from the NUMA nodes
_DEVICE_NODE = r"/dev(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+"  # never out of the simulated root: nodes are made, and removed again
_PCI = r"(?:[0-9a-fA-F]{4}){1,2}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=camel_case, populate_by_name=True, extra="forbid", strict=True, frozen=True)


def pci_as_nvml(value: Any) -> Any:
    """`0000:07:00.0` as NVML writes it: eight digits of domain, upper case."""
    if not isinstance(value, str) or not re.fullmatch(_PCI, value):
        raise ValueError("expected a PCI address such as 0000:07:00.0")
    domain, rest = value.split(":", 1)
    return f"{domain:0>8}:{rest}".upper()


def nvml_functions(value: Any) -> Any:
    """Names of C functions; the version suffix does not matter."""
    if not isinstance(value, list) or not all(isinstance(name, str) and name.startswith("nvml") for name in value):
        raise ValueError("expected a list of NVML functions such as nvmlDeviceGetMemoryInfo")
    return tuple(base_name(name) for name in value)


def _device_node(value: Any) -> Any:
    if not isinstance(value, str) or not re.fullmatch(_DEVICE_NODE, value):
        raise ValueError("expected a path such as /dev/gdrdrv")
    return value


def _version(value: Any) -> Any:
    if value is not None and (not isinstance(value, str) or not re.fullmatch(r"\d+(\.\d+)+", value)):
        raise ValueError('expected a version such as "580.95.05", in quotes if it has one dot')
    return value


def numa_node(value: Any) -> Any:
    """A number; text stands for a broken file in sysfs."""
    if isinstance(value, bool) or not isinstance(value, int | str | None):
        raise ValueError("expected a NUMA node's number, or null where the kernel knows none")
    return value


def _mig_profile(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("expected a MIG profile such as 1g.5gb")
    MigShape.parse(value)
    return value


def compute_capability_of(value: Any) -> Any:
    if value is None:
        return None
    if not isinstance(value, str) or not re.fullmatch(r"\d+\.\d+", value):
        raise ValueError('expected a quoted compute capability such as "8.0"')
    major, minor = value.split(".")
    return int(major), int(minor)


_AS_TUPLE = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)  # YAML has lists
Functions = Annotated[tuple[str, ...], BeforeValidator(nvml_functions)]
MigProfile = Annotated[str, BeforeValidator(_mig_profile)]
Version = Annotated[str | None, BeforeValidator(_version)]


class MigEntry(_Part):
    """One MIG device. A bare profile stands for an entry with only that."""

    profile: MigProfile
    uuid: str | None = None
    gpu_instance: int | None = Field(default=None, ge=0)
    compute_instance: int | None = Field(default=None, ge=0)
    memory_mib: int | None = Field(default=None, ge=1)
    unsupported: Functions = ()

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: Any) -> Any:
        return {"profile": value} if isinstance(value, str) else value

    @property
    def wanted(self) -> WantedInstance:
        return WantedInstance(
            profile=self.profile,
            uuid=self.uuid,
            gpu_instance=self.gpu_instance,
            compute_instance=self.compute_instance,
            memory_mib=self.memory_mib,
            unsupported=frozenset(self.unsupported),
        )


class GpuEntry(_Part):
    """One GPU. What is null or left out is "not supported" by the driver, where there is no other default."""

    name: str
    uuid: str | None = Field(default=None, pattern=r"^GPU-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")
    pci: Annotated[str, BeforeValidator(pci_as_nvml)] | None = None
    minor: int | None = Field(default=None, ge=0)
    memory_mib: int | None = Field(default=None, ge=1)
    compute_capability: Annotated[tuple[int, int] | None, BeforeValidator(compute_capability_of)] = None
    compute_mode: Literal["default", "exclusive-thread", "prohibited", "exclusive-process"] | None = "default"
    addressing_mode: Literal["none", "hmm", "ats"] | None = None
    numa: Annotated[Any, BeforeValidator(numa_node)] = None
    mig_capable: bool = False
    mig_enabled: bool = False
    mig: Annotated[tuple[MigEntry, ...], _AS_TUPLE] = ()
    nvswitch_links: int = Field(default=0, ge=0, le=36)
    events: bool = True
    ecc_uncorrectable: int | None = Field(default=None, ge=0)
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: Literal["none", "reset", "reboot", "drain-p2p", "drain-and-reset"] | None = None
    fabric_state: Literal["not-started", "in-progress", "completed"] | None = None
    fabric_status: int = Field(default=0, ge=0)
    lost: bool = False
    unsupported: Functions = ()

    @model_validator(mode="after")
    def _mig_needs_its_mode(self) -> GpuEntry:
        if self.mig and not self.mig_enabled:
            raise ValueError("a GPU with MIG devices needs migEnabled: true")
        if self.mig_enabled and not self.mig_capable:
            raise ValueError("migEnabled: true needs migCapable: true")
        return self


def _pcie_matrix(value: str | None) -> str | None:
    """Levels, each the same both ways or stated once."""
    found = dict(_cells(value))
    for (source, target), cell in found.items():
        if cell != _NOTHING and cell not in _PCIE_LEVELS:
            known = ", ".join(_PCIE_LEVELS)
            raise ValueError(
                f"GPU {source} to GPU {target}: expected one of {known}, or {_NOTHING} for what NUMA says, not {cell!r}"
            )
        back = found.get((target, source), cell)
        if cell != back and _NOTHING not in (cell, back):
            raise ValueError(f"GPU {source} to GPU {target} is {cell}, but GPU {target} to GPU {source} is {back}")
    return value


def _nvlink_matrix(value: str | None) -> str | None:
    """Numbers of links. A PCIe level stands where `nvidia-smi topo -m` has no NVLinks to show."""
    for (source, target), cell in _cells(value):
        if cell != _NOTHING and cell not in _PCIE_LEVELS and not re.fullmatch(_NVLINKS, cell):
            expected = f"a number such as 2 or NV2, or {_NOTHING} for none"
            raise ValueError(f"GPU {source} to GPU {target}: expected {expected}, not {cell!r}")
    return value


class Links(_Part):
    """How the GPUs are joined: text matrices, one row for each GPU, the diagonal ignored."""

    pcie: Annotated[str | None, AfterValidator(_pcie_matrix)] = None
    nvlink: Annotated[str | None, AfterValidator(_nvlink_matrix)] = None


class NodeProfile(_Part):
    """A whole node. Its `faults` are still data here: `parse_profile` makes them the steps of a script, if there are any."""

    name: str = Field(min_length=1)
    description: str = ""
    driver_version: Version = None
    cuda_version: Annotated[str, BeforeValidator(_version)] = "12.4"
    gpu_defaults: dict[str, Any] = Field(default_factory=dict)
    gpus: Annotated[tuple[GpuEntry, ...], _AS_TUPLE] = ()
    links: Links = Links()
    missing_symbols: Annotated[tuple[str, ...], _AS_TUPLE] = ()
    imex_channels: Annotated[tuple[Annotated[int, Field(ge=0)], ...], _AS_TUPLE] = ()
    device_nodes: Annotated[tuple[Annotated[str, BeforeValidator(_device_node)], ...], _AS_TUPLE] = ()
    faults: Annotated[tuple[Any, ...], _AS_TUPLE] = ()

    @model_validator(mode="before")
    @classmethod
    def _fill_in_defaults(cls, value: Any) -> Any:
        """Each GPU is `gpuDefaults` with its own keys on top."""
        if not isinstance(value, dict):
            return value
        defaults, gpus = value.get("gpuDefaults") or {}, value.get("gpus")
        if not isinstance(defaults, dict) or not isinstance(gpus, list):
            return value
        return {**value, "gpus": [{**defaults, **gpu} if isinstance(gpu, dict) else gpu for gpu in gpus]}

    @model_validator(mode="after")
    def _matrices_fit(self) -> NodeProfile:
        for name, text in (("pcie", self.links.pcie), ("nvlink", self.links.nvlink)):
            rows = _rows(text)
            if text is not None and (len(rows) != len(self.gpus) or any(len(row) != len(self.gpus) for row in rows)):
                raise ValueError(f"links.{name} must have {len(self.gpus)} rows of {len(self.gpus)} entries, one for each GPU")
        return self


def load_profile(name_or_path: str | Path) -> NodeProfile:
    """The shipped profile of that name, or the one in that file. Raises `ConfigError` with every problem and its place."""
    path = profile_path(name_or_path)
    return parse_profile(read_profile(path), path)


def read_profile(path: Path) -> bytes:
    """What a profile's file holds. Raises `ConfigError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        is_missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        found = "there is no such node profile" if is_missing else f"cannot be read: {error.strerror or error}"
        message = f"{found}; give a YAML file or one of: {', '.join(shipped_profiles())}"
        raise ConfigError([Problem(Severity.ERROR, ProblemKind.CONFIG, message, Origin(str(path)))]) from error


def profile_path(name_or_path: str | Path) -> Path:
    """The file behind a shipped profile's name, or the path itself."""
    return PROFILES / f"{name_or_path}.yaml" if str(name_or_path) in shipped_profiles() else Path(name_or_path)


def shipped_profiles() -> tuple[str, ...]:
    """The names of the profiles that come with the project."""
    return tuple(sorted(path.stem for path in PROFILES.glob("*.yaml")))


def parse_profile(content: bytes | str, source: str | Path) -> NodeProfile:
    """A profile from YAML. Raises `ConfigError`."""
    text = decode(content, str(source)) if isinstance(content, bytes) else content
    document = PlacedYaml(text, str(source))
    data = document.data if document.data is not None else {}
    errors: list[ErrorDetails] = []
    profile = _validated(NodeProfile, data, errors)
    if isinstance(data, dict) and isinstance(data.get("faults"), list) and data["faults"]:
        from device_plugin.simulation.script import Script  # noqa: PLC0415 - its many models are half of a node's start

        script_errors: list[ErrorDetails] = []
        script = _validated(Script, {"faults": data["faults"]}, script_errors)
        errors += map(_without_kind, script_errors)
        if profile is not None and script is not None:
            profile = profile.model_copy(update={"faults": script.faults})
    if profile is None or errors:
        raise ConfigError(sorted((_problem(each, document) for each in errors), key=lambda problem: problem.origin))
    return profile


def _validated(model: type[M], data: object, errors: list[ErrorDetails]) -> M | None:
    """The model of that data, or None with what is wrong added to `errors`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        errors += error.errors(include_url=False)
        return None


def _without_kind(error: ErrorDetails) -> ErrorDetails:
    """pydantic puts the step's kind behind its number. That is no key, though a step of kind `xid` has one of that name."""
    number_and_before, behind_kind = error["loc"][:2], error["loc"][3:]
    return {**error, "loc": number_and_before + behind_kind}


def _problem(error: ErrorDetails, document: PlacedYaml) -> Problem:
    origin, message = document.origin(error["loc"]), error["msg"].removeprefix("Value error, ")
    return Problem(Severity.ERROR, ProblemKind.CONFIG, f"{origin.path}: {message}" if origin.path else message, origin)


def machine_from_profile(profile: NodeProfile) -> Machine:
    """The hardware that a profile describes. The same profile gives the same UUIDs in every process."""
    gpus = tuple(gpu_from_entry(profile.name, index, entry) for index, entry in enumerate(profile.gpus))
    uuids = [gpu.uuid for gpu in gpus]
    ancestors, nvlinks = {}, {}
    for (source, target), cell in _cells(profile.links.pcie):
        if cell != _NOTHING:
            ancestors[frozenset((uuids[source], uuids[target]))] = _PCIE_LEVELS[cell]
    for (source, target), cell in _cells(profile.links.nvlink):
        count = re.fullmatch(_NVLINKS, cell)
        if count and int(count[1]):
            nvlinks[uuids[source], uuids[target]] = int(count[1])
    major, minor = profile.cuda_version.split(".")[:2]
    return Machine(
        name=profile.name,
        driver_version=profile.driver_version,
        cuda_version=int(major) * 1000 + int(minor) * 10,
        gpus=gpus,
        ancestors=MappingProxyType(ancestors),
        nvlinks=MappingProxyType(nvlinks),
        missing_symbols=frozenset(profile.missing_symbols),
        imex_channels=profile.imex_channels,
        device_nodes=profile.device_nodes,
    )


def gpu_from_entry(node: str, index: int, entry: GpuEntry) -> SimulatedGpu:
    """The GPU at that place of a node, with what the entry leaves open filled in: UUID, minor number, PCI address."""
    gpu_uuid = entry.uuid or generated_uuid("GPU", node, index)
    memory_bytes = entry.memory_mib * 2**20 if entry.memory_mib is not None else None
    return SimulatedGpu(
        uuid=gpu_uuid,
        name=entry.name,
        pci_bus_id=entry.pci or f"00000000:{0x10 + index:02X}:00.0",
        minor=entry.minor if "minor" in entry.model_fields_set else index,
        memory_bytes=memory_bytes,
        compute_capability=entry.compute_capability,
        compute_mode=COMPUTE_MODES[entry.compute_mode] if entry.compute_mode else None,
        addressing_mode=ADDRESSING_MODES[entry.addressing_mode] if entry.addressing_mode else None,
        numa=entry.numa,
        mig_capable=entry.mig_capable,
        mig_enabled=entry.mig_enabled,
        mig=place_instances(gpu_uuid, memory_bytes, [each.wanted for each in entry.mig], ()),
        switch_links=entry.nvswitch_links,
        events=entry.events,
        ecc_uncorrectable=entry.ecc_uncorrectable,
        remap_pending=entry.remap_pending,
        remap_failed=entry.remap_failed,
        recovery_action=RECOVERY_ACTIONS[entry.recovery_action] if entry.recovery_action else None,
        fabric_state=FABRIC_STATES[entry.fabric_state] if entry.fabric_state else None,
        fabric_status=entry.fabric_status,
        lost=entry.lost,
        unsupported=frozenset(entry.unsupported),
    )


def _cells(text: str | None) -> Iterator[tuple[tuple[int, int], str]]:
    """What stands at each row and column but the diagonal, in upper case."""
    for row, cells in enumerate(_rows(text)):
        for column, cell in enumerate(cells):
            if row != column:
                yield (row, column), cell.upper()


def _rows(text: str | None) -> list[list[str]]:
    return [line.split() for line in (text or "").splitlines() if line.strip()]
