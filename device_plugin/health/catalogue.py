"""NVIDIA's XID catalogue: what each XID is called and what NVIDIA says to do first. Data: xids.csv, which names its source."""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from device_plugin.config.xids import XidClass
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping


@record
class CatalogueEntry:
    """One XID of the catalogue; `xid_class` is its immediate action."""

    xid: int
    mnemonic: str
    xid_class: XidClass


@cache
def catalogue() -> Mapping[int, CatalogueEntry]:
    """All entries by XID, ascending. Read once from the package."""
    text = (Path(__file__).parent / "xids.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    entries = [CatalogueEntry(int(row["xid"]), row["mnemonic"], XidClass(row["immediate_action"])) for row in rows]
    return MappingProxyType({entry.xid: entry for entry in sorted(entries, key=lambda entry: entry.xid)})


def class_of(xid: int) -> XidClass:
    """The class of an XID; `UNKNOWN` for one that is not in the catalogue."""
    entry = catalogue().get(xid)
    return XidClass.UNKNOWN if entry is None else entry.xid_class


def describe(xid: int) -> str:
    """`XID 79 (ROBUST_CHANNEL_GPU_HAS_FALLEN_OFF_THE_BUS)`."""
    entry = catalogue().get(xid)
    return f"XID {xid}" if entry is None else f"XID {xid} ({entry.mnemonic})"
