"""Where the config's text comes from: one file, or one of several in a directory, as a mounted ConfigMap brings them.

Reading is all there is: whoever wants to know of a change reads again and compares hashes. That alone sees every kind of change,
kubelet's swap of `..data`, a rewrite, an editor's rename, a file that goes and comes back, because it asks the path anew each time.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.config.document import decode
from device_plugin.config.load import text_hash
from device_plugin.config.values import shown
from device_plugin.errors import ConfigError
from device_plugin.files import opened_regular
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_BYTES = 1024 * 1024
"""What a config may hold: as much as a ConfigMap."""

FALLBACKS = ("named", "single", "empty")
"""What can be done where no config is asked for: the one called `default`, the only one, or none."""


@record
class SourceText:
    """What a source held when it was read.

    `path` is the file read, empty where the choice is to have none. Where what should be read is not there, `missing` is the path
    awaited. `text` is None in both cases: there is no file.
    """

    text: str | None
    hash: str
    path: str
    missing: str = ""


@record
class ConfigSource:
    """A `file`, or a `directory` of configs, each named by its file: the one called `name`, else `default`, else by `fallbacks`.

    With neither there is no config, and flags and variables say everything.
    """

    file: str = ""
    directory: str = ""
    name: str = ""
    default: str = ""
    fallbacks: tuple[str, ...] = ()

    @property
    def watched_directory(self) -> str:
        """The directory in which changes of the config show, empty where there is nothing to watch.

        Never the file: kubelet replaces a link beside it, and a watch on the file would stay with the old one for good
        (open-feature/flagd#42, Kuadrant/limitador#95).
        """
        return self.directory or (str(Path(self.file).parent) if self.file else "")

    def read(self) -> SourceText:
        """The text as it is now. Raises ConfigError where it cannot be read, or no config can be chosen."""
        if self.file:
            return _read_file(self.file)
        if not self.directory:
            return SourceText(None, text_hash(None), "")
        names = _list_configs(self.directory)
        wanted = self.name or self.default
        if names is None or (not names and not wanted and "empty" not in self.fallbacks):
            return _awaiting(self.directory)
        if wanted and wanted not in names and _is_key(wanted):
            return _awaiting(str(Path(self.directory, wanted)))
        chosen = select_config(names, self.name, self.default, self.fallbacks)
        return _read_file(str(Path(self.directory, chosen))) if chosen else SourceText(None, text_hash(None), "")


def select_config(names: Sequence[str], wanted: str = "", default: str = "", fallbacks: Sequence[str] = ()) -> str:
    """The name of the config for this node, empty for none: `wanted`, else `default`, else what the first fallback that fits gives.

    Raises ConfigError where the one asked for is not there, a fallback is unknown, or none fits.
    """
    there = f"there are {', '.join(sorted(names))}" if names else "there are no configs"
    for asked, flag in ((wanted, "config-name"), (default, "default-config")):
        if asked and asked not in names:
            raise _refusal(f"the config {shown(asked)} does not exist; {there}", f"--{flag}")
        if asked:
            return asked
    for fallback in fallbacks:
        if fallback not in FALLBACKS:
            message = f"unknown fallback strategy {shown(fallback)}; expected {', '.join(FALLBACKS[:-1])} or {FALLBACKS[-1]}"
            raise _refusal(message, "--fallback-strategies")
    for fallback in fallbacks:
        if fallback == "named" and "default" in names:
            return "default"
        if fallback == "single" and len(names) == 1:
            return names[0]
        if fallback == "empty":
            return ""
    tried = f"no fallback of {', '.join(fallbacks)} fits" if fallbacks else "there is no --fallback-strategies"
    raise _refusal(f"no config is chosen: no --config-name, no --default-config, and {tried}; {there}", "--config-dir")


def _is_key(name: str) -> bool:
    """Whether a ConfigMap can hold a key of that name; anything else is a slip that waiting cannot mend."""
    return "/" not in name and not name.startswith("..")


def _list_configs(directory: str) -> list[str] | None:
    """The names of the files in a directory, sorted, but for kubelet's own, which start with two dots. None: no directory."""
    try:
        with os.scandir(directory) as entries:
            return sorted(entry.name for entry in entries if not entry.name.startswith("..") and not _is_directory(entry))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refusal(f"cannot be read: {_reason(error)}", directory) from error


def _is_directory(entry: os.DirEntry[str]) -> bool:
    """A link that leads nowhere or round in circles is listed: reading it says what is wrong with it."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def _awaiting(path: str) -> SourceText:
    return SourceText(None, text_hash(None), path, missing=path)


def _read_file(path: str) -> SourceText:
    try:
        content = _content(path)
    except FileNotFoundError:
        return _awaiting(path)
    except OSError as error:
        # The first line, so that every problem of a file starts alike.
        problem = Problem(Severity.ERROR, ProblemKind.CONFIG, f"cannot be read: {_reason(error)}", Origin(path, 1, 1))
        raise ConfigError([problem]) from error
    text = decode(content, path)
    return SourceText(text, text_hash(text), path)


def _content(path: str) -> bytes:
    """The bytes of a file, or none of /dev/null, which the peer's config manager links to."""
    with opened_regular(path, or_null=True) as descriptor:
        content = b""
        while part := os.read(descriptor, MAX_BYTES + 1):
            content += part
            if len(content) > MAX_BYTES:
                raise OSError(errno.EFBIG, f"it is larger than {MAX_BYTES} bytes, the most a ConfigMap can hold", path)
        return content


def _reason(error: OSError) -> str:
    reasons = {errno.ELOOP: "its links lead round in circles", errno.EACCES: "permission denied"}
    return reasons.get(error.errno or 0) or error.strerror or str(error)


def _refusal(message: str, source: str) -> ConfigError:
    return ConfigError([Problem(Severity.ERROR, ProblemKind.CONFIG, message, Origin(source))])
