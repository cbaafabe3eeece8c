"""The name of a MIG device's profile, as the driver gives it.

There is no table of products or profiles here: such tables need a release for each new GPU, and one product has borne different
names (NVIDIA/gpu-operator#1303: a GB200 with 1g.23gb, another with 1g.24gb). Arithmetic is the last resort, for old drivers.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

import pynvml

from device_plugin.errors import DriverError, GpuLost
from device_plugin.hardware.nvml.call import field_text

if TYPE_CHECKING:
    from device_plugin.hardware.model import MigAttributes
    from device_plugin.hardware.nvml.call import Calls

# "NVIDIA A100-SXM4-40GB MIG 1c.3g.20gb", and "MIG 1g.10gb+me" in a GPU instance's profile.
_NAMED = r"(?:^|\s)MIG (?P<profile>(?:\d+c\.)?\d+g\.\d+gb\S*)\s*$"
_COMPUTE_PART = r"^\d+c\."

# NVML's numbering of GPU instance profiles (NVML_GPU_INSTANCE_PROFILE_*) -> what their names end in.
_SUFFIXES = {7: "+me", 8: "+me", 10: "+gfx", 11: "+gfx", 12: "+gfx", 13: "-me", 14: "-me", 15: "+me.all", 16: "+me.all", 17: "+gfx"}


def read_profile(
    calls: Calls,
    gpu: pynvml._Device,
    device: pynvml._Device,
    subject: str,
    gpu_instance_id: int | None,
    attributes: MigAttributes | None,
    total_bytes: int | None,
) -> str | None:
    """The profile's name: from the device's name, else from its GPU instance's profile, else computed. Raises only `GpuLost`."""
    try:
        named = profile_in_name(calls.ask_text(subject, pynvml.nvmlDeviceGetName, device))
    except GpuLost:
        raise
    except DriverError:
        named = None
    if named is not None:
        return named
    suffix = ""
    if gpu_instance_id is not None:
        number, instance_profile = _read_instance_profile(calls, gpu, subject, gpu_instance_id)
        if instance_profile is not None:
            return with_compute_part(instance_profile, attributes)
        suffix = _SUFFIXES.get(number, "") if number is not None else ""
    if attributes is None or not total_bytes:
        return None
    return with_compute_part(computed_profile(attributes, total_bytes) + suffix, attributes)


def profile_in_name(name: str) -> str | None:
    """The profile in the name of a MIG device or of a GPU instance's profile, if it has one."""
    match = re.search(_NAMED, name)
    return match["profile"] if match else None


def with_compute_part(instance_profile: str, attributes: MigAttributes | None) -> str:
    """The profile of a device in a GPU instance of `instance_profile`: `1c.3g.20gb` where it has a part of the compute slices."""
    if attributes is None or attributes.compute_instance_slice_count == attributes.gpu_instance_slice_count:
        return instance_profile
    return f"{attributes.compute_instance_slice_count}c.{re.sub(_COMPUTE_PART, '', instance_profile)}"


def computed_profile(attributes: MigAttributes, total_bytes: int) -> str:
    """`<slices>g.<GB>gb` by the arithmetic of NVIDIA's tools: eighths of the GPU's memory, rounded up, of its size in whole GiB.

    Halves round up (22.5 is 23), unlike Python's `round`.
    """
    eighths = math.ceil(attributes.memory_size_mib * 2**20 / total_bytes * 8)
    gigabytes = math.floor(eighths / 8 * math.ceil(total_bytes / 2**30) + 0.5)
    return f"{attributes.gpu_instance_slice_count}g.{gigabytes}gb"


def _read_instance_profile(calls: Calls, gpu: pynvml._Device, subject: str, gpu_instance_id: int) -> tuple[int | None, str | None]:
    """NVML's number and the name of the profile of a GPU instance, as far as the driver tells and lets us ask."""
    try:
        instance = calls.ask(subject, pynvml.nvmlDeviceGetGpuInstanceById, gpu, gpu_instance_id)
        profile_id = calls.ask(subject, pynvml.nvmlGpuInstanceGetInfo, instance).profileId
    except GpuLost:
        raise
    except DriverError:
        return None, None
    for number in range(pynvml.NVML_GPU_INSTANCE_PROFILE_COUNT):
        for version in (2, 1):  # only the second form has a name
            try:
                info = calls.ask(subject, pynvml.nvmlDeviceGetGpuInstanceProfileInfo, gpu, number, version)
            except GpuLost:
                raise
            except DriverError:
                continue
            if info.id == profile_id:
                return number, profile_in_name(field_text(info, "name")) if version == 2 else None
            break
    return None, None
