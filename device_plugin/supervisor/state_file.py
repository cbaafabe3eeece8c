"""The state file: causes and the last arrangement, kept beside the sockets over a restart of the plugin.

Kubelet removes sockets from that directory when it starts and leaves plain files alone. Whatever cannot be read from the file is
worth a warning, never a failed start.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_plugin.files import opened_regular

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE_NAME = "gpu-device-plugin-state.json"


def write_atomically(path: Path, content: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` as a whole: temporary file, sync, rename. Raises OSError."""
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


class StateFile:
    """Reads once, writes when the content differs or the file has gone."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._written: bytes | None = None

    def read(self) -> tuple[dict[str, Any], str | None]:
        """The stored sections and, if the file was there but not usable, why."""
        try:
            with opened_regular(self.path) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
                data = json.load(file)
        except FileNotFoundError:
            return {}, None
        except (OSError, ValueError, RecursionError) as error:
            return {}, f"{self.path} is not usable and is ignored: {error}"
        if not isinstance(data, dict):
            return {}, f"{self.path} is not usable and is ignored: expected a JSON object"
        return data, None

    def is_there(self) -> bool:
        """Whether there is a file; kubelet's directory may have been made anew."""
        return self.path.is_file()

    def write(self, sections: Mapping[str, Any]) -> None:
        """Store the sections. Raises OSError."""
        content = json.dumps(sections, sort_keys=True, separators=(",", ":")).encode()
        if content != self._written or not self.is_there():
            write_atomically(self.path, content)
            self._written = content
