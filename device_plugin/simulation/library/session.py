"""One NVML session: the device table taken at initialisation, and the handles that die with it."""

from __future__ import annotations

import ctypes
import itertools
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pynvml

from device_plugin.records import record

if TYPE_CHECKING:
    from device_plugin.simulation.live import HardwareEvent, LiveMachine
    from device_plugin.simulation.machine import Machine, MigInstance, SimulatedGpu

# Handles are never used twice in a process, so one kept from an earlier session is always recognised as invalid.
_handles = itertools.count(0x5100_0000, 16)


class Refusal(Exception):
    """A function returns `code` instead of success."""

    def __init__(self, code: int) -> None:
        self.code = code
        super().__init__(code)


@record
class Target:
    """What a handle stands for: a GPU, one of its MIG devices, or one of its GPU instances."""

    gpu_uuid: str
    mig_uuid: str | None = None
    gpu_instance: int | None = None


@dataclass(slots=True)
class EventSet:
    """Event types by GPU, and what has come."""

    types: dict[str, int] = field(default_factory=dict)
    queue: deque[HardwareEvent] = field(default_factory=deque)


class Session:
    """From the first nvmlInit to the last nvmlShutdown. GPUs added later are not in its table; removed ones stay in it, lost."""

    def __init__(self, live: LiveMachine) -> None:
        self.live = live
        self.driver_load = live.driver_loads
        self.gpu_uuids = tuple(gpu.uuid for gpu in live.machine.gpus)
        self.event_sets: dict[int, EventSet] = {}
        self._targets: dict[int, Target] = {}
        self._handles: dict[Target, int] = {}

    @property
    def machine(self) -> Machine:
        return self.live.machine

    def handle(self, target: Target) -> int:
        if target not in self._handles:
            self._handles[target] = next(_handles)
            self._targets[self._handles[target]] = target
        return self._handles[target]

    def add_event_set(self) -> int:
        number = next(_handles)
        self.event_sets[number] = EventSet()
        return number

    def event_set(self, argument: Any) -> EventSet:
        found = self.event_sets.get(address(argument))
        if found is None:
            raise Refusal(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return found

    def target(self, argument: Any) -> Target:
        found = self._targets.get(address(argument))
        if found is None:
            raise Refusal(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return found

    def gpu(self, argument: Any) -> SimulatedGpu:
        """The GPU behind a handle of it or of one of its MIG devices."""
        return self.present(self.target(argument).gpu_uuid)

    def present(self, gpu_uuid: str) -> SimulatedGpu:
        gpu = self.machine.gpu(gpu_uuid)
        if gpu is None or gpu.lost:
            raise Refusal(pynvml.NVML_ERROR_GPU_IS_LOST)
        return gpu

    def mig(self, argument: Any) -> MigInstance | None:
        """The MIG device behind a handle, None if it is a GPU's. A destroyed one's handle is invalid."""
        target = self.target(argument)
        if target.mig_uuid is None:
            return None
        for instance in self.present(target.gpu_uuid).mig:
            if instance.uuid == target.mig_uuid:
                return instance
        raise Refusal(pynvml.NVML_ERROR_INVALID_ARGUMENT)


def address(argument: Any) -> int:
    """The number in a handle passed by value."""
    return ctypes.cast(argument, ctypes.c_void_p).value or 0


def number(argument: Any) -> int:
    """An integer argument: pynvml passes some as ctypes integers, some as Python's."""
    return int(getattr(argument, "value", argument))


def put(reference: Any, value: int) -> None:
    """Write an integer through a pointer argument."""
    reference._obj.value = value  # noqa: SLF001 - the object behind byref(), which has no public name


def put_handle(reference: Any, handle: int) -> None:
    """Write a handle through a pointer argument."""
    ctypes.c_void_p.from_buffer(reference._obj).value = handle  # noqa: SLF001 - as above


def put_text(buffer: Any, size: Any, text: str) -> None:
    """Write text and its NUL into a character array, if it fits."""
    data = text.encode()
    if len(data) + 1 > number(size):
        raise Refusal(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
    buffer.value = data


def struct(reference: Any) -> Any:
    """The structure behind a pointer argument."""
    return reference._obj  # noqa: SLF001 - as above


def known(value: Any) -> Any:
    """The value, or "not supported" where the machine has none."""
    if value is None:
        raise Refusal(pynvml.NVML_ERROR_NOT_SUPPORTED)
    return value
