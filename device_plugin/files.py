"""Regular files at paths where somebody may have put something else."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def opened_regular(path: str | Path, *, or_null: bool = False) -> Iterator[int]:
    """The descriptor of a regular file (or of /dev/null) open for reading. Never blocks on a pipe. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if stat.S_ISDIR(status.st_mode):
            raise OSError(errno.EISDIR, "it is a directory")
        is_null = stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(1, 3)
        if not stat.S_ISREG(status.st_mode) and not (or_null and is_null):
            raise OSError(errno.EINVAL, "it is no regular file")
        yield descriptor
    finally:
        os.close(descriptor)
