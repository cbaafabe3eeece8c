"""The hooks: what NVIDIA's hook program does inside a container before it starts, and what is done in its place without it.

The program makes links, refreshes the loader's cache, and hides what a container should not change. It comes with NVIDIA's
container toolkit and may be absent. Then libraries are mounted under every name the loader asks for, which is enough to compute.
"""

from __future__ import annotations

import os
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from device_plugin.cdi.options import CdiHook
from device_plugin.cdi.roots import is_file, resolve_inside, seen
from device_plugin.cdi.spec import HookEdit, MountEdit
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from device_plugin.cdi.driver_files import DriverFiles, Library
    from device_plugin.cdi.options import CdiOptions
    from device_plugin.cdi.roots import Roots

# CUDA images list this directory in LD_LIBRARY_PATH, whatever their distribution calls its own library directory.
LOADER_DIRECTORY = "/usr/local/nvidia/lib64"

# Links that programs expect although the driver's installer may not make them: stem -> (link, target; {} is the version).
_EXPECTED_LINKS = {
    "libcuda": ("libcuda.so", "libcuda.so.1"),
    "libGLX_nvidia": ("libGLX_indirect.so.0", "libGLX_nvidia.so.{}"),
    "libnvidia-opticalflow": ("libnvidia-opticalflow.so", "libnvidia-opticalflow.so.1"),
    "libglxserver_nvidia": ("libglxserver_nvidia.so", "libglxserver_nvidia.so.{}"),
}

# The names under which programs load what they need to compute, should the installer's links be missing.
_EXPECTED_NAMES = {
    "libcuda": "libcuda.so.1",
    "libnvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-ptxjitcompiler": "libnvidia-ptxjitcompiler.so.1",
}


@record
class HookProgram:
    """NVIDIA's hook program, `path` on the host; None where there is none."""

    path: str | None
    options: CdiOptions

    def runs(self, hook: CdiHook) -> bool:
        """Whether that hook is part of the specifications."""
        return self.path is not None and self.options.allows(hook)

    def call(self, hook: CdiHook, *args: str) -> tuple[HookEdit, ...]:
        """The hook with these arguments; nothing if it does not run."""
        if self.path is None or not self.runs(hook):
            return ()
        name = PurePosixPath(self.path).name
        command = (name, "hook") if name == "nvidia-ctk" else (name,)
        return (HookEdit(self.path, (*command, hook, *args), env=("NVIDIA_CTK_DEBUG=false",)),)

    def create_links(self, links: Iterable[str]) -> tuple[HookEdit, ...]:
        """The hook that makes links given as `target::link`; nothing if there are none."""
        args = tuple(arg for link in links for arg in ("--link", link))
        return self.call(CdiHook.CREATE_SYMLINKS, *args) if args else ()

    def refresh_loader_cache(self, directories: Iterable[str]) -> tuple[HookEdit, ...]:
        """The hook that makes the loader look into these directories; nothing if there are none."""
        args = tuple(arg for directory in sorted(set(directories)) for arg in ("--folder", directory))
        return self.call(CdiHook.UPDATE_LDCACHE, *args) if args else ()


def find_hook_program(roots: Roots, options: CdiOptions) -> tuple[HookProgram, tuple[Problem, ...]]:
    """The hook program, if the host has it, and what is to be said where it has not.

    A hook that is missing fails every container, so the path is looked up through the driver root. Where that shows another
    part of the host, only a path the operator stated is believed.
    """
    path = roots.hook_on_host(options.hook_path)
    view = roots.view_of_host(path)
    if view is None:
        if options.hook_was_stated:
            return HookProgram(path, options), ()
        why = f"whether the host has {path} cannot be seen from here; if it has, state it with --nvidia-cdi-hook-path"
    else:
        inside = resolve_inside(roots.driver, view)
        if inside is not None and is_file(roots.driver, inside) and os.access(seen(roots.driver, inside), os.X_OK):
            return HookProgram(path, options), ()
        why = f"there is no program {path} on the host (looked for at {seen(roots.driver, view)})"
    message = (
        f"CDI specifications are written without hooks: {why}. Containers can compute, with what docs/cdi.md lists missing: "
        "install NVIDIA's container toolkit on the node for the rest"
    )
    return HookProgram(None, options), (Problem(Severity.WARNING, ProblemKind.HARDWARE, message, Origin("node")),)


def driver_hooks(program: HookProgram, files: DriverFiles) -> tuple[HookEdit, ...]:
    """The hooks for the driver's libraries, in the order in which they must run: links before the loader's cache."""
    return (
        *program.create_links(_link_arguments(files)),
        *program.call(CdiHook.ENABLE_CUDA_COMPAT, f"--host-driver-version={files.version}"),
        *program.refresh_loader_cache(library.file.directory for library in files.libraries),
        *program.call(CdiHook.DISABLE_DEVICE_NODE_MODIFICATION),
        *program.call(CdiHook.UPDATE_APPLICATION_PROFILE),
    )


def mounts_in_place_of_links(program: HookProgram, roots: Roots, libraries: Iterable[Library]) -> Iterator[MountEdit]:
    """Mounts of each library under its other names, and under all names in the directory that CUDA images search.

    Nothing where a hook makes the links (a link cannot be made over a mount) or refreshes the loader's cache (it makes them too).
    """
    if program.runs(CdiHook.CREATE_SYMLINKS) or program.runs(CdiHook.UPDATE_LDCACHE):
        return
    for library in libraries:
        names = {PurePosixPath(link.path).name for link in library.links}
        expected = _EXPECTED_NAMES.get(_stem(library))
        names |= {expected} if expected else set()
        host_path = roots.on_host(library.file.source)
        for name in sorted(names - {library.file.name}):
            yield MountEdit.read_only(host_path, f"{library.file.directory}/{name}")
        for name in sorted(names | {library.file.name}):
            yield MountEdit.read_only(host_path, f"{LOADER_DIRECTORY}/{name}")


def _link_arguments(files: DriverFiles) -> tuple[str, ...]:
    """`target::link` for every link; where both claim one name the installer's comes last and stays."""
    arguments: dict[str, None] = {}
    for library in files.libraries:
        if expected := _EXPECTED_LINKS.get(_stem(library)):
            link, target = expected
            arguments[f"{target.format(files.version)}::{library.file.directory}/{link}"] = None
        arguments.update({f"{link.target}::{link.path}": None for link in library.links})
    return tuple(arguments)


def _stem(library: Library) -> str:
    return library.file.name.partition(".so")[0]
