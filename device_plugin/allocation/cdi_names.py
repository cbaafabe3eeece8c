"""Qualified CDI device names: what Allocate answers and what the CDI specification files must define, `<prefix>/<class>=<name>`.

The syntax is that of the Container Device Interface, https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md.
"""

from __future__ import annotations

from enum import StrEnum

ALL = "all"  # the one device of the classes gdrcopy, gds and mofed


class CdiClass(StrEnum):
    """The classes of CDI devices, in the order in which an answer names them."""

    GPU = "gpu"
    IMEX_CHANNEL = "imex-channel"
    GDRCOPY = "gdrcopy"
    GDS = "gds"
    MOFED = "mofed"


def kind(prefix: str, cdi_class: str) -> str:
    """The kind of one specification file: `k8s.device-plugin.nvidia.com/gpu`."""
    return f"{prefix}/{cdi_class}"


def qualified_name(prefix: str, cdi_class: str, name: str) -> str:
    """The full name of one device: `k8s.device-plugin.nvidia.com/gpu=GPU-...`."""
    return f"{kind(prefix, cdi_class)}={name}"


def gpu_name(prefix: str, runtime_id: str) -> str:
    """A GPU or MIG device by the ID that the id strategy gives it: a UUID, `0`, `0:1`, or `all` under WSL."""
    return qualified_name(prefix, CdiClass.GPU, runtime_id)


def imex_channel_name(prefix: str, channel: int) -> str:
    """One IMEX channel."""
    return qualified_name(prefix, CdiClass.IMEX_CHANNEL, str(channel))


def extra_name(prefix: str, extra: str) -> str:
    """The device of one of the classes `gdrcopy`, `gds`, `mofed`."""
    return qualified_name(prefix, extra, ALL)
