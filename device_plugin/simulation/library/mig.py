"""The functions about MIG: modes, devices, instances and their profiles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml

from device_plugin.simulation.library.session import Refusal, Target, known, number, put, put_handle, struct
from device_plugin.simulation.machine import MigShape

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from device_plugin.simulation.library.session import Session
    from device_plugin.simulation.machine import MigInstance, SimulatedGpu

_MOST_DEVICES = 7  # slots that a GPU has at least

# NVML's number of a GPU instance profile by slices and suffix (NVML_GPU_INSTANCE_PROFILE_*). 9 is one slice with more memory.
_PROFILE_NUMBERS = {
    "": {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6},
    "+me": {1: 7, 2: 8},
    "+gfx": {1: 10, 2: 11, 4: 12, 3: 17},
    "-me": {1: 13, 2: 14},
    "+me.all": {1: 15, 2: 16},
}
_LARGE_SLICE = 9
_FIRST_PROFILE_ID = 40  # profile ids are the driver's own and unlike the numbers; these are made up


def get_mode(session: Session, device: Any, current: Any, pending: Any) -> None:
    gpu = session.gpu(device)
    if not gpu.mig_capable:
        raise Refusal(pynvml.NVML_ERROR_NOT_SUPPORTED)
    put(current, int(gpu.mig_enabled))
    put(pending, int(gpu.mig_enabled))


def get_max_device_count(session: Session, device: Any, count: Any) -> None:
    gpu = session.gpu(device)
    put(count, max([_MOST_DEVICES, *(instance.index + 1 for instance in gpu.mig)]) if gpu.mig_capable else 0)


def get_device_handle(session: Session, device: Any, index: Any, mig_device: Any) -> None:
    gpu = session.gpu(device)
    for instance in gpu.mig if gpu.mig_enabled else ():
        if instance.index == number(index):
            put_handle(mig_device, session.handle(Target(gpu.uuid, instance.uuid)))
            return
    raise Refusal(pynvml.NVML_ERROR_NOT_FOUND)


def _instance(session: Session, device: Any) -> MigInstance:
    instance = session.mig(device)
    if instance is None:
        raise Refusal(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    return instance


def get_gpu_instance_id(session: Session, device: Any, number_out: Any) -> None:
    put(number_out, _instance(session, device).gpu_instance)


def get_compute_instance_id(session: Session, device: Any, number_out: Any) -> None:
    put(number_out, _instance(session, device).compute_instance)


def get_attributes(session: Session, device: Any, attributes: Any) -> None:
    instance = _instance(session, device)
    shape = MigShape.parse(instance.profile)
    has_media = shape.slices > 1 or shape.suffix.startswith("+me")
    info = struct(attributes)
    info.multiprocessorCount = 14 * shape.compute_slices
    info.sharedCopyEngineCount = shape.slices
    info.sharedDecoderCount = info.sharedJpegCount = info.sharedOfaCount = int(has_media and shape.suffix != "-me")
    info.gpuInstanceSliceCount = shape.slices
    info.computeInstanceSliceCount = shape.compute_slices
    info.memorySizeMB = instance.memory_mib


def get_gpu_instance(session: Session, device: Any, instance_id: Any, gpu_instance: Any) -> None:
    gpu = session.gpu(device)
    if number(instance_id) not in {instance.gpu_instance for instance in gpu.mig}:
        raise Refusal(pynvml.NVML_ERROR_NOT_FOUND)
    put_handle(gpu_instance, session.handle(Target(gpu.uuid, gpu_instance=number(instance_id))))


def get_gpu_instance_info(session: Session, gpu_instance: Any, info_out: Any) -> None:
    target = session.target(gpu_instance)
    for profile, instance in _profiles(session.present(target.gpu_uuid)):
        if instance.gpu_instance == target.gpu_instance:
            info = struct(info_out)
            info.id, info.profileId = instance.gpu_instance, _FIRST_PROFILE_ID + profile
            return
    raise Refusal(pynvml.NVML_ERROR_NOT_FOUND)


def get_profile_info(session: Session, device: Any, profile: Any, info_out: Any) -> None:
    """Knows the profiles that instances of this GPU have; the others count as not supported by it."""
    gpu = session.gpu(device)
    found = next((instance for profile_number, instance in _profiles(gpu) if profile_number == number(profile)), None)
    instance = known(found)
    shape = MigShape.parse(instance.profile)
    info = struct(info_out)
    if hasattr(info, "version"):
        if info.version != pynvml.nvmlGpuInstanceProfileInfo_v2:
            raise Refusal(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        info.name = f"MIG {shape.instance_profile}".encode()
    info.id, info.sliceCount, info.memorySizeMB = _FIRST_PROFILE_ID + number(profile), shape.slices, instance.memory_mib


def _profiles(gpu: SimulatedGpu) -> Iterator[tuple[int, MigInstance]]:
    """NVML's number of the profile of each instance. Of two one-slice profiles the one with more memory is the large one."""
    for instance in gpu.mig:
        shape = MigShape.parse(instance.profile)
        slice_number = _PROFILE_NUMBERS.get(shape.suffix, {}).get(shape.slices)
        if slice_number == 0 and any(
            other.slices == 1 and not other.suffix and other.gigabytes < shape.gigabytes
            for other in (MigShape.parse(sibling.profile) for sibling in gpu.mig)
        ):
            slice_number = _LARGE_SLICE
        if slice_number is not None:
            yield slice_number, instance


FUNCTIONS: dict[str, Callable[..., None]] = {
    "nvmlDeviceGetMigMode": get_mode,
    "nvmlDeviceGetMaxMigDeviceCount": get_max_device_count,
    "nvmlDeviceGetMigDeviceHandleByIndex": get_device_handle,
    "nvmlDeviceGetGpuInstanceId": get_gpu_instance_id,
    "nvmlDeviceGetComputeInstanceId": get_compute_instance_id,
    "nvmlDeviceGetAttributes_v2": get_attributes,
    "nvmlDeviceGetGpuInstanceById": get_gpu_instance,
    "nvmlGpuInstanceGetInfo": get_gpu_instance_info,
    "nvmlDeviceGetGpuInstanceProfileInfo": get_profile_info,
    "nvmlDeviceGetGpuInstanceProfileInfoV": get_profile_info,
}
