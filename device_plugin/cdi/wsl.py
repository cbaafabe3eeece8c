"""The specification under WSL: one device `all`, since Windows gives its Linux guest all GPUs through one node or none."""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from device_plugin.cdi.nodes import node_edits
from device_plugin.cdi.roots import names_in, resolve_inside
from device_plugin.cdi.spec import CdiDevice, Edits, MountEdit, Spec
from device_plugin.errors import InjectionImpossible

if TYPE_CHECKING:
    from device_plugin.cdi.hooks import HookProgram
    from device_plugin.cdi.roots import Roots

_NODE = "/dev/dxg"
_SHARED = "/usr/lib/wsl/lib"
_DRIVER_STORE = "/usr/lib/wsl/drivers"  # where Windows shows its driver packages; NVIDIA's begin with nv
_FILES = (
    "libcuda.so.1.1",
    "libcuda_loader.so",
    "libnvidia-ptxjitcompiler.so.1",
    "libnvidia-ml.so.1",
    "libnvidia-ml_loader.so",
    "libdxcore.so",
    "libnvdxgdmal.so.1",
    "nvcubins.bin",
    "nvidia-smi",
)


def wsl_spec(roots: Roots, program: HookProgram, kind_prefix: str) -> Spec:
    """The `gpu` class of a WSL node. Raises InjectionImpossible where Windows' driver shows none of its files."""
    directories = (*(f"{_DRIVER_STORE}/{name}" for name in names_in(roots.driver, _DRIVER_STORE, "nv*")), _SHARED)
    found: dict[str, tuple[str, str]] = {}
    for name in _FILES:
        for directory in directories:
            if name not in found and (source := resolve_inside(roots.driver, f"{directory}/{name}")):
                found[name] = (f"{directory}/{name}", source)
    if not found:
        raise InjectionImpossible(
            f"No file of Windows' NVIDIA driver under {roots.driver} in {', '.join(directories)}: is the driver root mounted?"
        )
    links = [f"{found['nvidia-smi'][0]}::/usr/bin/nvidia-smi"] if "nvidia-smi" in found else []
    libraries = [str(PurePosixPath(path).parent) for name, (path, _) in found.items() if ".so" in name]
    common = Edits(
        env=("NVIDIA_VISIBLE_DEVICES=void",),
        hooks=(*program.create_links(links), *program.refresh_loader_cache(libraries)),
        mounts=tuple(MountEdit.read_only(roots.on_host(source), path) for path, source in found.values()),
    )
    return Spec(kind_prefix, "gpu", (CdiDevice("all", node_edits(roots, (_NODE,)).tidied()),), common.tidied())
