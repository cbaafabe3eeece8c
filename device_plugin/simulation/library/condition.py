"""The functions about links and about a GPU's condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pynvml

from device_plugin.simulation.library.devices import fill_pci
from device_plugin.simulation.library.session import Refusal, known, number, put, struct

if TYPE_CHECKING:
    from collections.abc import Callable

    from device_plugin.simulation.library.session import Session
    from device_plugin.simulation.machine import SimulatedGpu

_SWITCH_ADDRESS = "FFFFFFFF:FF:FF.0"  # what NVML gives for an NVSwitch whose fabric is managed elsewhere
_DEVICE_MEMORY = 2  # NVML_MEMORY_LOCATION_DEVICE_MEMORY
_SAME_NODE, _ACROSS = 40, 50  # NVML's topology levels for GPUs whose common ancestor the machine does not state


def _far_end(session: Session, device: Any, link: Any) -> SimulatedGpu | None:
    """The GPU at the far end of a link, None for an NVSwitch. Links go by target in NVML's order, those to switches last."""
    gpu, machine, place = session.gpu(device), session.machine, number(link)
    links = 0
    for other in machine.gpus if machine.nvlinks else ():
        links += machine.nvlinks.get((gpu.uuid, other.uuid), 0)
        if place < links:
            return other
    links += gpu.switch_links
    if place < links:
        return None
    raise Refusal(pynvml.NVML_ERROR_INVALID_ARGUMENT if links else pynvml.NVML_ERROR_NOT_SUPPORTED)


def get_link_state(session: Session, device: Any, link: Any, is_active: Any) -> None:
    far = _far_end(session, device, link)
    put(is_active, int(far is None or not far.lost))


def get_link_remote_type(session: Session, device: Any, link: Any, kind: Any) -> None:
    far = _far_end(session, device, link)
    put(kind, pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH if far is None else pynvml.NVML_NVLINK_DEVICE_TYPE_GPU)


def get_link_remote_pci(session: Session, device: Any, link: Any, pci: Any) -> None:
    far = _far_end(session, device, link)
    fill_pci(struct(pci), _SWITCH_ADDRESS if far is None else far.pci_bus_id)


def get_common_ancestor(session: Session, first: Any, second: Any, level: Any) -> None:
    one, other = session.gpu(first), session.gpu(second)
    stated = session.machine.ancestors.get(frozenset((one.uuid, other.uuid)))
    put(level, stated if stated is not None else _SAME_NODE if one.numa == other.numa else _ACROSS)


def get_total_ecc_errors(session: Session, device: Any, kind: Any, _counter: Any, count: Any) -> None:
    errors = known(session.gpu(device).ecc_uncorrectable)
    put(count, errors if number(kind) == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED else 0)


def get_memory_error_counter(session: Session, device: Any, kind: Any, _counter: Any, location: Any, count: Any) -> None:
    """All errors are in one place, the device memory; caches (0, 1) are counted too, other places are not."""
    errors = known(session.gpu(device).ecc_uncorrectable)
    if number(location) > _DEVICE_MEMORY:
        raise Refusal(pynvml.NVML_ERROR_NOT_SUPPORTED)
    put(count, errors if number(kind) == pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED and number(location) == _DEVICE_MEMORY else 0)


def get_remapped_rows(session: Session, device: Any, *counts: Any) -> None:
    gpu = session.gpu(device)
    pending, failed = known(gpu.remap_pending), known(gpu.remap_failed)
    for reference, value in zip(counts, (0, int(pending or failed), int(pending), int(failed)), strict=True):
        put(reference, value)


def get_field_values(session: Session, device: Any, count: Any, values: Any) -> None:
    gpu = session.gpu(device)
    for value in struct(values)[: number(count)]:
        if value.fieldId == pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION and gpu.recovery_action is not None:
            value.nvmlReturn, value.valueType = pynvml.NVML_SUCCESS, pynvml.NVML_VALUE_TYPE_UNSIGNED_INT
            value.value.uiVal = gpu.recovery_action
        else:
            value.nvmlReturn = pynvml.NVML_ERROR_NOT_SUPPORTED


def get_fabric_info(session: Session, device: Any, info_out: Any) -> None:
    gpu = session.gpu(device)
    info = struct(info_out)
    if hasattr(info, "version") and info.version not in (pynvml.nvmlGpuFabricInfo_v2, pynvml.nvmlGpuFabricInfo_v3):
        raise Refusal(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
    info.state, info.status = known(gpu.fabric_state), gpu.fabric_status


FUNCTIONS: dict[str, Callable[..., None]] = {
    "nvmlDeviceGetNvLinkState": get_link_state,
    "nvmlDeviceGetNvLinkRemoteDeviceType": get_link_remote_type,
    "nvmlDeviceGetNvLinkRemotePciInfo_v2": get_link_remote_pci,
    "nvmlDeviceGetTopologyCommonAncestor": get_common_ancestor,
    "nvmlDeviceGetTotalEccErrors": get_total_ecc_errors,
    "nvmlDeviceGetMemoryErrorCounter": get_memory_error_counter,
    "nvmlDeviceGetRemappedRows": get_remapped_rows,
    "nvmlDeviceGetFieldValues": get_field_values,
    "nvmlDeviceGetGpuFabricInfo": get_fabric_info,
    "nvmlDeviceGetGpuFabricInfoV": get_fabric_info,
}
