"""The node's own driver: the library found under the driver root, and what kind of platform it makes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.errors import LibraryNotFound, NotServedHere
from device_plugin.hardware.library import detect_platform, load_library
from device_plugin.hardware.model import Platform
from device_plugin.hardware.nvml import NvmlDriver

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from device_plugin.hardware.driver import DriverFacts
    from device_plugin.logs import Logger


class LocalDriver(NvmlDriver):
    """NvmlDriver over the library under a driver root, looked for at each opening: a driver may be installed after our start."""

    def __init__(self, driver_root: Path) -> None:
        super().__init__()
        self._driver_root = driver_root

    def open(self) -> DriverFacts:
        """As NvmlDriver. Raises NotServedHere on a Tegra system, whose owner should not have to guess from a missing library."""
        try:
            load_library(self._driver_root)
        except LibraryNotFound as error:
            evidence = detect_platform(self._driver_root)
            if evidence.platform is Platform.TEGRA:
                raise NotServedHere(
                    "platform", f"Tegra systems (Jetson) are not supported and nothing is offered; found {evidence}"
                ) from error
            if evidence.platform is Platform.WSL:
                raise LibraryNotFound(
                    error.call, f"{error.reason}; this is a WSL system, whose library comes with Windows"
                ) from error
            raise
        return super().open()


class LocalPlatform:
    """Tells the platform from the GPUs' names and the driver root. Its evidence is logged when it changes."""

    def __init__(self, driver_root: Path, logger: Logger) -> None:
        self._driver_root, self._logger = driver_root, logger
        self._told: str | None = None

    def __call__(self, gpu_names: Sequence[str]) -> Platform:
        evidence = detect_platform(self._driver_root, gpu_names)
        if str(evidence) != self._told:
            self._told = str(evidence)
            self._logger.info("platform.detected", platform=evidence.platform.value, evidence=self._told)
        return evidence.platform
