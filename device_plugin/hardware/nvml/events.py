"""A registered set of events: XIDs of some GPUs, waited for in slices."""

from __future__ import annotations

import ctypes
import math
import time
from typing import TYPE_CHECKING

import pynvml

from device_plugin.errors import DriverError, GpuLost, NotSupported
from device_plugin.hardware.driver import Event
from device_plugin.hardware.nvml.handle import find_handle

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from device_plugin.hardware.nvml.call import Calls

_WANTED = pynvml.nvmlEventTypeXidCriticalError | pynvml.nvmlEventTypeDoubleBitEccError | pynvml.nvmlEventTypeSingleBitEccError
_NO_INSTANCE = 0xFFFFFFFF  # in an event: "no GPU instance" and "no compute instance"


class NvmlEvents:
    """EventSource over one NVML event set. `is_open` says whether the driver session it belongs to still lives.

    A driver that has no events, or is older than the binding's way to wait for them (R450), is a known thing and no fault: waiting
    then just takes its time.
    """

    def __init__(self, calls: Calls, gpu_uuids: Sequence[str], is_open: Callable[[], bool]) -> None:
        self._calls, self._gpu_uuids, self._is_open = calls, tuple(gpu_uuids), is_open
        self._set: pynvml._EventSet | None = None
        self._has_no_events = False
        self._unwatched: dict[str, str] = {}
        self._uuids: dict[int | None, str] = {}  # by the address in the handle
        self._register(self._gpu_uuids)

    @property
    def unwatched(self) -> dict[str, str]:
        return dict(self._unwatched)

    def wait(self, timeout_seconds: float) -> Event | None:
        """The next XID, or None. NVML refuses to wait on a set with a lost GPU: then the set is made anew without that GPU."""
        if (self._set is None and not self._has_no_events) or not self._is_open():
            raise DriverError("nvmlEventSetWait", "the event source is closed", code=pynvml.NVML_ERROR_UNINITIALIZED)
        if self._set is None:
            time.sleep(timeout_seconds)
            return None
        try:
            data = self._calls.ask(None, pynvml.nvmlEventSetWait, self._set, math.ceil(timeout_seconds * 1000))
        except GpuLost:
            self._drop_lost()
            return None
        except NotSupported:
            self.close()
            self._has_no_events = True
            return None
        except DriverError as error:
            if error.code == pynvml.NVML_ERROR_TIMEOUT:
                return None
            raise
        if data.eventType != pynvml.nvmlEventTypeXidCriticalError:
            return None  # an ECC error: the probes read the counters, which say more
        return Event(
            xid=data.eventData,
            gpu_uuid=self._read_uuid(data.device),
            gpu_instance_id=_instance(data.gpuInstanceId),
            compute_instance_id=_instance(data.computeInstanceId),
        )

    def close(self) -> None:
        self._has_no_events = False
        if self._set is None:
            return
        events, self._set = self._set, None
        if self._is_open():
            self._calls.ask(None, pynvml.nvmlEventSetFree, events)

    def _register(self, gpu_uuids: Sequence[str]) -> None:
        try:
            self._set = self._calls.ask(None, pynvml.nvmlEventSetCreate)
        except NotSupported:
            self._has_no_events = True
            return
        for uuid in gpu_uuids:
            try:
                handle = find_handle(self._calls, uuid)
                self._uuids[_address(handle)] = uuid
                supported = self._calls.ask(uuid, pynvml.nvmlDeviceGetSupportedEventTypes, handle)
                if supported & _WANTED:
                    self._calls.ask(uuid, pynvml.nvmlDeviceRegisterEvents, handle, supported & _WANTED, self._set)
            except NotSupported:
                continue  # an old GPU without events: known, and no fault
            except DriverError as error:
                self._unwatched[uuid] = str(error)

    def _drop_lost(self) -> None:
        """Register again those GPUs that still answer. Raises `GpuLost` if that changes nothing, as waiting would fail again."""
        lost_before = len(self._unwatched)
        self.close()
        self._register([uuid for uuid in self._gpu_uuids if uuid not in self._unwatched])
        if len(self._unwatched) == lost_before:
            raise GpuLost(
                "nvmlEventSetWait", "a watched GPU is lost, but each of them still answers", code=pynvml.NVML_ERROR_GPU_IS_LOST
            )

    def _read_uuid(self, device: pynvml._Device) -> str | None:
        """Whose event it is. Known by the handle: a GPU that fell off the bus (XID 79) does not tell its UUID any more."""
        known = self._uuids.get(_address(device))
        if known is not None:
            return known
        try:
            return self._calls.ask_text(None, pynvml.nvmlDeviceGetUUID, device)
        except DriverError:
            return None


def _address(handle: pynvml._Device) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value  # type: ignore[arg-type]  # the stub keeps handles opaque; they are pointers


def _instance(number: int) -> int | None:
    return None if number == _NO_INSTANCE else number
