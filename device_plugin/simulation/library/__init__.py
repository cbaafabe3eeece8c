"""The simulated libnvidia-ml: the C functions, put in place of pynvml's library object."""

from device_plugin.simulation.library.library import SimulatedLibrary

__all__ = ["SimulatedLibrary"]
