"""Qualified CDI names."""

from __future__ import annotations

from device_plugin.allocation.cdi_names import CdiClass, extra_name, gpu_name, imex_channel_name, kind
from device_plugin.allocation.model import DEFAULT_CDI_KIND_PREFIX as PREFIX


def test_names():
    """The names are those of NVIDIA's plugin, so that what is written by one can be read by the other."""
    assert kind(PREFIX, CdiClass.GPU) == "k8s.device-plugin.nvidia.com/gpu"
    assert gpu_name(PREFIX, "0:1") == "k8s.device-plugin.nvidia.com/gpu=0:1"
    assert imex_channel_name(PREFIX, 2047) == "k8s.device-plugin.nvidia.com/imex-channel=2047"
    assert [extra_name(PREFIX, extra) for extra in ("gdrcopy", "gds", "mofed")] == [
        f"k8s.device-plugin.nvidia.com/{extra}=all" for extra in ("gdrcopy", "gds", "mofed")
    ]
