"""The driver behind the seam, through pynvml. This package is the one door by which pynvml comes in."""

from device_plugin.hardware.nvml.driver import NvmlDriver

__all__ = ["NvmlDriver"]
