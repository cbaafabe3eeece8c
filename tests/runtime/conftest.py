"""A node of harmless device nodes and empty driver files, and a real container runtime that applies what is written for it.

Podman and runc run in a mount and process namespace of their own, with an empty /run: the host's CDI directory, its containers
and their state stay untouched, and whatever is left of a container ends with the namespace.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from device_plugin.cdi import CdiOptions, Roots, build_specs, write_specs
from device_plugin.hardware.model import Gpu, Inventory, MigDevice

VERSION = "550.163.01"
# Debian keeps it outside the PATH of users; podman is told where it is.
RUNC = shutil.which("runc", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
APPLETS = ("sh", "ls", "stat", "cat", "true")
# Longer than any run takes by far; a container that hangs ends with its namespace.
LIMIT_SECONDS = 40

_INSIDE = 'mount -t tmpfs tmpfs /run && mkdir -p /run/cdi && cp "$1"/* /run/cdi/ && shift && exec "$@"'


@dataclass(frozen=True)
class Node:
    """The simulated node: its root on the host, and what discovery would find there."""

    root: Path
    inventory: Inventory

    @property
    def roots(self) -> Roots:
        """The plugin would see the root at another place; here both are one directory, stated as the host's."""
        return Roots(driver=self.root, host_driver=str(self.root), host_dev=str(self.root), own=self.root)

    def write(self, directory: Path, options: CdiOptions, **kwargs) -> None:
        written = write_specs(build_specs(self.inventory, self.roots, options).specs, directory, **{"still_named": (), **kwargs})
        assert written.failures == {}


# Memory devices (major 1): null 3, zero 5, full 7, random 8, urandom 9. None of them is a GPU's 195 or 510.
_NODES = {
    "/dev/nvidiactl": 3,
    "/dev/nvidia0": 3,
    "/dev/nvidia1": 5,
    "/dev/nvidia2": 7,
    "/dev/nvidia-caps/nvidia-cap3": 8,
    "/dev/nvidia-caps/nvidia-cap4": 9,
    "/dev/nvidia-caps/nvidia-cap12": 8,
    "/dev/nvidia-caps/nvidia-cap13": 9,
    "/dev/nvidia-caps-imex-channels/channel0": 3,
}


def _uuid(kind: str, number: int) -> str:
    return f"{kind}-0000000{number}-aaaa-bbbb-cccc-dddddddddddd"


def _mig(index: int, capabilities: tuple[int, int]) -> MigDevice:
    paths = tuple(f"/dev/nvidia-caps/nvidia-cap{number}" for number in capabilities)
    return MigDevice(_uuid("MIG", index), index, index + 1, 0, "3g.20gb", device_nodes=("/dev/nvidia2", *paths))


@pytest.fixture(autouse=True)
def rights() -> None:
    """Skips, where CI is set fails, without what the marker `requires` cannot look for."""
    reason = "needs root: device nodes, namespaces" if os.geteuid() else "needs runc, not found" if RUNC is None else None
    if reason:
        pytest.fail(reason) if os.environ.get("CI") else pytest.skip(reason)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """GPUs 0 and 1 whole, GPU 2 split into two MIG devices."""
    root = tmp_path / "host"
    for path, minor in _NODES.items():
        target = root / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        os.mknod(target, stat.S_IFCHR | 0o666, os.makedev(1, minor))
        target.chmod(0o666)
    libraries = root / "usr/lib64"
    libraries.mkdir(parents=True)
    for stem in ("libcuda", "libnvidia-ml"):
        (libraries / f"{stem}.so.{VERSION}").write_text(f"{stem} {VERSION}")
        (libraries / f"{stem}.so.1").symlink_to(f"{stem}.so.{VERSION}")
    gpus = [Gpu(i, _uuid("GPU", i), "Simulated", minor=i, device_nodes=(f"/dev/nvidia{i}",)) for i in range(3)]
    gpus[2] = replace(gpus[2], mig_capable=True, mig_enabled=True, mig_devices=(_mig(0, (3, 4)), _mig(1, (12, 13))))
    inventory = Inventory(
        gpus=tuple(gpus), driver_version=VERSION, control_nodes=("/dev/nvidiactl",), imex_channels=(0,), simulated=True
    )
    return Node(root, inventory)


@pytest.fixture
def cdi(tmp_path: Path) -> Path:
    """The directory whose content podman finds as /run/cdi."""
    return tmp_path / "cdi"


@pytest.fixture
def run(tmp_path: Path, cdi: Path):
    """Runs a shell script in a container with these CDI devices (`<class>=<name>`), and returns the finished process."""
    rootfs = tmp_path / "rootfs"
    (rootfs / "bin").mkdir(parents=True)
    busybox = shutil.which("busybox")
    assert busybox
    shutil.copy(busybox, rootfs / "bin/busybox")
    for applet in APPLETS:
        (rootfs / "bin" / applet).symlink_to("busybox")
    limits = ["--network", "none", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]

    def in_container(script: str, *devices: str, env: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
        namespace = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc"]
        podman = [
            "podman",
            "--root",
            "/run/storage",
            "--runtime",
            RUNC or "runc",
            "--cgroup-manager",
            "cgroupfs",
            "run",
            "--rm",
            *limits,
        ]
        names = [f"--device=k8s.device-plugin.nvidia.com/{device}" for device in devices]
        variables = [f"--env={variable}" for variable in env]
        container = [*podman, *variables, *names, "--rootfs", str(rootfs), "/bin/sh", "-c", script]
        command = [*namespace, "sh", "-c", _INSIDE, "sh", str(cdi), *container]
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False)

    return in_container
