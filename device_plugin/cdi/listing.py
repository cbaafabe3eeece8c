"""What a container runtime would find: the CDI specifications of all directories, read as a runtime reads them."""

from __future__ import annotations

import json
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

# Where runtimes look, the later directory wins; the second is where generated files go and does not survive a reboot.
CDI_DIRECTORIES = (Path("/etc/cdi"), Path("/var/run/cdi"))


@record
class ListedDevice:
    """One device name (`<prefix>/<class>=<name>`) and the files of the winning directory that define it.

    A runtime refuses a name that two files of one directory define.
    """

    name: str
    paths: tuple[Path, ...]

    @property
    def is_resolvable(self) -> bool:
        return len(self.paths) == 1


@record
class Listing:
    """Every device name by its text, sorted, and the files that no runtime could read, with the reason."""

    devices: Mapping[str, ListedDevice] = field(default_factory=dict)
    unreadable: Mapping[Path, str] = field(default_factory=dict)


def list_devices(directories: Iterable[Path] = CDI_DIRECTORIES) -> Listing:
    """All devices that the CDI specifications (.json, .yaml) in these directories define, least important directory first."""
    devices: dict[str, ListedDevice] = {}
    unreadable: dict[Path, str] = {}
    for directory in directories:
        here: dict[str, list[Path]] = {}
        for path in _specifications(directory):
            try:
                for name in _names(_read(path)):
                    here.setdefault(name, []).append(path)
            except (OSError, ValueError) as error:
                unreadable[path] = str(error)
        devices |= {name: ListedDevice(name, tuple(paths)) for name, paths in here.items()}
    return Listing(dict(sorted(devices.items())), unreadable)


def check_names(names: Iterable[str], listing: Listing) -> dict[str, str]:
    """Which of these qualified names a runtime would refuse, and why. Names are compared whole: `...::1` is not `...::10`."""
    refused = {}
    for name in sorted(set(names)):
        device = listing.devices.get(name)
        if device is None:
            refused[name] = "no CDI specification defines this name"
        elif not device.is_resolvable:
            refused[name] = f"several CDI specifications define this name: {', '.join(map(str, device.paths))}; remove all but one"
    return refused


def _specifications(directory: Path) -> list[Path]:
    try:
        return sorted(path for path in directory.iterdir() if path.suffix in (".json", ".yaml"))
    except OSError:
        return []


def _read(path: Path) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".json":
        return json.loads(text)
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"no YAML: {error}") from error


def _names(document: Any) -> list[str]:
    """The qualified names of one specification. Raises ValueError for what is none."""
    match document:
        case {"kind": str(kind), "devices": list(devices)}:
            return [f"{kind}={device['name']}" for device in devices if isinstance(device, dict) and "name" in device]
        case _:
            raise ValueError("no CDI specification: it has no kind or no list of devices")
