"""What may change about a simulated GPU while its node runs, and into what: one rule for scripts and for calls by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from device_plugin.simulation.machine import SimulatedGpu
from device_plugin.simulation.values import (
    ADDRESSING_MODES,
    COMPUTE_MODES,
    FABRIC_STATES,
    RECOVERY_ACTIONS,
    compute_capability_of,
    numa_node,
    nvml_functions,
    pci_as_nvml,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def new_value(name: str, value: Any) -> Any:
    """A value as the field of that name holds it. Raises `ValueError` that says what was expected."""
    if value is None and "None" in SimulatedGpu.__annotations__[name]:
        return None
    return _READERS[name](value)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _text(value: Any) -> Any:
    if not isinstance(value, str):
        raise ValueError("expected text")
    return value


def _number(value: Any) -> Any:
    if not _is_number(value):
        raise ValueError("expected a whole number, 0 or more")
    return value


def _switch(value: Any) -> Any:
    if not isinstance(value, bool):
        raise ValueError("expected true or false")
    return value


def _one_of(words: Mapping[str, int]) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if isinstance(value, str) and value in words:
            return words[value]
        if not _is_number(value):
            raise ValueError(f"expected one of {', '.join(words)}, or NVML's number")
        return value

    return read


def _capability(value: Any) -> Any:
    """Also as two numbers, which is how a SimulatedGpu has it."""
    if isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value)):
        return tuple(value)
    return compute_capability_of(value)


def _unsupported(value: Any) -> Any:
    return frozenset(nvml_functions(list(value) if isinstance(value, tuple | set | frozenset) else value))


_READERS: dict[str, Callable[[Any], Any]] = {
    "name": _text,
    "pci_bus_id": pci_as_nvml,
    "minor": _number,
    "memory_bytes": _number,
    "compute_capability": _capability,
    "compute_mode": _one_of(COMPUTE_MODES),
    "addressing_mode": _one_of(ADDRESSING_MODES),
    "numa": numa_node,
    "mig_capable": _switch,
    "switch_links": _number,
    "events": _switch,
    "ecc_uncorrectable": _number,
    "remap_pending": _switch,
    "remap_failed": _switch,
    "recovery_action": _one_of(RECOVERY_ACTIONS),
    "fabric_state": _one_of(FABRIC_STATES),
    "fabric_status": _number,
    "lost": _switch,
    "unsupported": _unsupported,
}
CHANGEABLE = _READERS.keys()
