"""The functions about the system and its devices: handles, names, properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml

from device_plugin.simulation.library.session import Refusal, Target, known, number, put, put_handle, put_text, struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from device_plugin.simulation.library.session import Session


def get_driver_version(session: Session, buffer: Any, size: Any) -> None:
    put_text(buffer, size, session.machine.driver_version or "")


def get_cuda_version(session: Session, version: Any) -> None:
    put(version, session.machine.cuda_version)


def get_count(session: Session, count: Any) -> None:
    put(count, len(session.gpu_uuids))


def get_handle_by_index(session: Session, index: Any, device: Any) -> None:
    if number(index) >= len(session.gpu_uuids):
        raise Refusal(pynvml.NVML_ERROR_INVALID_ARGUMENT)
    gpu = session.present(session.gpu_uuids[number(index)])
    put_handle(device, session.handle(Target(gpu.uuid)))


def get_handle_by_uuid(session: Session, uuid: Any, device: Any) -> None:
    """Walks the table as NVML does: a lost GPU in front of the one that is sought makes the look-up fail."""
    wanted = uuid.value.decode()
    for gpu_uuid in session.gpu_uuids:
        gpu = session.present(gpu_uuid)
        for instance_uuid in (None, *(instance.uuid for instance in gpu.mig if gpu.mig_enabled)):
            if wanted == (instance_uuid or gpu.uuid):
                put_handle(device, session.handle(Target(gpu.uuid, instance_uuid)))
                return
    raise Refusal(pynvml.NVML_ERROR_NOT_FOUND)


def get_name(session: Session, device: Any, buffer: Any, size: Any) -> None:
    gpu, instance = session.gpu(device), session.mig(device)
    put_text(buffer, size, f"{gpu.name} MIG {instance.profile}" if instance else gpu.name)


def get_uuid(session: Session, device: Any, buffer: Any, size: Any) -> None:
    gpu, instance = session.gpu(device), session.mig(device)
    put_text(buffer, size, instance.uuid if instance else gpu.uuid)


def get_minor_number(session: Session, device: Any, minor: Any) -> None:
    put(minor, known(session.gpu(device).minor))


def get_memory_info(session: Session, device: Any, memory: Any) -> None:
    gpu, instance = session.gpu(device), session.mig(device)
    info = struct(memory)
    info.total = instance.memory_mib * 2**20 if instance else known(gpu.memory_bytes)
    info.used, info.free = 0, info.total


def get_pci_info(session: Session, device: Any, pci: Any) -> None:
    fill_pci(struct(pci), session.gpu(device).pci_bus_id)


def fill_pci(info: Any, pci_bus_id: str) -> None:
    domain, bus, rest = pci_bus_id.split(":")
    info.domain, info.bus, info.device = int(domain, 16), int(bus, 16), int(rest.split(".")[0], 16)
    info.busId = pci_bus_id.encode()
    info.busIdLegacy = f"{domain[-4:]}:{bus}:{rest}".encode()


def get_compute_capability(session: Session, device: Any, major: Any, minor: Any) -> None:
    capability = known(session.gpu(device).compute_capability)
    put(major, capability[0])
    put(minor, capability[1])


def get_compute_mode(session: Session, device: Any, mode: Any) -> None:
    put(mode, known(session.gpu(device).compute_mode))


def get_addressing_mode(session: Session, device: Any, mode: Any) -> None:
    info = struct(mode)
    if info.version != pynvml.nvmlDeviceAddressingMode_v1:
        raise Refusal(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    info.value = known(session.gpu(device).addressing_mode)


FUNCTIONS: dict[str, Callable[..., None]] = {
    "nvmlSystemGetDriverVersion": get_driver_version,
    "nvmlSystemGetCudaDriverVersion": get_cuda_version,
    "nvmlSystemGetCudaDriverVersion_v2": get_cuda_version,
    "nvmlDeviceGetCount_v2": get_count,
    "nvmlDeviceGetHandleByIndex_v2": get_handle_by_index,
    "nvmlDeviceGetHandleByUUID": get_handle_by_uuid,
    "nvmlDeviceGetName": get_name,
    "nvmlDeviceGetUUID": get_uuid,
    "nvmlDeviceGetMinorNumber": get_minor_number,
    "nvmlDeviceGetMemoryInfo": get_memory_info,
    "nvmlDeviceGetPciInfo_v3": get_pci_info,
    "nvmlDeviceGetCudaComputeCapability": get_compute_capability,
    "nvmlDeviceGetComputeMode": get_compute_mode,
    "nvmlDeviceGetAddressingMode": get_addressing_mode,
}
