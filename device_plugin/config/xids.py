"""XIDs in the config: the classes of NVIDIA's catalogue, the policies to start from, and sets of single XIDs."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

from pydantic import BeforeValidator, WithJsonSchema
from pydantic_core import core_schema

from device_plugin.config.values import InvalidItems, shown
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pydantic_core import CoreSchema

_MAX_XID = 2**64 - 1  # NVML's event data is an unsigned 64-bit number


class XidClass(StrEnum):
    """What NVIDIA's XID catalogue tells to do first about an XID; the catalogue's own words."""

    CHECK_MECHANICALS = "CHECK_MECHANICALS"
    CHECK_UVM = "CHECK_UVM"
    CONTACT_SUPPORT = "CONTACT_SUPPORT"
    IGNORE = "IGNORE"
    NONE_STATED = "NONE_STATED"
    RESET_GPU = "RESET_GPU"
    RESTART_APP = "RESTART_APP"
    RESTART_BM = "RESTART_BM"
    RESTART_VM = "RESTART_VM"
    UPDATE_SWFW = "UPDATE_SWFW"
    WORKFLOW_NVLINK5_ERR = "WORKFLOW_NVLINK5_ERR"
    WORKFLOW_NVLINK_ERR = "WORKFLOW_NVLINK_ERR"
    WORKFLOW_XID_45 = "WORKFLOW_XID_45"
    WORKFLOW_XID_48 = "WORKFLOW_XID_48"
    XID_154 = "XID_154"
    UNKNOWN = "UNKNOWN"  # not the catalogue's: XIDs that are not in it


class XidPolicy(StrEnum):
    """Which XIDs count at all, before classes and single XIDs are set."""

    CATALOGUE = "catalogue"  # what NVIDIA's XID catalogue says, by class
    NVIDIA_DEVICE_PLUGIN = "nvidia-device-plugin"  # all but the six that NVIDIA's device plugin ignores
    GKE = "gke"  # XID 48 alone, the default of Google's device plugin


def parse_xid(value: object) -> int:
    """The number of an XID. Raises ValueError."""
    if isinstance(value, str) and re.fullmatch(r"0|[1-9][0-9]{0,19}", value):
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_XID:
        return value
    raise ValueError(f"{shown(value)} is no XID; expected its number, such as 79")


@record
class XidSet:
    """Some XIDs, or all of them: `all`, or the numbers in `xids`, ascending."""

    all: bool = False
    xids: tuple[int, ...] = ()

    def __contains__(self, xid: object) -> bool:
        return self.all or xid in self.xids

    def __bool__(self) -> bool:
        return self.all or bool(self.xids)

    @classmethod
    def __get_pydantic_core_schema__(cls, *_: object) -> CoreSchema:
        """Read by `parse_xid_set`, written as a list or `all`."""
        as_stated = core_schema.plain_serializer_function_ser_schema(lambda value: "all" if value.all else list(value.xids))
        return core_schema.no_info_plain_validator_function(parse_xid_set, serialization=as_stated)


def parse_xid_set(value: object) -> XidSet:
    """A list of XIDs, or `all`, alone or among them; `xids` is the peer's other word for it. Raises ValueError, InvalidItems."""
    if isinstance(value, XidSet):
        return value
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, (list, tuple)):
        raise ValueError(f'expected "all" or a list of XIDs, not {shown(value)}')
    numbers: set[int] = set()
    wrong: dict[int, str] = {}
    everything = False
    for index, item in enumerate(items):
        if isinstance(item, str) and item.lower() in ("all", "xids"):
            everything = True
            continue
        try:
            numbers.add(parse_xid(item))
        except ValueError:
            wrong[index] = f'{shown(item)} is no XID; expected its number, such as 79, or "all"'
    if wrong:
        raise InvalidItems(wrong) if items is value else ValueError(wrong[0])
    return XidSet(all=everything, xids=() if everything else tuple(sorted(numbers)))


def sift_xids(items: Iterable[str]) -> tuple[list[str], list[str]]:
    """Of texts those that are XIDs, or `all`, to NVIDIA's plugin, as the file would state them; and those that it skips."""
    taken, skipped = [], []
    for item in items:
        plain = re.sub(r"^0+(?=[0-9])", "", item)
        try:
            parse_xid_set(plain)
        except ValueError:
            skipped.append(item)
        else:
            taken.append(plain)
    return taken, skipped


_XID_SET_SCHEMA = {
    "anyOf": [
        {"type": "string", "pattern": "^(all|xids|[0-9]+)$"},
        {
            "type": "array",
            "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": "^(all|xids|[0-9]+)$"}]},
        },
    ]
}

Xid = Annotated[int, BeforeValidator(parse_xid)]
XidNumbers = Annotated[XidSet, WithJsonSchema(_XID_SET_SCHEMA)]
