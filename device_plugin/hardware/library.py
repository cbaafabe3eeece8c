"""Finds NVIDIA's management library under the driver root, loads it, and tells what kind of driver stack the node has.

The Python binding asks the loader for the bare name `libnvidia-ml.so.1` and takes no path. The loader answers that with a library
of this SONAME that is loaded already, so loading the right file by its full path first is enough. Nothing here imports the
binding.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.errors import LibraryNotFound
from device_plugin.hardware.model import Platform
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence

NVML = "libnvidia-ml.so.1"
_DXCORE = "libdxcore.so"  # the paravirtual driver of WSL

# Where the drivers' installers put libraries, under the driver root. The order is NVIDIA's.
_DIRECTORIES = (
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
)
_TEGRA_RELEASE = "etc/nv_tegra_release"
_TEGRA_FAMILY = "sys/devices/soc0/family"
_TEGRA_NAMES = ("(nvgpu)", "NVIDIA Thor")  # integrated GPUs that NVML knows, but that are injected as Tegra devices


@record
class LoadedLibrary:
    """The management library that this process uses. `path` is None where the loader found it by its bare name."""

    path: Path | None
    searched: tuple[str, ...]


@record
class PlatformEvidence:
    """The platform, and what it was told from. `nvml` says where the library is, or why there is none."""

    platform: Platform
    has_dxcore: bool
    tegra_files: tuple[str, ...]
    tegra_gpus: tuple[str, ...]
    has_nvml: bool
    nvml: str

    def __str__(self) -> str:
        found = [
            f"{_DXCORE} {'loads' if self.has_dxcore else 'does not load'}",
            f"Tegra files: {', '.join(self.tegra_files) or 'none'}",
            f"Tegra GPUs: {', '.join(self.tegra_gpus) or 'none'}",
            f"{NVML}: {self.nvml}",
        ]
        return f"{self.platform} ({'; '.join(found)})"


def load_library(driver_root: Path) -> LoadedLibrary:
    """Load libnvidia-ml so that the binding uses it. Raises `LibraryNotFound`, naming every place that was searched.

    Under a root of `/` the loader's own search applies; elsewhere the known directories come first, then the loader's search.
    """
    candidates = [] if driver_root in (Path("/"), Path()) else [driver_root / directory / NVML for directory in _DIRECTORIES]
    searched = (*(str(candidate) for candidate in candidates), f"{NVML} on the loader's path")
    path = next((candidate.resolve() for candidate in candidates if candidate.exists()), None)
    if path is not None:
        _load_by_path(path)
        return LoadedLibrary(path, searched)
    try:
        ctypes.CDLL(NVML)
    except OSError as error:
        raise LibraryNotFound("dlopen", f"no {NVML}: looked for {', '.join(searched)} ({error})") from error
    return LoadedLibrary(None, searched)


def _load_by_path(path: Path) -> None:
    """Load that file, and make sure that the bare name now means it."""
    try:
        loaded = ctypes.CDLL(str(path))
    except OSError as error:
        raise LibraryNotFound("dlopen", f"{path} is there but cannot be loaded: {error}") from error
    try:
        named = ctypes.CDLL(NVML)
    except OSError as error:
        raise LibraryNotFound("dlopen", f"{path} loads, but its SONAME is not {NVML}, so it cannot be used: {error}") from error
    if named._handle != loaded._handle:  # noqa: SLF001 - the loader's handle, the only thing that tells two libraries apart
        raise LibraryNotFound("dlopen", f"{path} loads, but this process uses another {NVML}; start it afresh")


def detect_platform(driver_root: Path, gpu_names: Sequence[str] = ()) -> PlatformEvidence:
    """What kind of driver stack the node has, by the order of NVIDIA's own detection.

    WSL where its library loads; Tegra where its files are and NVML is not, or where NVML names one of its GPUs (`gpu_names`, as
    far as they are known already); NVML where its library loads; else unknown.
    """
    try:
        library = load_library(driver_root)
        has_nvml, nvml = True, str(library.path or "found by the loader")
    except LibraryNotFound as error:
        has_nvml, nvml = False, error.reason
    has_dxcore = _has_dxcore(driver_root)
    tegra_files = _tegra_files(driver_root)
    tegra_gpus = tuple(name for name in gpu_names if any(part in name for part in _TEGRA_NAMES))
    if has_dxcore:
        platform = Platform.WSL
    elif (tegra_files and not has_nvml) or tegra_gpus:
        platform = Platform.TEGRA
    else:
        platform = Platform.NVML if has_nvml else Platform.UNKNOWN
    return PlatformEvidence(platform, has_dxcore, tegra_files, tegra_gpus, has_nvml, nvml)


def _has_dxcore(driver_root: Path) -> bool:
    for name in (*(str(driver_root / directory / _DXCORE) for directory in _DIRECTORIES), _DXCORE):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return False


def _tegra_files(driver_root: Path) -> tuple[str, ...]:
    found = [driver_root / _TEGRA_RELEASE] if (driver_root / _TEGRA_RELEASE).is_file() else []
    family = driver_root / _TEGRA_FAMILY
    try:
        if family.read_text(errors="replace").lower().startswith("tegra"):
            found.append(family)
    except OSError:
        pass
    return tuple(str(path) for path in found)
