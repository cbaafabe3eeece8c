# The part of nvidia-ml-py (module pynvml) that this project uses, so that a misspelt NVML name is a type error.
# ruff: noqa: N801, N802, N803, N815, N816 - NVML's names, as NVIDIA spells them

from ctypes import Array, Structure
from typing import Any, ClassVar

nvmlLib: Any
_nvmlLib_refcount: int
_nvmlGetFunctionPointer_cache: dict[str, Any]

class NVMLError(Exception):
    value: int
    def __init__(self, value: int) -> None: ...

NVML_SUCCESS: int
NVML_ERROR_UNINITIALIZED: int
NVML_ERROR_INVALID_ARGUMENT: int
NVML_ERROR_NOT_SUPPORTED: int
NVML_ERROR_NO_PERMISSION: int
NVML_ERROR_NOT_FOUND: int
NVML_ERROR_INSUFFICIENT_SIZE: int
NVML_ERROR_DRIVER_NOT_LOADED: int
NVML_ERROR_TIMEOUT: int
NVML_ERROR_LIBRARY_NOT_FOUND: int
NVML_ERROR_FUNCTION_NOT_FOUND: int
NVML_ERROR_GPU_IS_LOST: int
NVML_ERROR_RESET_REQUIRED: int
NVML_ERROR_LIB_RM_VERSION_MISMATCH: int
NVML_ERROR_VGPU_ECC_NOT_SUPPORTED: int
NVML_ERROR_ARGUMENT_VERSION_MISMATCH: int
NVML_ERROR_DEPRECATED: int
NVML_ERROR_GPU_NOT_FOUND: int
NVML_ERROR_UNKNOWN: int

NVML_NVLINK_MAX_LINKS: int
NVML_NVLINK_DEVICE_TYPE_GPU: int
NVML_NVLINK_DEVICE_TYPE_SWITCH: int
NVML_DEVICE_MIG_ENABLE: int
NVML_GPU_INSTANCE_PROFILE_COUNT: int
NVML_DEVICE_ADDRESSING_MODE_ATS: int
nvmlDeviceAddressingMode_v1: int
NVML_MEMORY_ERROR_TYPE_UNCORRECTED: int
NVML_VOLATILE_ECC: int
NVML_MEMORY_LOCATION_COUNT: int
NVML_VALUE_TYPE_UNSIGNED_INT: int
NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: int
NVML_GPU_FABRIC_STATE_NOT_SUPPORTED: int

nvmlGpuInstanceProfileInfo_v2: int
nvmlGpuFabricInfo_v2: int
nvmlGpuFabricInfo_v3: int

nvmlEventTypeSingleBitEccError: int
nvmlEventTypeDoubleBitEccError: int
nvmlEventTypeXidCriticalError: int

class _Device: ...
class _EventSet: ...
class _GpuInstance: ...

class nvmlPciInfo_t(Structure):
    busId: Any
    busIdLegacy: Any
    domain: int
    bus: int
    device: int
    pciDeviceId: int

class c_nvmlMemory_t(Structure):
    total: int
    free: int
    used: int

class c_nvmlDeviceAttributes(Structure):
    multiprocessorCount: int
    sharedCopyEngineCount: int
    sharedDecoderCount: int
    sharedEncoderCount: int
    sharedJpegCount: int
    sharedOfaCount: int
    gpuInstanceSliceCount: int
    computeInstanceSliceCount: int
    memorySizeMB: int

class c_nvmlGpuInstanceInfo_t(Structure):
    id: int
    profileId: int

class c_nvmlGpuInstanceProfileInfo_v2_t(Structure):
    version: int
    id: int
    sliceCount: int
    instanceCount: int
    multiprocessorCount: int
    memorySizeMB: int
    name: Any

class c_nvmlValue_t:
    uiVal: int
    ullVal: int

class c_nvmlFieldValue_t(Structure):
    fieldId: int
    valueType: int
    nvmlReturn: int
    value: c_nvmlValue_t

class c_nvmlGpuFabricInfo_t(Structure):
    status: int
    state: int

class c_nvmlGpuFabricInfo_v2_t(c_nvmlGpuFabricInfo_t):
    version: int

class c_nvmlGpuFabricInfo_v3_t(c_nvmlGpuFabricInfo_t):
    version: int

class c_nvmlEventData_t(Structure):
    device: _Device
    eventType: int
    eventData: int
    gpuInstanceId: int
    computeInstanceId: int
    _fields_: ClassVar[Any]

def nvmlInit() -> None: ...
def nvmlShutdown() -> None: ...
def nvmlSystemGetDriverVersion() -> str: ...
def nvmlSystemGetCudaDriverVersion() -> int: ...
def nvmlSystemGetCudaDriverVersion_v2() -> int: ...
def nvmlDeviceGetCount() -> int: ...
def nvmlDeviceGetHandleByIndex(index: int) -> _Device: ...
def nvmlDeviceGetHandleByUUID(uuid: str) -> _Device: ...
def nvmlDeviceGetName(handle: _Device) -> str: ...
def nvmlDeviceGetUUID(handle: _Device) -> str: ...
def nvmlDeviceGetMinorNumber(handle: _Device) -> int: ...
def nvmlDeviceGetMemoryInfo(handle: _Device) -> c_nvmlMemory_t: ...
def nvmlDeviceGetPciInfo(handle: _Device) -> nvmlPciInfo_t: ...
def nvmlDeviceGetCudaComputeCapability(handle: _Device) -> tuple[int, int]: ...
def nvmlDeviceGetComputeMode(handle: _Device) -> int: ...
def nvmlDeviceGetAddressingMode(device: _Device) -> int: ...
def nvmlDeviceGetMigMode(device: _Device) -> list[int]: ...
def nvmlDeviceGetMaxMigDeviceCount(device: _Device) -> int: ...
def nvmlDeviceGetMigDeviceHandleByIndex(device: _Device, index: int) -> _Device: ...
def nvmlDeviceGetGpuInstanceId(device: _Device) -> int: ...
def nvmlDeviceGetComputeInstanceId(device: _Device) -> int: ...
def nvmlDeviceGetAttributes(device: _Device) -> c_nvmlDeviceAttributes: ...
def nvmlDeviceGetGpuInstanceById(device: _Device, gpuInstanceId: int) -> _GpuInstance: ...
def nvmlGpuInstanceGetInfo(gpuInstance: _GpuInstance) -> c_nvmlGpuInstanceInfo_t: ...
def nvmlDeviceGetGpuInstanceProfileInfo(device: _Device, profile: int, version: int = 2) -> c_nvmlGpuInstanceProfileInfo_v2_t: ...
def nvmlDeviceGetNvLinkState(device: _Device, link: int) -> int: ...
def nvmlDeviceGetNvLinkRemotePciInfo(device: _Device, link: int) -> nvmlPciInfo_t: ...
def nvmlDeviceGetNvLinkRemoteDeviceType(handle: _Device, link: int) -> int: ...
def nvmlDeviceGetTopologyCommonAncestor(device1: _Device, device2: _Device) -> int: ...
def nvmlDeviceGetTotalEccErrors(handle: _Device, errorType: int, counterType: int) -> int: ...
def nvmlDeviceGetMemoryErrorCounter(handle: _Device, errorType: int, counterType: int, locationType: int) -> int: ...
def nvmlDeviceGetRemappedRows(device: _Device) -> tuple[int, int, int, int]: ...
def nvmlDeviceGetFieldValues(handle: _Device, fieldIds: list[int]) -> Array[c_nvmlFieldValue_t]: ...
def nvmlDeviceGetGpuFabricInfo(device: _Device, gpuFabricInfo: Any) -> int: ...
def nvmlDeviceGetGpuFabricInfoV(device: _Device, gpuFabricInfo: Any) -> int: ...
def nvmlEventSetCreate() -> _EventSet: ...
def nvmlDeviceGetSupportedEventTypes(handle: _Device) -> int: ...
def nvmlDeviceRegisterEvents(handle: _Device, eventTypes: int, eventSet: _EventSet) -> None: ...
def nvmlEventSetWait(eventSet: _EventSet, timeoutms: int) -> c_nvmlEventData_t: ...
def nvmlEventSetFree(eventSet: _EventSet) -> None: ...
