"""Where the driver's files are: on the host, and where this process sees the same directory.

All reading goes through here. A driver root is a whole file system of its own (a driver container's, a chroot), so a link in it
means what it means inside it: absolute targets start at the root again, and nothing leads out.
"""

from __future__ import annotations

import errno
import fnmatch
import os
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from device_plugin.records import record

if TYPE_CHECKING:
    from device_plugin.config.model import Config

_MOST_LINKS = 40  # as Linux: more links than that in one path are a loop


def resolve_inside(root: Path, path: str) -> str | None:
    """Where `path` leads, with every link in it followed inside `root`: an absolute path below `root`, None if nothing is there."""
    pending = list(reversed(PurePosixPath(path.lstrip("/")).parts))
    done: list[str] = []
    links = 0
    while pending:
        part = pending.pop()
        if part == "..":
            del done[-1:]
            continue
        try:
            target = str(root.joinpath(*done, part).readlink())
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL: it is there and no link
                return None
            done.append(part)
            continue
        links += 1
        if links > _MOST_LINKS:
            return None
        if target.startswith("/"):
            done = []
        pending.extend(reversed(PurePosixPath(target.lstrip("/")).parts))
    return "/" + "/".join(done)


def seen(root: Path, path: str) -> Path:
    """The path below `root` as this process opens it."""
    return root / path.lstrip("/")


def is_file(root: Path, path: str) -> bool:
    """Whether there is a plain file at that path below `root` (already resolved). What may not be looked at is none."""
    try:
        return stat.S_ISREG(seen(root, path).stat().st_mode)
    except OSError:
        return False


def names_in(root: Path, directory: str, pattern: str = "*") -> tuple[str, ...]:
    """The names in a directory below `root` (already resolved) that match a shell pattern, sorted; none if it cannot be read."""
    try:
        with os.scandir(seen(root, directory)) as entries:
            return tuple(sorted(fnmatch.filter((entry.name for entry in entries), pattern)))
    except OSError:
        return ()


@record
class Roots:
    """The four roots of the peer's options, and this process's own.

    `driver` is the driver root as this process sees it, `host_driver` the same directory on the host, `host_dev` the host's root of
    /dev. `own` holds this process's /dev and /sys: `/` outside tests.
    """

    driver: Path
    host_driver: str = "/"
    host_dev: str = "/"
    own: Path = Path("/")

    @property
    def driver_has_dev(self) -> bool:
        """Whether device nodes are looked for in the driver root (it has a `dev`) or in this process's own /dev."""
        return seen(self.driver, "dev").is_dir()

    @property
    def dev(self) -> Path:
        """The directory whose `dev` is read."""
        return self.driver if self.driver_has_dev else self.own

    def on_host(self, path: str) -> str:
        """The host's path of a file at `path` below the driver root."""
        return _joined(self.host_driver, path)

    def node_on_host(self, path: str) -> str:
        """The host's path of a device node at `path` below the root of /dev."""
        return _joined(self.host_driver if self.driver_has_dev else self.host_dev, path)

    def hook_on_host(self, path: str) -> str:
        """The host's path of a program that may have been named by where this process sees it."""
        inside = self.below_driver(path)
        return path if inside is None else self.on_host(inside)

    def below_driver(self, path: str) -> str | None:
        """The part of a path below the driver root as this process sees it; None if it is not below it."""
        root = str(self.driver).rstrip("/")
        return path[len(root) :] if root and path.startswith(f"{root}/") else None

    def view_of_host(self, host_path: str) -> str | None:
        """Where below the driver root a host path lies; None if this process cannot see that part of the host."""
        prefix = self.host_driver.rstrip("/")
        return host_path[len(prefix) :] if host_path.startswith(f"{prefix}/") else None


def roots_from(config: Config, own: Path = Path("/")) -> Roots:
    """The roots a config names."""
    flags = config.flags
    return Roots(
        driver=Path(flags.plugin.container_driver_root or "/"),
        host_driver=flags.nvidia_driver_root or "/",
        host_dev=flags.dev_root or "/",
        own=own,
    )


def _joined(root: str, path: str) -> str:
    return f"{root.rstrip('/')}/{path.lstrip('/')}"
