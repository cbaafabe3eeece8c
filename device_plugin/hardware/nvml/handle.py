"""NVML's handle of a GPU. Handles die with the driver's session, so they are looked up, not kept."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from device_plugin.errors import DriverError

if TYPE_CHECKING:
    from device_plugin.hardware.nvml.call import Calls


def find_handle(calls: Calls, gpu_uuid: str) -> pynvml._Device:
    """The handle of that GPU. Raises the driver's error if there is none.

    By its documentation NVML's look-up by UUID may fail because of *any* GPU that has fallen off the bus: it walks over all of
    them. Then this walks too, and passes over those that do not answer.
    """
    try:
        return calls.ask(gpu_uuid, pynvml.nvmlDeviceGetHandleByUUID, gpu_uuid)
    except DriverError as error:
        if error.code in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT, pynvml.NVML_ERROR_UNINITIALIZED):
            raise
        handle = _walk(calls, gpu_uuid)
        if handle is None:
            raise
        return handle


def _walk(calls: Calls, gpu_uuid: str) -> pynvml._Device | None:
    for index in range(calls.ask(None, pynvml.nvmlDeviceGetCount)):
        try:
            handle = calls.ask(str(index), pynvml.nvmlDeviceGetHandleByIndex, index)
            if calls.ask_text(str(index), pynvml.nvmlDeviceGetUUID, handle) == gpu_uuid:
                return handle
        except DriverError:
            continue
    return None
