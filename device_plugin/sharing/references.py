"""What a list of devices may call a device, and the order of devices."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from device_plugin.hardware.model import Gpu
    from device_plugin.sharing.offer import Device


def refer_to(device: Device, gpus: Iterable[Gpu] = ()) -> list[str]:
    """All references to a device, in lower case: index, UUID, or a MIG device's old form `MIG-GPU-<uuid>/<gi>/<ci>`.

    `gpus` are those that a device standing for several has behind it (WSL).
    """
    names = [device.index, device.hardware_id]
    if device.is_mig and device.gpu_instance_id is not None and device.compute_instance_id is not None:
        names.append(f"MIG-{device.gpu_uuid}/{device.gpu_instance_id}/{device.compute_instance_id}")
    for gpu in gpus:
        names += [str(gpu.index), gpu.uuid]
    return [name.lower() for name in names]


def index_key(index: str) -> tuple[int, int]:
    """The order of devices: GPU index, MIG index. The one device of WSL, `all`, is alone and has -1."""
    gpu, _, mig = index.partition(":")
    return (int(gpu), int(mig) if mig else -1) if gpu.isdecimal() else (-1, -1)
