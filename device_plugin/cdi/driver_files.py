"""The files of the driver: libraries of the running version and the links to them, programs, settings, firmware, sockets.

Which files belong to the driver is NVIDIA's installer's knowledge; the lists here are those that NVIDIA's plugin brings into a
container. Paths are below the driver root, which is also where a container finds them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from device_plugin.cdi.roots import is_file, names_in, resolve_inside, seen
from device_plugin.errors import InjectionImpossible
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

# The distributions' library directories, then the sub-directories that keep drivers apart. Not /usr/lib itself: where that is not
# /usr/lib64 by a link, its libraries are the 32-bit ones.
_MULTIARCH = ("x86_64-linux-gnu", "aarch64-linux-gnu")
LIBRARY_DIRECTORIES = (
    "/usr/lib64",
    *(f"/usr/lib/{arch}" for arch in _MULTIARCH),
    "/lib64",
    *(f"/lib/{arch}" for arch in _MULTIARCH),
    *(f"/usr/lib/{arch}/nvidia/current" for arch in _MULTIARCH),
    "/usr/lib64/nvidia",
)
_PROGRAM_DIRECTORIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")
_SHARE_DIRECTORIES = ("/etc", "/usr/local/share", "/usr/share")

# Present in any version under a name without the driver's version.
_OWN_VERSION_LIBRARIES = (
    "libnvidia-nvvm70.so.*",
    "libnvidia-egl-gbm.so.*.*",
    "libnvidia-egl-wayland.so.*.*",
    "libnvidia-egl-wayland2.so.*.*",
)
_EXPLICIT_LIBRARIES = (
    "libEGL.so",
    "libGL.so",
    "libGLESv1_CM.so",
    "libGLESv2.so",
    "libGLX.so",
    "libGLdispatch.so",
    "libOpenCL.so",
    "libOpenGL.so",
    "libnvidia-api.so",
    "libnvidia-egl-xcb.so",
    "libnvidia-egl-xlib.so",
)
_PROGRAMS = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
    "nvidia-imex",
    "nvidia-imex-ctl",
)
_SETTINGS = (
    "glvnd/egl_vendor.d/10_nvidia.json",
    "egl/egl_external_platform.d/15_nvidia_gbm.json",
    "egl/egl_external_platform.d/10_nvidia_wayland.json",
    "egl/egl_external_platform.d/09_nvidia_wayland2.json",
    "nvidia/nvoptix.bin",
    "X11/xorg.conf.d/10-nvidia.conf",
    "X11/xorg.conf.d/nvidia-drm-outputclass.conf",
    "OpenCL/vendors/nvidia.icd",
    "vulkan/icd.d/nvidia_icd.json",
    "vulkan/icd.d/nvidia_icd.x86_64.json",
    "vulkan/icd.d/nvidia_icd.aarch64.json",
    "vulkan/icd.d/nvidia_layers.json",
    "vulkan/implicit_layer.d/nvidia_layers.json",
)
_SOCKETS = ("nvidia-persistenced/socket", "nvidia-fabricmanager/socket")
_MPS_PIPES = "/tmp/nvidia-mps"  # noqa: S108 - the place where CUDA looks for the MPS daemon by default

_VERSIONED_CUDA = re.compile(r"libcuda\.so\.([0-9]+\.[0-9.]*[0-9])")


@record
class DriverFile:
    """One file, below the driver root. `path` is where the container gets it, `source` the same file with all links followed."""

    path: str
    source: str

    @property
    def directory(self) -> str:
        return str(PurePosixPath(self.path).parent)

    @property
    def name(self) -> str:
        return PurePosixPath(self.path).name


@record
class Link:
    """A link the driver's installer made beside a library: `path` points at `target` (text), in the end at the library."""

    path: str
    target: str


@record
class Library:
    """A library and the names it goes by, the link nearest to the file first (`libcuda.so.1`, then `libcuda.so`)."""

    file: DriverFile
    links: tuple[Link, ...] = ()


@record
class DriverFiles:
    """Everything found. `missing` names the files for computing that were looked for in vain, `absent` the optional ones."""

    version: str
    libraries: tuple[Library, ...]
    version_directories: tuple[str, ...]
    files: tuple[DriverFile, ...] = ()
    sockets: tuple[DriverFile, ...] = ()
    missing: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def find_driver_files(
    root: Path, version: str | None, *, explicit_libraries: bool = False, kernel_release: str = ""
) -> DriverFiles:
    """Look through a driver root for the files of the driver `version`; None: the only version that is there.

    Raises InjectionImpossible, naming every directory searched, where there is no libcuda of that version: a container could
    not compute (NVIDIA/k8s-device-plugin#621).
    """
    directories = _library_directories(root)
    version = version or _only_version(root, directories)
    versioned = [*_matches(root, directories, f"*.so.{version}")]
    if not any(file.name == f"libcuda.so.{version}" for file in versioned):
        raise InjectionImpossible(_not_found(root, directories, version))
    nested = [f"{directory}/{sub}" for directory in directories for sub in ("vdpau", "nvidia/xorg")]
    explicit = _EXPLICIT_LIBRARIES if explicit_libraries else ()
    found = [
        *versioned,
        *_matches(root, nested, f"*.so.{version}"),
        *_matches(root, nested, "nvidia_drv.so"),
        *(file for pattern in _OWN_VERSION_LIBRARIES for file in _matches(root, directories, pattern)),
        *(_link_target(file) for name in explicit for file in _matches(root, directories, name)),
    ]
    firmware = list(_firmware(root, version, kernel_release))
    programs, missing_programs = _first_of_each(root, _PROGRAM_DIRECTORIES, _PROGRAMS)
    settings, absent = _first_of_each(root, _SHARE_DIRECTORIES, _SETTINGS)
    missing = [
        name for name in (f"libnvidia-ml.so.{version}", f"libnvidia-ptxjitcompiler.so.{version}") if name not in _names(found)
    ]
    return DriverFiles(
        version=version,
        libraries=tuple(_with_links(root, _unique(found))),
        version_directories=tuple(dict.fromkeys(file.directory for file in versioned if file.name.startswith("lib"))),
        files=(*programs, *(_with_vulkan_in_etc(file) for file in settings), *firmware),
        sockets=tuple(_sockets(root)),
        missing=(*missing, *missing_programs),
        absent=(*absent, *(() if firmware else (f"nvidia/{version}/gsp*.bin",))),
    )


def _library_directories(root: Path) -> tuple[str, ...]:
    """The directories that exist, with links followed (/lib64 often is /usr/lib64), each once."""
    resolved = (resolve_inside(root, directory) for directory in LIBRARY_DIRECTORIES)
    return tuple(dict.fromkeys(directory for directory in resolved if directory))


def _only_version(root: Path, directories: Iterable[str]) -> str:
    """The version in the name of libcuda, for when the driver itself would not say."""
    names = {
        match[1] for directory in directories for name in names_in(root, directory) if (match := _VERSIONED_CUDA.fullmatch(name))
    }
    if len(names) == 1:
        return names.pop()
    what = f"libcuda of several versions ({', '.join(sorted(names))})" if names else "no libcuda.so.<version>"
    raise InjectionImpossible(
        f"The driver does not say its version, and {what} was found under {root} in {_listed(directories)}. "
        "Mount the driver's root and name it with --driver-root-ctr-path."
    )


def _not_found(root: Path, directories: Iterable[str], version: str) -> str:
    others = sorted(name for directory in directories for name in names_in(root, directory, "libcuda.so.*.*"))
    beside = f"; found of other versions: {', '.join(dict.fromkeys(others))}" if others else ""
    return (
        f"No libcuda.so.{version}, the library of the running driver, under {root} in {_listed(directories)}{beside}. "
        "Mount the driver's root and name it with --driver-root-ctr-path, and its place on the host with --driver-root."
    )


def _listed(directories: Iterable[str]) -> str:
    """What was searched: the directories that exist, or all that were tried."""
    return ", ".join(directories) or f"{', '.join(LIBRARY_DIRECTORIES)} (none of these exists)"


def _matches(root: Path, directories: Iterable[str], pattern: str) -> Iterator[DriverFile]:
    for directory in directories:
        resolved = resolve_inside(root, directory)
        for name in names_in(root, resolved, pattern) if resolved else ():
            source = resolve_inside(root, f"{resolved}/{name}")
            if source and is_file(root, source):
                yield DriverFile(f"{resolved}/{name}", source)


def _link_target(file: DriverFile) -> DriverFile:
    """The library behind a link beside it, so that it is brought in under its own name and the link is made anew."""
    target = DriverFile(file.source, file.source)
    return target if target.directory == file.directory else file


def _unique(files: Iterable[DriverFile]) -> list[DriverFile]:
    """Each path once; of a link and its target that both match, the target alone."""
    by_path = {file.path: file for file in files}
    return [file for _, file in sorted(by_path.items()) if file.source == file.path or file.source not in by_path]


def _names(files: Iterable[DriverFile]) -> set[str]:
    return {file.name for file in files}


def _with_links(root: Path, files: Sequence[DriverFile]) -> Iterator[Library]:
    """Each file with the links beside it that lead to it in the end. A target elsewhere is replaced by the file's own path."""
    links: dict[str, list[Link]] = {file.path: [] for file in files}
    for directory in {file.directory for file in files}:
        here = {file.source: file for file in files if file.directory == directory}
        for name in names_in(root, directory, "*.so*"):
            path = f"{directory}/{name}"
            try:
                target = str(seen(root, path).readlink())
            except OSError:
                continue  # no link
            file = here.get(resolve_inside(root, path) or "")
            if file is not None and path not in links:
                links[file.path].append(Link(path, target if "/" not in target else file.path))
    for file in files:
        yield Library(file, tuple(sorted(links[file.path], key=lambda link: (-len(link.path), link.path))))


def _first_of_each(root: Path, directories: Iterable[str], names: Iterable[str]) -> tuple[list[DriverFile], list[str]]:
    """For each name the first directory that has it; the names that none has."""
    found, missing = [], []
    for name in names:
        paths = (f"{directory}/{name}" for directory in directories)
        file = next((DriverFile(path, source) for path in paths if (source := resolve_inside(root, path))), None)
        if file is None:
            missing.append(name)
        else:
            found.append(file)
    return found, missing


def _with_vulkan_in_etc(file: DriverFile) -> DriverFile:
    """Vulkan's loader in the container looks in /etc/vulkan wherever the host keeps the files."""
    share, _, rest = file.path.partition("/vulkan/")
    return replace(file, path=f"/etc/vulkan/{rest}") if rest and share in _SHARE_DIRECTORIES else file


def _firmware(root: Path, version: str, kernel_release: str) -> Iterator[DriverFile]:
    """The GSP firmware, in the order in which the kernel looks for firmware."""
    places = ("/lib/firmware/updates", "/lib/firmware")
    with_release = [place for base in places for place in ((f"{base}/{kernel_release}", base) if kernel_release else (base,))]
    yield from _unique(_matches(root, [f"{place}/nvidia/{version}" for place in with_release], "gsp*.bin"))


def _sockets(root: Path) -> Iterator[DriverFile]:
    for name in _SOCKETS:
        for path in (f"/run/{name}", f"/var/run/{name}"):
            if source := resolve_inside(root, path):
                yield DriverFile(path, source)
                break
    if source := resolve_inside(root, _MPS_PIPES):
        yield DriverFile(_MPS_PIPES, source)
