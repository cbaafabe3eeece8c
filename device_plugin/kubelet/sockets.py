"""Socket files: their names, who serves them, and how one is put in place without ever taking another's away.

gRPC's core library binds a unix socket by unlinking whatever has that path, a living server's socket included, and when it stops it
unlinks the path again, whoever has bound it by then (grpc/grpc#17122). So it never gets to see the path that kubelet
dials: it binds a name that nobody else uses, and we give the socket its real name with a hard link, which fails where the name is
taken. What gRPC unlinks later is the name that has gone already.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import secrets
import socket
import stat
from pathlib import Path
from typing import Self
from urllib.parse import quote

from device_plugin.errors import SocketTaken, SocketUnusable
from device_plugin.records import record

PREFIX = "gpu-device-plugin-"  # not the peer's `nvidia-`: two plugins on one node would unlink each other's
MAX_PATH_BYTES = 105  # what gRPC binds and kubelet dials; the kernel's sun_path has 108
MODE = 0o600  # only kubelet talks to us, and it is root
_HASH_DIGITS = 12
_STAGING = f".{PREFIX}"
_SELINUX_ENFORCE = Path("/sys/fs/selinux/enforce")


@record
class SocketIdentity:
    """Which file a socket is. `changed_ns` is its ctime: a new kubelet's socket often gets the inode number of the old one."""

    device: int
    inode: int
    changed_ns: int

    @classmethod
    def of(cls, path: Path) -> Self | None:
        """The socket at that path, or None where there is none (a plain file counts as none)."""
        try:
            found = path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return cls(found.st_dev, found.st_ino, found.st_ctime_ns) if stat.S_ISSOCK(found.st_mode) else None

    def is_same_file(self, other: SocketIdentity | None) -> bool:
        """Whether both name one file; linking and chmod change the ctime of a file that stays the same."""
        return other is not None and (self.device, self.inode) == (other.device, other.inode)


def socket_name(resource: str, directory: Path) -> str:
    """The file name of a resource's socket: `nvidia.com/gpu.shared` -> `gpu-device-plugin-nvidia.com-gpu.shared.sock`.

    Where the path would pass 105 bytes, the resource's name is replaced by a hash of it, and where its domain has a dash, since
    `a-b/c` and `a/b-c` would be one name. Raises `SocketUnusable` if even the hash does not fit.
    """
    room = MAX_PATH_BYTES - len(os.fsencode(directory)) - 1
    domain, _, name = resource.partition("/")
    readable = f"{PREFIX}{domain}-{name}.sock"
    if len(readable) <= room and "-" not in domain:
        return readable
    hashed = f"{PREFIX}{hashlib.sha256(resource.encode()).hexdigest()[:_HASH_DIGITS]}.sock"
    if len(hashed) <= room:
        return hashed
    raise SocketUnusable(
        f'the socket directory "{directory}" is too long a path: a socket in it would pass the {MAX_PATH_BYTES} bytes that a unix '
        f"socket's path may have; {MAX_PATH_BYTES - len(hashed) - 1} bytes are left for the directory"
    )


def target(path: Path) -> str:
    """gRPC's name for a unix socket. The path is part of a URI there, so `%`, `?` and `#` must be escaped."""
    return f"unix:{quote(str(path))}"


def is_served(path: Path) -> bool:
    """Whether some process accepts connections on that socket. Never blocks: connecting to a unix socket is immediate."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as probe:
        try:
            probe.connect(str(path))
        except BlockingIOError:
            return True  # its backlog is full: somebody listens
        except OSError as error:
            if error.errno in (errno.EACCES, errno.EPERM):
                raise SocketUnusable(denied("connect to", path)) from error
            return False
    return True


def denied(attempt: str, path: Path, enforce: Path = _SELINUX_ENFORCE) -> str:
    """Why access to a path was refused, as far as can be known from here.

    Root is refused by SELinux more often than by a file's mode, and its text is the same "Permission denied"
    (kubernetes/kubernetes#73240).
    """
    text = f'could not {attempt} "{path}": permission denied'
    try:
        enforcing = enforce.read_text().strip() == "1"
    except OSError:
        enforcing = False
    if enforcing:
        return (
            f"{text}; SELinux is enforcing: look for a denial with `ausearch -m avc`, and give the container a type that may use it"
        )
    return f"{text}; the plugin must run as root, or as a user who may write there"


class OwnSocket:
    """The name of one socket of ours in the directory, from a server that listens under a staging name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.staging = path.with_name(f"{_STAGING}{secrets.token_hex(4)}.sock")
        self._identity: SocketIdentity | None = None

    def why_unbound(self, error: RuntimeError) -> OSError:
        """Why gRPC could not bind the staging name: it says so only in its own log, so try the same step ourselves."""
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.bind(str(self.staging))
            except OSError as reason:
                return reason
        self.staging.unlink(missing_ok=True)
        return OSError(errno.EAGAIN, str(error))

    def publish(self) -> None:
        """Give the socket its name. Raises `SocketTaken` if another process serves that name, `OSError` if it cannot be linked."""
        self.staging.chmod(MODE)
        self._identity = SocketIdentity.of(self.staging)
        try:
            os.link(self.staging, self.path)
        except FileExistsError:
            self._clear_stale()
            os.link(self.staging, self.path)
        finally:
            self.staging.unlink(missing_ok=True)

    def _clear_stale(self) -> None:
        if is_served(self.path):
            raise SocketTaken(
                f'another process serves "{self.path}"; it is left alone. Stop the other device plugin, or wait for it to end'
            )
        if SocketIdentity.of(self.path) is None and self.path.exists():
            raise SocketTaken(f'"{self.path}" is in the way and is not a socket; remove it')
        self.path.unlink(missing_ok=True)

    def is_ours(self) -> bool:
        """Whether the name still leads to our socket.

        Device and inode decide: as long as our server listens, the kernel holds the inode, and no other file can get its number.
        """
        try:
            return self._identity is not None and self._identity.is_same_file(SocketIdentity.of(self.path))
        except OSError:
            return False  # a path that we cannot see is not one that leads to us

    def withdraw(self) -> None:
        """Remove the name if it is still ours. One that cannot be removed stays, and the next process of ours clears it away."""
        if self.is_ours():
            with contextlib.suppress(OSError):  # a file system that has become read-only must not end anything
                self.path.unlink(missing_ok=True)
        self._identity = None
