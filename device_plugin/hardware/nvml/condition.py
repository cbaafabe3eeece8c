"""A GPU's condition now: what the driver counts, remaps, asks for. What it does not have is None; what it fails at is named."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any, TypeVar

import pynvml

from device_plugin.errors import DriverError, GpuLost, NotSupported
from device_plugin.hardware.driver import Probe, RecoveryAction
from device_plugin.hardware.nvml.handle import find_handle

if TYPE_CHECKING:
    from collections.abc import Callable

    from device_plugin.hardware.nvml.call import Calls

T = TypeVar("T")


def read_condition(calls: Calls, gpu_uuid: str, *, is_on_switches: Callable[[], bool]) -> Probe:
    """Never raises `DriverError`. `is_on_switches` is asked only while the GPU answers."""
    unknown: list[str] = []

    def known(what: str, read: Callable[[Calls, str, pynvml._Device], T | None]) -> T | None:
        try:
            return read(calls, gpu_uuid, handle)
        except NotSupported:
            return None
        except GpuLost:
            raise
        except DriverError as error:
            unknown.append(f"{what}: {error}")
            return None

    try:
        handle = find_handle(calls, gpu_uuid)
        errors = known("ecc_uncorrectable", _read_ecc_uncorrectable)
        rows = known("remapped_rows", _read_remapped_rows)
        action = known("recovery_action", _read_recovery_action)
        fabric = known("fabric", _read_fabric) if is_on_switches() else None
    except GpuLost as error:
        return Probe(gpu_uuid, lost=str(error), unknown=tuple(unknown))
    except DriverError as error:  # only the look-up of the handle ends here
        if error.code in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT):
            return Probe(gpu_uuid, lost=str(error))
        return Probe(gpu_uuid, unknown=(f"handle: {error}",))
    return Probe(
        gpu_uuid=gpu_uuid,
        ecc_uncorrectable=errors,
        remap_pending=rows[0] if rows else None,
        remap_failed=rows[1] if rows else None,
        recovery_action=action,
        fabric_state=fabric[0] if fabric else None,
        fabric_status=fabric[1] if fabric else None,
        unknown=tuple(unknown),
    )


def _read_ecc_uncorrectable(calls: Calls, subject: str, handle: pynvml._Device) -> int | None:
    """Uncorrectable errors since the last reset; without a total (it is on its way out), the sum over the places that count."""
    kind, since_reset = pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, pynvml.NVML_VOLATILE_ECC
    try:
        return calls.ask(subject, pynvml.nvmlDeviceGetTotalEccErrors, handle, kind, since_reset)
    except NotSupported:
        pass
    total = None
    for location in range(pynvml.NVML_MEMORY_LOCATION_COUNT):
        try:
            count = calls.ask(subject, pynvml.nvmlDeviceGetMemoryErrorCounter, handle, kind, since_reset, location)
        except NotSupported:
            continue
        total = (total or 0) + count
    return total


def _read_remapped_rows(calls: Calls, subject: str, handle: pynvml._Device) -> tuple[bool, bool]:
    """Whether a remapping waits for a reset, and whether one has failed."""
    _, _, pending, failed = calls.ask(subject, pynvml.nvmlDeviceGetRemappedRows, handle)
    return bool(pending), bool(failed)


def _read_recovery_action(calls: Calls, subject: str, handle: pynvml._Device) -> RecoveryAction:
    field = pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
    answer = calls.ask(subject, _field_value, handle, field)
    try:
        return RecoveryAction(answer)
    except ValueError:
        raise DriverError("nvmlDeviceGetFieldValues", f"recovery action {answer} is not known here", subject=subject) from None


def _field_value(handle: pynvml._Device, field: int) -> int:
    """One unsigned field. NVML answers the call as a whole and each field on its own."""
    value = pynvml.nvmlDeviceGetFieldValues(handle, [field])[0]
    if value.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(value.nvmlReturn)
    return value.value.uiVal if value.valueType == pynvml.NVML_VALUE_TYPE_UNSIGNED_INT else value.value.ullVal


def _read_fabric(calls: Calls, subject: str, handle: pynvml._Device) -> tuple[int, int] | None:
    """State and status of the registration with the NVLink fabric, in the newest form the library knows. None: no fabric here."""
    forms: tuple[tuple[Callable[[pynvml._Device, Any], int], type[pynvml.c_nvmlGpuFabricInfo_t]], ...] = (
        (pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.c_nvmlGpuFabricInfo_v3_t),
        (pynvml.nvmlDeviceGetGpuFabricInfoV, pynvml.c_nvmlGpuFabricInfo_v2_t),
        (pynvml.nvmlDeviceGetGpuFabricInfo, pynvml.c_nvmlGpuFabricInfo_t),
    )
    for function, form in forms:
        info = form()
        try:
            calls.ask(subject, function, handle, ctypes.byref(info))
        except NotSupported:
            continue
        if info.state == pynvml.NVML_GPU_FABRIC_STATE_NOT_SUPPORTED:
            return None
        return info.state, info.status
    return None
