"""One GPU and its MIG devices, as NVML describes them. Everything optional is optional."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

import pynvml

from device_plugin.errors import DriverError, GpuLost, NoPermission, NotSupported
from device_plugin.hardware.model import ComputeMode, Gpu, MigAttributes, MigDevice
from device_plugin.hardware.nvml.call import field_text
from device_plugin.hardware.nvml.mig_profile import read_profile

if TYPE_CHECKING:
    from collections.abc import Callable

    from device_plugin.hardware.nvml.call import Calls

P = ParamSpec("P")
T = TypeVar("T")

# The display adapter of a DGX Station: NVML counts it, nobody computes on it. Its index is not used again.
_NOT_FOR_COMPUTING = frozenset({"DGX Display", "NVIDIA DGX Display"})

_COMPUTE_MODES = {mode.value: mode for mode in ComputeMode}

_MIG_CAPABILITY = (
    "this container lacks the MIG monitor capability: set NVIDIA_MIG_MONITOR_DEVICES=all on the plugin's container, "
    "which also needs CAP_SYS_ADMIN for it"
)


_NO_DEVICE_THERE = frozenset(
    (pynvml.nvmlDeviceGetMigDeviceHandleByIndex.__name__, code)
    for code in (pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT)
)


# How drivers before R470 name MIG devices: by GPU, GPU instance and compute instance.
_OLD_MIG_NAME = r"MIG-GPU-[0-9A-Fa-f-]+/([0-9]+)/([0-9]+)"


class _Reader:
    """Asks about one handle. Keeps what could not be read and matters as `faults`."""

    def __init__(self, calls: Calls, subject: str, handle: pynvml._Device) -> None:
        self.calls, self.subject, self.handle = calls, subject, handle
        self.faults: list[str] = []

    def if_supported(self, function: Callable[Concatenate[pynvml._Device, P], T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """The answer; None where the property is not supported. Raises any other `DriverError`."""
        try:
            return self.calls.ask(self.subject, function, self.handle, *args, **kwargs)
        except NotSupported:
            return None

    def optional(
        self, what: str, function: Callable[Concatenate[pynvml._Device, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T | None:
        """The answer; None where the property is not supported, and with a fault where asking failed. Raises only `GpuLost`."""
        try:
            return self.if_supported(function, *args, **kwargs)
        except GpuLost:
            raise
        except DriverError as error:
            self.faults.append(f"its {what} cannot be read: {error}")
            return None


def read_gpu(calls: Calls, index: int) -> Gpu:
    """The GPU at that index. Raises `NotSupported` for one that is not for computing, `DriverError` for one that cannot be offered.

    That is one without an identity, or one of which the driver would not say whether and how it is split: offered whole, it could
    stand beside its own MIG devices.
    """
    handle = _needed(calls.ask, str(index), pynvml.nvmlDeviceGetHandleByIndex, index)
    name, name_fault = _read_name(calls, index, handle)
    if name in _NOT_FOR_COMPUTING:
        raise NotSupported("nvmlDeviceGetName", f"{name} is a display adapter and is not offered", subject=str(index))
    uuid = _needed(calls.ask_text, str(index), pynvml.nvmlDeviceGetUUID, handle)
    reader = _Reader(calls, uuid, handle)
    reader.faults += name_fault
    memory = reader.optional("memory size", pynvml.nvmlDeviceGetMemoryInfo)
    pci = reader.optional("PCI address", pynvml.nvmlDeviceGetPciInfo)
    capability = reader.optional("compute capability", pynvml.nvmlDeviceGetCudaComputeCapability)
    mode = reader.optional("compute mode", pynvml.nvmlDeviceGetComputeMode)
    addressing = reader.optional("addressing mode", pynvml.nvmlDeviceGetAddressingMode)
    minor = reader.optional("minor number", pynvml.nvmlDeviceGetMinorNumber)
    mig_mode = reader.if_supported(pynvml.nvmlDeviceGetMigMode)
    mig_enabled = mig_mode is not None and mig_mode[0] == pynvml.NVML_DEVICE_MIG_ENABLE
    total_bytes = memory.total if memory is not None else None
    return Gpu(
        index=index,
        uuid=uuid,
        name=name,
        minor=minor,
        pci_bus_id=(field_text(pci, "busId") or None) if pci is not None else None,
        memory_bytes=total_bytes,
        compute_capability=capability,
        compute_mode=_COMPUTE_MODES.get(mode) if mode is not None else None,
        mig_capable=mig_mode is not None,
        mig_enabled=mig_enabled,
        mig_devices=_read_mig_devices(reader, total_bytes) if mig_enabled else (),
        faults=tuple(reader.faults),
        coherent=addressing == pynvml.NVML_DEVICE_ADDRESSING_MODE_ATS if addressing is not None else None,
    )


def _needed(ask: Callable[Concatenate[str, P], T], subject: str, *args: P.args, **kwargs: P.kwargs) -> T:
    """The answer to what every GPU has: "not supported" is a fault here, and no word on what it is for. Raises `DriverError`."""
    try:
        return ask(subject, *args, **kwargs)
    except NotSupported as error:
        raise DriverError(error.call, error.reason, code=error.code, subject=error.subject) from error


def _read_name(calls: Calls, index: int, handle: pynvml._Device) -> tuple[str, list[str]]:
    try:
        return calls.ask_text(str(index), pynvml.nvmlDeviceGetName, handle), []
    except GpuLost:
        raise
    except DriverError as error:
        return "unknown", [f"its name cannot be read, so no pattern but * matches it: {error}"]


def _read_mig_devices(gpu: _Reader, total_bytes: int | None) -> tuple[MigDevice, ...]:
    """All MIG devices in NVML's order. Indexes without a device are holes in the numbering, not errors.

    One that the driver would not name at all is there without a UUID, so that it is missed: nothing else can be asked of it.
    """
    devices: list[MigDevice] = []
    for index in range(gpu.if_supported(pynvml.nvmlDeviceGetMaxMigDeviceCount) or 0):
        subject = f"MIG device {index} of {gpu.subject}"
        try:
            handle = gpu.calls.ask(subject, pynvml.nvmlDeviceGetMigDeviceHandleByIndex, gpu.handle, index)
            uuid = gpu.calls.ask_text(subject, pynvml.nvmlDeviceGetUUID, handle)
        except GpuLost:
            raise
        except DriverError as error:
            if (error.call, error.code) not in _NO_DEVICE_THERE:
                devices.append(MigDevice(uuid="", index=index, fault=f"it cannot be read: {error}"))
            continue
        devices.append(_read_mig_device(gpu, _Reader(gpu.calls, uuid, handle), index, total_bytes))
    return tuple(devices)


def _read_mig_device(gpu: _Reader, device: _Reader, index: int, total_bytes: int | None) -> MigDevice:
    gpu_instance_id, compute_instance_id = _read_instance_ids(device)
    attributes = _read_attributes(device)
    profile = read_profile(device.calls, gpu.handle, device.handle, device.subject, gpu_instance_id, attributes, total_bytes)
    fault = None
    if profile is None:
        fault = "; ".join(device.faults) or "the driver tells neither its profile nor its attributes"
    else:
        gpu.faults += [f"MIG device {device.subject}: {text}" for text in device.faults]
    return MigDevice(
        uuid=device.subject,
        index=index,
        gpu_instance_id=gpu_instance_id,
        compute_instance_id=compute_instance_id,
        profile=profile,
        attributes=attributes,
        fault=fault,
    )


def _read_instance_ids(device: _Reader) -> tuple[int | None, int | None]:
    """GPU and compute instance: as the driver tells, else as an old name has them. By them an event finds its device."""
    told = (
        device.optional("GPU instance id", pynvml.nvmlDeviceGetGpuInstanceId),
        device.optional("compute instance id", pynvml.nvmlDeviceGetComputeInstanceId),
    )
    named = re.fullmatch(_OLD_MIG_NAME, device.subject)
    if named is None:
        return told
    return int(named[1]) if told[0] is None else told[0], int(named[2]) if told[1] is None else told[1]


def _read_attributes(device: _Reader) -> MigAttributes | None:
    try:
        answer = device.calls.ask(device.subject, pynvml.nvmlDeviceGetAttributes, device.handle)
    except NotSupported:
        return None
    except GpuLost:
        raise
    except NoPermission as error:
        device.faults.append(f"its attributes and memory are refused ({error}): {_MIG_CAPABILITY}")
        return None
    except DriverError as error:
        device.faults.append(f"its attributes cannot be read: {error}")
        return None
    return MigAttributes(
        multiprocessor_count=answer.multiprocessorCount,
        shared_copy_engine_count=answer.sharedCopyEngineCount,
        shared_decoder_count=answer.sharedDecoderCount,
        shared_encoder_count=answer.sharedEncoderCount,
        shared_jpeg_count=answer.sharedJpegCount,
        shared_ofa_count=answer.sharedOfaCount,
        gpu_instance_slice_count=answer.gpuInstanceSliceCount,
        compute_instance_slice_count=answer.computeInstanceSliceCount,
        memory_size_mib=answer.memorySizeMB,
    )
