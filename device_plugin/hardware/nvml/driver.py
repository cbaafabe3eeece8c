"""NvmlDriver: the Driver protocol over pynvml, for the real and the simulated library alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pynvml

from device_plugin.errors import DriverError, NotSupported
from device_plugin.hardware.driver import DriverFacts
from device_plugin.hardware.nvml.call import Calls
from device_plugin.hardware.nvml.condition import read_condition
from device_plugin.hardware.nvml.events import NvmlEvents
from device_plugin.hardware.nvml.gpu import read_gpu
from device_plugin.hardware.nvml.links import read_far_ends, read_links

if TYPE_CHECKING:
    from collections.abc import Sequence

    from device_plugin.hardware.driver import Call, EventSource, Probe
    from device_plugin.hardware.model import Gpu, Link


class NvmlDriver:
    """One user of NVML, in one thread. Several may be open in a process: NVML counts them.

    NVML takes its list of devices when the first user opens it, and drops it when the last one closes. To see hardware added or
    removed, every NvmlDriver of the process has to be closed first.
    """

    def __init__(self) -> None:
        self._calls = Calls()
        self._session = 0  # counts openings; event sources belong to one
        self._is_open = False
        self._has_switch_ports: dict[str, bool] = {}

    @property
    def current_call(self) -> Call | None:
        return self._calls.under_way

    def open(self) -> DriverFacts:
        """Initialise NVML. Raises `LibraryNotFound`, `VersionMismatch` or another `DriverError`, and is closed then."""
        if self._is_open:
            raise DriverError("nvmlInit", "the driver is open already")
        try:
            self._calls.ask(None, pynvml.nvmlInit)
        except NotSupported as error:  # the library lacks the very first function
            raise DriverError("nvmlInit", "the NVIDIA driver is too old for this program", code=error.code) from error
        self._is_open, self._session = True, self._session + 1
        self._has_switch_ports.clear()
        try:
            return DriverFacts(
                driver_version=self._read_driver_version(),
                cuda_version=self._read_cuda_version(),
                gpu_count=self._calls.ask(None, pynvml.nvmlDeviceGetCount),
            )
        except DriverError:
            self.close()
            raise

    def close(self) -> None:
        """Shut NVML down for this user. Harmless if it is not open."""
        if self._is_open:
            self._is_open = False
            self._calls.ask(None, pynvml.nvmlShutdown)

    def read_gpu(self, index: int) -> Gpu:
        return read_gpu(self._calls, index)

    def read_links(self, gpus: Sequence[Gpu]) -> tuple[Link, ...]:
        far_ends = {gpu.uuid: read_far_ends(self._calls, gpu.uuid) for gpu in gpus}
        self._has_switch_ports.update({uuid: ends.has_switch_ports for uuid, ends in far_ends.items()})
        return read_links(self._calls, gpus, far_ends)

    def probe(self, gpu_uuid: str) -> Probe:
        return read_condition(self._calls, gpu_uuid, is_on_switches=lambda: self._is_on_switches(gpu_uuid))

    def watch(self, gpu_uuids: Sequence[str]) -> EventSource:
        session = self._session
        return NvmlEvents(self._calls, gpu_uuids, lambda: self._is_open and self._session == session)

    def _is_on_switches(self, gpu_uuid: str) -> bool:
        """Whether the GPU has links to NVSwitches: only those must register with a fabric before they compute."""
        if gpu_uuid not in self._has_switch_ports:
            self._has_switch_ports[gpu_uuid] = read_far_ends(self._calls, gpu_uuid).has_switch_ports
        return self._has_switch_ports[gpu_uuid]

    def _read_driver_version(self) -> str | None:
        try:
            return self._calls.ask_text(None, pynvml.nvmlSystemGetDriverVersion)
        except DriverError:
            return None

    def _read_cuda_version(self) -> tuple[int, int] | None:
        """NVML counts 12040 for CUDA 12.4."""
        for function in (pynvml.nvmlSystemGetCudaDriverVersion_v2, pynvml.nvmlSystemGetCudaDriverVersion):
            try:
                number = self._calls.ask(None, function)
            except DriverError:
                continue
            return number // 1000, number % 1000 // 10
        return None
