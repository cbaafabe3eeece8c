"""The files of the repository, found without git so that an unpacked archive passes too."""

from __future__ import annotations

import fnmatch
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def _is_ignored(name: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in patterns)


@pytest.fixture(scope="session")
def root() -> Path:
    """The top of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def texts() -> dict[str, str]:
    """Every text file that is part of the repository, by its path relative to the top."""
    patterns = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text().splitlines() if line and not line.startswith("#")]
    found = {}
    for directory, subdirectories, names in os.walk(ROOT):
        subdirectories[:] = [name for name in subdirectories if name != ".git" and not _is_ignored(name, patterns)]
        for name in names:
            path = Path(directory, name)
            if name == ".git" or _is_ignored(name, patterns) or path.is_symlink():
                continue
            content = path.read_bytes()
            if b"\0" not in content:
                found[str(path.relative_to(ROOT))] = content.decode()
    return dict(sorted(found.items()))
