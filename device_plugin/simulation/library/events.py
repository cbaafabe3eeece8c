"""The functions about event sets. Waiting blocks without holding anything, as in C."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pynvml

from device_plugin.simulation.library.session import Refusal, Target, address, number, put, put_handle, struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from device_plugin.simulation.library.session import Session
    from device_plugin.simulation.live import HardwareEvent

_SUPPORTED = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError | pynvml.nvmlEventTypeSingleBitEccError
_NO_INSTANCE = 0xFFFFFFFF


def create(session: Session, event_set: Any) -> None:
    put_handle(event_set, session.add_event_set())


def free(session: Session, event_set: Any) -> None:
    session.event_set(event_set)
    del session.event_sets[address(event_set)]


def get_supported_types(session: Session, device: Any, types: Any) -> None:
    put(types, _SUPPORTED if session.gpu(device).events else 0)


def register(session: Session, device: Any, types: Any, event_set: Any) -> None:
    gpu = session.gpu(device)
    if not gpu.events or number(types) & ~_SUPPORTED:
        raise Refusal(pynvml.NVML_ERROR_NOT_SUPPORTED)
    session.event_set(event_set).types[gpu.uuid] = number(types)


def wait(session: Session, is_alive: Callable[[], bool], event_set: Any, data: Any, timeout_ms: Any) -> None:
    """The next event; "timeout" if none comes; "GPU is lost" at once, every time, while a registered GPU is lost."""
    changed = session.live.changed
    deadline = time.monotonic() + number(timeout_ms) / 1000
    while True:
        if not is_alive():
            raise Refusal(pynvml.NVML_ERROR_UNINITIALIZED)
        events = session.event_set(event_set)
        if events.queue:
            _fill(session, struct(data), events.queue.popleft())
            return
        for gpu_uuid in events.types:
            session.present(gpu_uuid)
        remaining = deadline - time.monotonic()
        if remaining <= 0 or session.live.is_closed:
            raise Refusal(pynvml.NVML_ERROR_TIMEOUT)
        changed.wait(remaining)


def deliver(session: Session, event: HardwareEvent) -> None:
    """Queue the event in every set that asked for it. One of a GPU that cannot be named goes to every set."""
    for events in session.event_sets.values():
        if event.gpu_uuid is None or events.types.get(event.gpu_uuid, 0) & event.event_type:
            events.queue.append(event)


def _fill(session: Session, data: Any, event: HardwareEvent) -> None:
    data.eventType, data.eventData = event.event_type, event.data
    data.gpuInstanceId = _NO_INSTANCE if event.gpu_instance is None else event.gpu_instance
    data.computeInstanceId = _NO_INSTANCE if event.compute_instance is None else event.compute_instance
    if event.gpu_uuid is not None:
        handle_type = dict(data._fields_)["device"]
        handle = handle_type()
        put_handle(_Reference(handle), session.handle(Target(event.gpu_uuid)))
        data.device = handle


class _Reference:
    """What `byref` gives, for our own use of `put_handle`."""

    def __init__(self, target: Any) -> None:
        self._obj = target


FUNCTIONS: dict[str, Callable[..., None]] = {
    "nvmlEventSetCreate": create,
    "nvmlEventSetFree": free,
    "nvmlDeviceGetSupportedEventTypes": get_supported_types,
    "nvmlDeviceRegisterEvents": register,
}
