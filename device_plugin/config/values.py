"""The scalar values of the config: enumerations, resource names, durations, device selections. Each says what it expected."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema


class MigStrategy(StrEnum):
    """How MIG devices are offered."""

    NONE = "none"
    SINGLE = "single"
    MIXED = "mixed"


class DeviceListStrategy(StrEnum):
    """How the container runtime is told which devices a container gets."""

    ENVVAR = "envvar"
    VOLUME_MOUNTS = "volume-mounts"
    CDI_ANNOTATIONS = "cdi-annotations"
    CDI_CRI = "cdi-cri"

    @property
    def is_cdi(self) -> bool:
        return self in (DeviceListStrategy.CDI_ANNOTATIONS, DeviceListStrategy.CDI_CRI)


class DeviceIdStrategy(StrEnum):
    """Which name of a device is handed to the runtime."""

    UUID = "uuid"
    INDEX = "index"


class AllocationPolicy(StrEnum):
    """Which devices of a shared or MIG resource are preferred: spread over GPUs, filled up GPU by GPU, or strictly one per GPU."""

    DISTRIBUTED = "distributed"
    PACKED = "packed"
    DISTINCT = "distinct"


class DiscoveryStrategy(StrEnum):
    """Where devices are looked for."""

    AUTO = "auto"
    NVML = "nvml"
    TEGRA = "tegra"


class XidAction(StrEnum):
    """What an XID means for new work on its GPU."""

    IGNORE = "ignore"  # counted and logged, no cause
    UNTIL_RESET = "untilReset"  # until the recovery action and the probes are clean, or the GPU was gone and back
    UNTIL_REBOOT = "untilReboot"  # until the node's boot id changes
    ASK_DRIVER = "askDriver"  # as the driver's recovery action says


DEFAULT_DOMAIN = "nvidia.com"
_NAME = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def parse_resource_name(text: object) -> str:
    """The full name of an extended resource, `nvidia.com/` put before a name that has no domain.

    The rules are kubelet's for extended resources: one `/`, the domain a lower-case DNS-1123 subdomain of at most 244 characters,
    not under kubernetes.io and not starting with `requests.`, the name of at most 63 characters. Raises ValueError.
    """
    if not isinstance(text, str):
        raise ValueError(f"expected a resource name such as nvidia.com/gpu, not {text!r}")
    full = text if "/" in text else f"{DEFAULT_DOMAIN}/{text}"
    domain, _, name = full.partition("/")
    if "/" in name:
        raise ValueError(f"resource name {text!r} has more than one '/'; expected domain/name")
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"resource name {text!r}: the part after the domain must be letters, digits, '-', '_' or '.', "
            "and start and end with a letter or digit"
        )
    if len(name) > 63:
        raise ValueError(f"resource name {text!r}: the part after the domain has {len(name)} characters, at most 63 are allowed")
    if not all(_LABEL.fullmatch(label) for label in domain.split(".")):
        raise ValueError(
            f"resource name {text!r}: the domain must be lower-case letters, digits, '-' and '.' (a DNS-1123 subdomain)"
        )
    if len(domain) > 244:
        raise ValueError(f"resource name {text!r}: the domain has {len(domain)} characters, at most 244 are allowed")
    if domain.startswith("requests.") or "kubernetes.io/" in full:
        raise ValueError(f"resource name {text!r}: kubelet refuses the domain kubernetes.io and names starting with requests.")
    return full


_DURATION_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)")


def parse_duration(value: object) -> float:
    """Seconds from a Go duration (`60s`, `1h30m`, `0`). A bare number is refused: its unit would be a guess. Raises ValueError."""
    expected = "expected a duration with a unit, such as 30s, 5m or 1h30m"
    if not isinstance(value, str):
        raise ValueError(f"{expected}, not {value!r}")
    if value == "0":
        return 0.0
    seconds, end = 0.0, 0
    for match in _DURATION.finditer(value):
        if match.start() != end:
            break
        seconds += float(match[1]) * _DURATION_UNITS[match[2]]
        end = match.end()
    if not value or end != len(value):
        raise ValueError(f"{expected}, not {value!r}")
    return seconds


_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_INDEX_REF = re.compile(r"[0-9]+(:[0-9]+)?")
_UUID_REF = re.compile(rf"(?:GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/[0-9]+/[0-9]+")
_PCI = re.compile(r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]")


def parse_device_ref(value: object) -> str:
    """A GPU or MIG device named by index (`0`, `"0:1"`) or UUID, as text. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    if isinstance(value, str) and (_INDEX_REF.fullmatch(value) or _UUID_REF.fullmatch(value)):
        return value
    raise ValueError(f'{value!r} names no device; expected an index (0), a MIG index ("0:1"), GPU-<uuid> or MIG-<uuid>')


def parse_devices(value: object) -> str | int | tuple[str, ...]:
    """`all`, a count above 0, or a list of device references. Raises ValueError."""
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool):
        if value <= 0:
            raise ValueError(f"expected a count above 0, not {value}")
        return value
    if isinstance(value, (list, tuple)) and value:
        return tuple(parse_device_ref(item) for item in value)
    raise ValueError(f'expected "all", a count above 0, or a list of devices, not {value!r}')


def parse_gpu_selector(value: object) -> str:
    """A GPU chosen by index, UUID, PCI address or product pattern (`*` = any characters). Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError(f"{value!r} chooses no GPU; expected an index, GPU-<uuid>, a PCI address or a product pattern such as *A100*")


def is_pci_address(text: str) -> bool:
    return _PCI.fullmatch(text) is not None


ResourceName = Annotated[str, BeforeValidator(parse_resource_name)]
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    WithJsonSchema({"type": "string", "pattern": r"^(0|([0-9.]+(ns|us|µs|ms|s|m|h))+)$"}),
]
Devices = Annotated[
    Any,
    BeforeValidator(parse_devices),
    PlainSerializer(lambda value: list(value) if isinstance(value, tuple) else value),
    WithJsonSchema(
        {
            "oneOf": [
                {"const": "all"},
                {"type": "integer", "minimum": 1},
                {"type": "array", "minItems": 1, "items": {"type": ["integer", "string"]}},
            ]
        }
    ),
]
GpuSelector = Annotated[str, BeforeValidator(parse_gpu_selector), WithJsonSchema({"type": ["integer", "string"]})]
