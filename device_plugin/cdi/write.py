"""Writing specifications: at once, only what differs, and no name away from under a pod that may hold it.

Kubelet keeps what Allocate answered and replays it when a container starts again, also after a reboot. So a name that was
written must go on resolving: through a repartitioning, through the end of this process, and when CDI is switched off.
"""

from __future__ import annotations

import json
import os
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_plugin.allocation.cdi_names import CdiClass, kind, qualified_name
from device_plugin.allocation.model import DEFAULT_CDI_KIND_PREFIX
from device_plugin.cdi.spec import complete_document, encode
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from device_plugin.cdi.spec import Document, Spec

DEFAULT_DIRECTORY = Path("/var/run/cdi")


@record
class Written:
    """What happened: files changed and removed, and each qualified name whose file could not be written, with the reason."""

    changed: tuple[Path, ...] = ()
    removed: tuple[Path, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


def specification_path(directory: Path, kind_prefix: str, device_class: str) -> Path:
    """The file of one class, named as NVIDIA's plugin names it, so that taking over from it leaves no second definition."""
    return directory / f"{kind_prefix}-{device_class}.json"


def write_specs(
    specs: Iterable[Spec],
    directory: Path = DEFAULT_DIRECTORY,
    *,
    still_named: Collection[str] | None,
    kind_prefix: str = DEFAULT_CDI_KIND_PREFIX,
) -> Written:
    """Bring the plugin's files in `directory` to what `specs` say. Never raises for a file that cannot be written.

    `still_named` are the qualified names that a pod holds or may yet be given; None: nobody can tell, so no name goes. Names
    written before are kept while they are among these, with what they brought then. A class that is not in `specs` keeps such
    names alone, and its file goes with the last.
    """
    wanted = {spec.device_class: spec for spec in specs}
    changed, removed, failures = [], [], {}
    for device_class in sorted({*CdiClass, *wanted}):
        path = specification_path(directory, kind_prefix, device_class)
        previous = _previous_devices(path, kind(kind_prefix, device_class))
        is_kept = _Keeper(kind_prefix, device_class, still_named)
        spec = wanted.get(device_class)
        document = _merged(spec, previous, is_kept) if spec else _remainder(path, previous, is_kept)
        try:
            if document is None:
                removed += [path] if _remove(path) else []
            elif _replace(path, encode(document)):
                changed.append(path)
        except OSError as error:
            names = [device["name"] for device in document["devices"]] if document else []
            reason = f"the CDI specification {path} cannot be written: {error.strerror or error}"
            failures.update({qualified_name(kind_prefix, device_class, name): reason for name in names})
    return Written(tuple(changed), tuple(removed), failures)


@record
class _Keeper:
    """Says which earlier names of one class stay."""

    kind_prefix: str
    device_class: str
    still_named: Collection[str] | None

    def __call__(self, name: str) -> bool:
        return self.still_named is None or qualified_name(self.kind_prefix, self.device_class, name) in self.still_named


def _merged(spec: Spec, previous: Mapping[str, Document], is_kept: _Keeper) -> Document | None:
    """The specification with the earlier names that stay; dormant devices come back for those who may hold them."""
    document = spec.document()
    named = {device["name"]: device for device in document["devices"]}
    asked_for = set(is_kept.still_named or ())
    dormant = {
        device.name: device.document()
        for device in spec.devices
        if device.dormant and (spec.qualified_name(device.name) in asked_for or (device.name in previous and is_kept(device.name)))
    }
    kept = _kept(previous, is_kept)
    devices = (kept | dormant | named).values()
    return complete_document(spec.kind, devices, document.get("containerEdits", {})) if devices else None


def _kept(previous: Mapping[str, Document], is_kept: _Keeper) -> dict[str, Document]:
    """The earlier devices that stay, under all their names: whoever says what is named may know one of them alone."""
    edits = [device["containerEdits"] for name, device in previous.items() if is_kept(name)]
    return {name: device for name, device in previous.items() if device["containerEdits"] in edits}


def _remainder(path: Path, previous: Mapping[str, Document], is_kept: _Keeper) -> Document | None:
    """What stays of a class that no longer applies."""
    devices = list(_kept(previous, is_kept).values())
    if not devices:
        return None
    document = _load(path)
    return complete_document(document["kind"], devices, document.get("containerEdits", {}))


def _previous_devices(path: Path, of_kind: str) -> dict[str, Document]:
    """The devices of the file that is there, by name; none if it is not a specification of that kind."""
    document = _load(path)
    if document.get("kind") != of_kind:
        return {}
    devices = document.get("devices")
    return {device["name"]: device for device in devices if _is_device(device)} if isinstance(devices, list) else {}


def _is_device(device: Any) -> bool:
    match device:
        case {"name": str(name), "containerEdits": dict(edits)}:
            return bool(name and edits)
        case _:
            return False


def _load(path: Path) -> Document:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def _remove(path: Path) -> bool:
    try:
        path.unlink()
    except FileNotFoundError:
        return False
    return True


def _replace(path: Path, content: bytes) -> bool:
    """Put `content` in place as a whole, readable by all; False if it was there already.

    The temporary name has no suffix that a runtime reads. Everything is on disk before the name points at it.
    """
    try:
        if path.read_bytes() == content:
            return False
    except OSError:
        pass  # not there, or not readable: written anew
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        with temporary.open("wb") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)
    return True


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
