"""What joins the GPUs: active NVLinks by their far end, NVSwitches, and the nearest common PCIe ancestor. Nothing here raises."""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import TYPE_CHECKING

import pynvml

from device_plugin.errors import DriverError
from device_plugin.hardware.model import CommonAncestor, Link
from device_plugin.hardware.nvml.call import field_text
from device_plugin.hardware.nvml.handle import find_handle
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from device_plugin.hardware.model import Gpu
    from device_plugin.hardware.nvml.call import Calls

# What NVML gives as the PCI address of an NVSwitch that the node cannot see (its fabric is managed elsewhere).
_HIDDEN_SWITCH = "ffffffff:ff:ff"


@record
class FarEnds:
    """The far ends of one GPU's active NVLinks. `has_switch_ports`: at least one link, active or not, ends at an NVSwitch."""

    gpus: Mapping[str, int] = field(default_factory=dict)  # normalised PCI address -> links
    switch_links: int = 0
    has_switch_ports: bool = False


def read_links(calls: Calls, gpus: Sequence[Gpu], far_ends: Mapping[str, FarEnds]) -> tuple[Link, ...]:
    """Every ordered pair of `gpus`, by source and target index. `far_ends` is by UUID."""
    ancestors = _read_ancestors(calls, gpus)
    links = []
    for source in gpus:
        near = far_ends.get(source.uuid, FarEnds())
        for target in gpus:
            if target.index == source.index:
                continue
            far = far_ends.get(target.uuid, FarEnds())
            links.append(
                Link(
                    source=source.index,
                    target=target.index,
                    ancestor=ancestors.get((min(source.index, target.index), max(source.index, target.index))),
                    nvlinks=near.gpus.get(_normalised(target.pci_bus_id), 0) if target.pci_bus_id else 0,
                    via_switch=near.switch_links > 0 and far.switch_links > 0,
                )
            )
    return tuple(sorted(links, key=lambda link: (link.source, link.target)))


def read_far_ends(calls: Calls, gpu_uuid: str) -> FarEnds:
    """The far ends of that GPU's NVLinks; empty as far as the driver does not tell."""
    try:
        handle = find_handle(calls, gpu_uuid)
    except DriverError:
        return FarEnds()
    gpus: Counter[str] = Counter()
    switch_links, has_switch_ports = 0, False
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            is_active = calls.ask(gpu_uuid, pynvml.nvmlDeviceGetNvLinkState, handle, link) != 0
        except DriverError as error:
            if error.code == pynvml.NVML_ERROR_INVALID_ARGUMENT:
                break  # past the last link of this GPU
            continue
        is_switch, address = _read_far_end(calls, gpu_uuid, handle, link, is_active=is_active)
        has_switch_ports |= is_switch
        if is_active:
            switch_links += is_switch
            if address is not None and not is_switch:
                gpus[address] += 1
    return FarEnds(dict(gpus), switch_links, has_switch_ports)


def _read_far_end(calls: Calls, gpu_uuid: str, handle: pynvml._Device, link: int, *, is_active: bool) -> tuple[bool, str | None]:
    """Whether an NVSwitch is there, and the normalised PCI address of what is."""
    try:
        kind = calls.ask(gpu_uuid, pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link)
        if kind == pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH:
            return True, None
    except DriverError:
        pass  # an old driver: the address has to tell
    if not is_active:
        return False, None
    try:
        address = _normalised(field_text(calls.ask(gpu_uuid, pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link), "busId"))
    except DriverError:
        return False, None
    return address == _HIDDEN_SWITCH, address


def _read_ancestors(calls: Calls, gpus: Sequence[Gpu]) -> dict[tuple[int, int], CommonAncestor]:
    """The common ancestor of each pair, by (lower, higher) index: it is the same from both ends, so it is read once."""
    handles = {}
    uuids = {gpu.index: gpu.uuid for gpu in gpus}
    for gpu in gpus:
        try:
            handles[gpu.index] = find_handle(calls, gpu.uuid)
        except DriverError:
            continue
    found = {}
    for low in sorted(handles):
        for high in sorted(handles):
            if high <= low:
                continue
            try:
                level = calls.ask(uuids[low], pynvml.nvmlDeviceGetTopologyCommonAncestor, handles[low], handles[high])
                found[low, high] = CommonAncestor(level)
            except (DriverError, ValueError):  # ValueError: a level this project does not know
                continue
    return found


def _normalised(pci_bus_id: str) -> str:
    """`00000000:0F:00.0` and `0000:0f:00` alike -> `0:f:0`: domains are given with four or eight digits, functions not always."""
    return ":".join(part.lstrip("0") or "0" for part in pci_bus_id.lower().partition(".")[0].split(":"))
