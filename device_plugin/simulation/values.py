"""The words and values of a node profile: what each may be, and what it is in NVML."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator

from device_plugin.simulation.live import base_name
from device_plugin.simulation.machine import MigShape

COMPUTE_MODES = {"default": 0, "exclusive-thread": 1, "prohibited": 2, "exclusive-process": 3}
ADDRESSING_MODES = {"none": 0, "hmm": 1, "ats": 2}
RECOVERY_ACTIONS = {"none": 0, "reset": 1, "reboot": 2, "drain-p2p": 3, "drain-and-reset": 4}
FABRIC_STATES = {"not-started": 1, "in-progress": 2, "completed": 3}
_DEVICE_NODE = r"/dev(/[A-Za-z0-9_][A-Za-z0-9_.-]*)+"  # never out of the simulated root: nodes are made, and removed again
_PCI = r"(?:[0-9a-fA-F]{4}){1,2}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"


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


AS_TUPLE = BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value)  # YAML has lists
Functions = Annotated[tuple[str, ...], BeforeValidator(nvml_functions)]
MigProfile = Annotated[str, BeforeValidator(_mig_profile)]
IS_VERSION = BeforeValidator(_version)
Version = Annotated[str | None, IS_VERSION]
PciAddress = Annotated[str, BeforeValidator(pci_as_nvml)]
DevicePath = Annotated[str, BeforeValidator(_device_node)]
