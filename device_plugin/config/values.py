"""The scalar values of the config: enumerations, resource names, device selections, paths. Each says what it expected."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema


def shown(value: object) -> str:
    """A value as a message shows it: as it would stand in the file, and never long."""
    match value:
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case str():
            return repr(value if len(value) <= 60 else f"{value[:57]}...") if value else "an empty text"
        case dict():
            return "a mapping"
        case list() | tuple():
            return "a list" if value else "an empty list"
        case _:
            return str(value)


def shown_word(text: str) -> str:
    """A text as a message shows it without quotes; quoted where it would spoil the line, which a line break makes two of."""
    return text if text.isprintable() and len(text) <= 60 else shown(text)


def shown_fraction(text: str) -> str:
    """The text of a number as a message shows it."""
    return text if len(text) <= 60 else f"{text[:57]}..."


def camel_case(name: str) -> str:
    """The key of a field: `mig_strategy` is `migStrategy`. Pydantic's own function is a tenth of what making the models costs."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


class InvalidItems(ValueError):
    """Items of a list are wrong, each told apart by its index, so that each can be shown at its own place."""

    def __init__(self, items: dict[int, str]) -> None:
        self.items = items
        super().__init__("; ".join(items.values()))


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
_NAME = r"[A-Za-z0-9]([-_.A-Za-z0-9]*[A-Za-z0-9])?"
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"


def parse_resource_name(text: object) -> str:
    """The full name of an extended resource, `nvidia.com/` put before a name that has no domain.

    The rules are kubelet's for extended resources: one `/`, the domain a lower-case DNS-1123 subdomain of at most 244 characters,
    not under kubernetes.io and not starting with `requests.`, the name of at most 63 characters. Raises ValueError.
    """
    if not isinstance(text, str):
        raise ValueError(f"expected a resource name such as nvidia.com/gpu, not {shown(text)}")
    full = text if "/" in text else f"{DEFAULT_DOMAIN}/{text}"
    domain, _, name = full.partition("/")
    if "/" in name:
        raise ValueError(f"resource name {text!r} has more than one '/'; expected domain/name")
    if not re.fullmatch(_NAME, name):
        raise ValueError(
            f"resource name {text!r}: the part after the domain must be letters, digits, '-', '_' or '.', "
            "and start and end with a letter or digit"
        )
    if len(name) > 63:
        raise ValueError(f"resource name {text!r}: the part after the domain has {len(name)} characters, at most 63 are allowed")
    if not all(re.fullmatch(_LABEL, label) for label in domain.split(".")):
        raise ValueError(
            f"resource name {text!r}: the domain must be lower-case letters, digits, '-' and '.' (a DNS-1123 subdomain)"
        )
    if len(domain) > 244:
        raise ValueError(f"resource name {text!r}: the domain has {len(domain)} characters, at most 244 are allowed")
    if domain.startswith("requests.") or "kubernetes.io/" in full:
        raise ValueError(f"resource name {text!r}: kubelet refuses the domain kubernetes.io and names starting with requests.")
    return full


_UUID = r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
_INDEX_REF = r"[0-9]{1,9}(:[0-9]{1,9})?"
_UUID_REF = rf"(?:GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/[0-9]+/[0-9]+"
_PCI = r"(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"


def parse_device_ref(value: object) -> str:
    """A GPU or MIG device named by index (`0`, `"0:1"`) or UUID, as text, in one spelling per device. Raises ValueError."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**9:
        return str(value)
    if isinstance(value, str):
        if re.fullmatch(_INDEX_REF, value):
            return ":".join(str(int(part)) for part in value.split(":"))
        if re.fullmatch(_UUID_REF, value):
            return re.sub(_UUID, lambda uuid: uuid[0].lower(), value)
    raise ValueError(f'{shown(value)} names no device; expected an index (0), a MIG index ("0:1"), GPU-<uuid> or MIG-<uuid>')


def parse_devices(value: object) -> str | int | tuple[str, ...]:
    """`all`, a count above 0, or a list of device references. Raises ValueError, for wrong references InvalidItems."""
    if value == "all":
        return "all"
    if isinstance(value, int) and not isinstance(value, bool):
        if value <= 0:
            raise ValueError(f"expected a count above 0, not {value}")
        return value
    if isinstance(value, (list, tuple)) and value:
        return _parse_items(value)
    raise ValueError(f'expected "all", a count above 0, or a list of devices, not {shown(value)}')


def _parse_items(values: list[object] | tuple[object, ...]) -> tuple[str, ...]:
    parsed: dict[str, None] = {}
    wrong: dict[int, str] = {}
    for index, item in enumerate(values):
        try:
            ref = parse_device_ref(item)
        except ValueError as error:
            wrong[index] = str(error)
            continue
        if ref in parsed:
            wrong[index] = f"device {ref} is named twice in this list"
        parsed[ref] = None
    if wrong:
        raise InvalidItems(wrong)
    return tuple(parsed)


def parse_gpu_selector(value: object) -> str:
    """A GPU chosen by index, UUID, PCI address or product pattern (`*` = any characters). Raises ValueError."""
    expected = "expected an index, GPU-<uuid>, a PCI address or a product pattern such as *A100*"
    if isinstance(value, str) and re.match(r"[0-9]+:[0-9]+$|MIG-", value, re.IGNORECASE):
        raise ValueError(f"{shown(value)} means a MIG device, and whole GPUs are chosen here; {expected}")
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return str(value)
    if isinstance(value, str) and value.strip():
        return value
    raise ValueError(f"{shown(value)} chooses no GPU; {expected}")


def matches_pattern(pattern: str, text: str) -> bool:
    """Whether the whole text is what the pattern says: `*` stands for any characters, all else for itself (case counts).

    The peer's pattern language since its v0.20.0; before, it looked for the pattern anywhere in the text, so that `1g.24gb`
    swallowed `1g.24gb+gfx` (NVIDIA/k8s-device-plugin#1807). Takes linear time.
    """
    first, *middle = pattern.split("*")
    if not middle:
        return pattern == text
    last = middle.pop()
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    rest = text[len(first) : len(text) - len(last)]
    for part in middle:
        _, found, rest = rest.partition(part) if part else ("", "*", rest)
        if not found:
            return False
    return True


def is_pci_address(text: str) -> bool:
    return re.fullmatch(_PCI, text) is not None


def parse_driver_root(value: object) -> str:
    """The absolute path of a directory; empty means `/`, as for the peer. Raises ValueError."""
    return "/" if value == "" else parse_path(value)


def parse_optional_path(value: object) -> str | None:
    """An absolute path, or None for an empty text. Raises ValueError."""
    return None if value in ("", None) else parse_path(value)


def parse_path(value: object) -> str:
    """An absolute path. Raises ValueError."""
    if not isinstance(value, str) or not value.startswith("/") or not value.isprintable():
        raise ValueError(f"expected an absolute path, not {shown(value)}")
    return value


def parse_annotation_prefix(value: object) -> str:
    """What stands before the name in an annotation's key: a domain and its slash. Raises ValueError."""
    if isinstance(value, str) and value.endswith("/") and len(value) <= 254:
        domain = value[:-1]
        if all(re.fullmatch(_LABEL, label) for label in domain.split(".")):
            return value
    raise ValueError(f"expected a lower-case domain that ends with a slash, such as cdi.k8s.io/, not {shown(value)}")


def parse_version(value: object) -> str:
    """The format's version; empty means v1. Raises ValueError."""
    if value in ("", "v1"):
        return "v1"
    raise ValueError(f'expected "v1", the one format there is, not {shown(value)}')


_DOMAIN_SCHEMA = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
_NAME_SCHEMA = {
    "type": "string",
    "pattern": rf"^(?!requests\..*/|.*kubernetes\.io/)((?=[^/]{{1,244}}/){_DOMAIN_SCHEMA}/)?"
    r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?$",
}
_INDEX_SCHEMA = {"type": "integer", "minimum": 0}
_PATH_SCHEMA = {"type": "string", "pattern": "^(/.*)?$"}
_SELECTOR_SCHEMA = {"type": "string", "pattern": r"^(?![0-9]+:[0-9]+$|[Mm][Ii][Gg]-)\s*\S"}
_DEVICE_SCHEMA = {
    "anyOf": [
        _INDEX_SCHEMA,
        {"type": "string", "pattern": rf"^([0-9]{{1,9}}(:[0-9]{{1,9}})?|(GPU|MIG)-{_UUID}|MIG-GPU-{_UUID}/[0-9]+/[0-9]+)$"},
    ]
}
ResourceName = Annotated[str, BeforeValidator(parse_resource_name), WithJsonSchema(_NAME_SCHEMA)]
Devices = Annotated[
    Any,
    BeforeValidator(parse_devices),
    PlainSerializer(lambda value: list(value) if isinstance(value, tuple) else value),
    WithJsonSchema(
        {"anyOf": [{"const": "all"}, {"type": "integer", "minimum": 1}, {"type": "array", "minItems": 1, "items": _DEVICE_SCHEMA}]}
    ),
]
GpuSelector = Annotated[str, BeforeValidator(parse_gpu_selector), WithJsonSchema({"anyOf": [_INDEX_SCHEMA, _SELECTOR_SCHEMA]})]
DriverRoot = Annotated[str, BeforeValidator(parse_driver_root), WithJsonSchema(_PATH_SCHEMA)]
OptionalPath = Annotated[str | None, BeforeValidator(parse_optional_path), WithJsonSchema(_PATH_SCHEMA)]
HostPath = Annotated[str, BeforeValidator(parse_path), WithJsonSchema({"type": "string", "pattern": "^/"})]
AnnotationPrefix = Annotated[
    str,
    BeforeValidator(parse_annotation_prefix),
    WithJsonSchema({"type": "string", "maxLength": 254, "pattern": rf"^{_DOMAIN_SCHEMA}/$"}),
]
Version = Annotated[str, BeforeValidator(parse_version), WithJsonSchema({"enum": ["v1", ""]})]
