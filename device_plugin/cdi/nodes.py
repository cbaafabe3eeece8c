"""Device nodes: what the host's file says of each, and the DRM nodes of a GPU."""

from __future__ import annotations

import os
import stat
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from device_plugin.cdi.roots import names_in, resolve_inside, seen
from device_plugin.cdi.spec import Edits, NodeEdit
from device_plugin.hardware.model import sysfs_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from device_plugin.cdi.roots import Roots

_WORLD_READ_WRITE = 0o006


def node_edits(roots: Roots, paths: Iterable[str], *, additional_gids: bool = True) -> Edits:
    """The nodes at these container paths. One that this process cannot see is named by its paths alone.

    A node that only its group may use brings that group into the container's process, unless `additional_gids` is False.
    """
    nodes = tuple(_node(roots, path) for path in paths)
    groups = {node.gid for node in nodes if node.gid and node.file_mode is not None and _keeps_others_out(node.file_mode)}
    return Edits(nodes=nodes, additional_gids=tuple(sorted(groups)) if additional_gids else ())


def unseen(roots: Roots, paths: Iterable[str]) -> tuple[str, ...]:
    """Those of the nodes that this process cannot find."""
    return tuple(path for path in paths if _status(roots, path) is None)


def drm_nodes(roots: Roots, pci_bus_id: str | None) -> tuple[str, ...]:
    """The /dev/dri nodes that exist for the GPU at that PCI address (NVML's text); none where it has no DRM driver."""
    if pci_bus_id is None:
        return ()
    directory = resolve_inside(roots.own, f"/sys/bus/pci/devices/{sysfs_address(pci_bus_id)}/drm")
    if directory is None:
        return ()
    names = (*names_in(roots.own, directory, "card[0-9]*"), *names_in(roots.own, directory, "renderD[0-9]*"))
    paths = tuple(f"/dev/dri/{name}" for name in names)
    return tuple(path for path in paths if _status(roots, path) is not None)


def drm_links(roots: Roots, nodes: Iterable[str]) -> tuple[str, ...]:
    """udev's links to these DRM nodes (`../card1::/dev/dri/by-path/pci-...`), in the form the symlink hook takes."""
    wanted = {PurePosixPath(node).name for node in nodes}
    directory = resolve_inside(roots.dev, "/dev/dri/by-path")
    links = []
    for name in names_in(roots.dev, directory, "pci-*-*") if directory else ():
        try:
            target = seen(roots.dev, f"{directory}/{name}").readlink()
        except OSError:
            continue
        if target.name in wanted:
            links.append(f"{target}::/dev/dri/by-path/{name}")
    return tuple(links)


def _node(roots: Roots, path: str) -> NodeEdit:
    host_path = roots.node_on_host(path)
    status = _status(roots, path)
    if status is None:
        return NodeEdit(path, host_path)
    return NodeEdit(
        path,
        host_path,
        major=os.major(status.st_rdev),
        minor=os.minor(status.st_rdev),
        file_mode=stat.S_IMODE(status.st_mode) & 0o777,
        permissions="rwm",
        gid=status.st_gid or None,
    )


def _status(roots: Roots, path: str) -> os.stat_result | None:
    """The character device at that path, links followed inside the root."""
    resolved = resolve_inside(roots.dev, path)
    if resolved is None:
        return None
    try:
        status = os.lstat(seen(roots.dev, resolved))
    except OSError:
        return None
    return status if stat.S_ISCHR(status.st_mode) else None


def _keeps_others_out(mode: int) -> bool:
    return mode & _WORLD_READ_WRITE != _WORLD_READ_WRITE
