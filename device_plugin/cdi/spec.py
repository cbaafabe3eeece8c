"""What a CDI specification says, as values, and the JSON a container runtime reads.

The field names and the version that brought each field are those of the Container Device Interface's specification
(https://github.com/cncf-tags/container-device-interface/blob/main/SPEC.md). A document states the lowest version that carries
its fields, so that runtimes which know only older ones still read it.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeVar

from device_plugin.allocation.cdi_names import kind, qualified_name
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Document = dict[str, Any]
_T = TypeVar("_T")

_DEVICE_NAME = re.compile(r"[A-Za-z0-9]([-_.:A-Za-z0-9]*[A-Za-z0-9])?")
_READ_ONLY = ("ro", "nosuid", "nodev", "rbind", "rprivate")
_SOCKET = ("nosuid", "nodev", "rbind", "rprivate", "noexec")


def is_device_name(name: str) -> bool:
    """Whether a runtime takes that text as a device's name. MIG UUIDs of drivers before R470 hold slashes and are none."""
    return _DEVICE_NAME.fullmatch(name) is not None


@record
class NodeEdit:
    """A device node. What could not be read on the node (all but the paths) is None: the runtime then asks the host's file."""

    path: str
    host_path: str
    major: int | None = None
    minor: int | None = None
    file_mode: int | None = None
    permissions: str | None = None
    gid: int | None = None

    def document(self) -> Document:
        return _without_defaults(
            path=self.path,
            hostPath=self.host_path,
            major=self.major,
            minor=self.minor,
            fileMode=self.file_mode,
            permissions=self.permissions,
            gid=self.gid,
        )


@record
class MountEdit:
    """A bind mount of a file or directory."""

    host_path: str
    container_path: str
    options: tuple[str, ...]

    @classmethod
    def read_only(cls, host_path: str, container_path: str) -> MountEdit:
        """The mount of a library, program or data file."""
        return cls(host_path, container_path, _READ_ONLY)

    @classmethod
    def socket(cls, host_path: str, container_path: str) -> MountEdit:
        """The mount of a socket or of a directory of pipes: writable, or nobody could speak into it."""
        return cls(host_path, container_path, _SOCKET)

    def document(self) -> Document:
        return {"hostPath": self.host_path, "containerPath": self.container_path, "options": list(self.options)}


@record
class HookEdit:
    """A program the runtime starts while it makes the container, always at OCI's `createContainer`."""

    path: str
    args: tuple[str, ...]
    env: tuple[str, ...] = ()

    def document(self) -> Document:
        return _without_defaults(hookName="createContainer", path=self.path, args=list(self.args), env=list(self.env))


@record
class Edits:
    """What is changed in a container. The order given is the order written; `tidied` brings it into the defined one."""

    env: tuple[str, ...] = ()
    nodes: tuple[NodeEdit, ...] = ()
    hooks: tuple[HookEdit, ...] = ()
    mounts: tuple[MountEdit, ...] = ()
    additional_gids: tuple[int, ...] = ()

    def tidied(self) -> Edits:
        """Without duplicates; variables and groups sorted, nodes and mounts by depth of their path, then by path."""
        return Edits(
            env=tuple(sorted(set(self.env))),
            nodes=tuple(sorted({node.path: node for node in self.nodes}.values(), key=lambda node: _depth_first(node.path))),
            hooks=tuple(dict.fromkeys(self.hooks)),
            mounts=tuple(
                sorted(
                    {mount.container_path: mount for mount in self.mounts}.values(), key=lambda m: _depth_first(m.container_path)
                )
            ),
            additional_gids=tuple(sorted(set(self.additional_gids))),
        )

    def without(self, common: Edits) -> Edits:
        """What is left when `common` goes into the container anyway; unchanged if that were nothing (an empty edit is invalid)."""
        left = Edits(
            env=_minus(self.env, common.env),
            nodes=_minus(self.nodes, common.nodes),
            hooks=_minus(self.hooks, common.hooks),
            mounts=_minus(self.mounts, common.mounts),
            additional_gids=_minus(self.additional_gids, common.additional_gids),
        )
        return left if left != Edits() else self

    def document(self) -> Document:
        return _without_defaults(
            env=list(self.env),
            deviceNodes=[node.document() for node in self.nodes],
            hooks=[hook.document() for hook in self.hooks],
            mounts=[mount.document() for mount in self.mounts],
            additionalGids=list(self.additional_gids),
        )


@record
class CdiDevice:
    """One name that a runtime can be asked for.

    `dormant` ones are written only for those who may hold them: their name was written before, or is still named. That is the
    whole GPU which has gone into MIG mode.
    """

    name: str
    edits: Edits
    annotations: Mapping[str, str] = field(default_factory=dict)
    dormant: bool = False

    def document(self) -> Document:
        return _without_defaults(
            name=self.name, annotations=dict(sorted(self.annotations.items())), containerEdits=self.edits.document()
        )


@record
class Spec:
    """One class of devices: kind `<prefix>/<class>`, devices sorted by name, edits common to all of them."""

    kind_prefix: str
    device_class: str
    devices: tuple[CdiDevice, ...]
    common: Edits = field(default_factory=Edits)

    @property
    def kind(self) -> str:
        return kind(self.kind_prefix, self.device_class)

    def qualified_name(self, name: str) -> str:
        """The name a runtime is asked with: `<prefix>/<class>=<name>`."""
        return qualified_name(self.kind_prefix, self.device_class, name)

    def document(self) -> Document:
        """The specification without its dormant devices."""
        devices = [device.document() for device in self.devices if not device.dormant]
        return complete_document(self.kind, devices, self.common.document())


def complete_document(of_kind: str, devices: Iterable[Document], common: Document) -> Document:
    """A specification of these devices, sorted by name, with the lowest version that carries its fields."""
    document: Document = {"cdiVersion": "", "kind": of_kind, "devices": sorted(devices, key=lambda device: str(device["name"]))}
    if common:
        document["containerEdits"] = common
    return document | {"cdiVersion": required_version(document)}


def required_version(document: Document) -> str:
    """The lowest version of the specification that has every field used."""
    edits = [device["containerEdits"] for device in document["devices"]] + [document.get("containerEdits", {})]
    if any(edit.get("additionalGids") for edit in edits):
        return "0.7.0"
    device_class = document["kind"].partition("/")[2]
    if "." in device_class or any(entry.get("annotations") for entry in (document, *document["devices"])):
        return "0.6.0"
    has_host_paths = any(node.get("hostPath") for edit in edits for node in edit.get("deviceNodes", ()))
    if has_host_paths or any(device["name"][0].isdigit() for device in document["devices"]):
        return "0.5.0"
    if any(mount.get("type") for edit in edits for mount in edit.get("mounts", ())):
        return "0.4.0"
    return "0.3.0"


def encode(document: Document) -> bytes:
    """The file's bytes. Same document, same bytes."""
    return (json.dumps(document, indent=2, ensure_ascii=True) + "\n").encode()


def _without_defaults(**fields: Any) -> Document:
    """The fields that say something: the specification leaves out what is zero or empty."""
    return {name: value for name, value in fields.items() if value or name in ("containerEdits", "path")}


def _minus(items: Sequence[_T], common: Sequence[_T]) -> tuple[_T, ...]:
    return tuple(item for item in items if item not in common)


def _depth_first(path: str) -> tuple[int, str]:
    return path.count("/"), path
