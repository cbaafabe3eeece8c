"""What a list of devices may call a device, and the order of devices."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from device_plugin.hardware.model import Gpu
    from device_plugin.sharing.offer import Device

_INDEX = re.compile(r"[0-9]+(:[0-9]+)?")


def refer_to(device: Device, gpus: Iterable[Gpu] = ()) -> list[str]:
    """All references to a device, normalised: index, UUID, or a MIG device's old form `MIG-GPU-<uuid>/<gi>/<ci>`.

    `gpus` are those that a device standing for several has behind it (WSL).
    """
    names = [device.index, device.hardware_id]
    if device.is_mig and device.gpu_instance_id is not None and device.compute_instance_id is not None:
        names.append(f"MIG-{device.gpu_uuid}/{device.gpu_instance_id}/{device.compute_instance_id}")
    for gpu in gpus:
        names += [str(gpu.index), gpu.uuid]
    return [normalize_reference(name) for name in names]


def normalize_reference(text: str) -> str:
    """One spelling for one device: no leading zeros in an index, a UUID in lower case."""
    if _INDEX.fullmatch(text):
        return ":".join(part.lstrip("0") or "0" for part in text.split(":"))
    return text.lower()


def index_key(index: str) -> tuple[int, int]:
    """The order of devices: GPU index, MIG index. The one device of WSL, `all`, is alone."""
    gpu, _, mig = index.partition(":")
    return (int(gpu), int(mig) if mig else -1) if gpu.isdecimal() else (-1, -1)
