"""Time-slicing: which entry claims which devices, and what they are offered as."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from device_plugin.config.values import parse_resource_name
from device_plugin.hardware.model import ComputeMode
from device_plugin.problems import ProblemKind
from device_plugin.records import record
from device_plugin.sharing.hints import explain_missing_device, report_missing_resource
from device_plugin.sharing.phrases import list_gpus
from device_plugin.sharing.platforms import WSL_ID

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from device_plugin.config.model import Config, SharedResource, TimeSlicing
    from device_plugin.hardware.model import Gpu
    from device_plugin.sharing.offer import Device
    from device_plugin.sharing.report import Report

ENTRIES = "sharing.timeSlicing.resources"
_COUNTED_REPLICAS = 1_000_000_000  # a config may state more; no list holds as many, and sizes stay printable


@record
class Share:
    """A device, the resource it is offered under, and how many times. `entry` is the sharing entry that claims it, None if none."""

    resource: str
    device: Device
    replicas: int = 1
    entry: int | None = None

    @property
    def is_shared(self) -> bool:
        return self.replicas > 1


def claim_devices(shares: Sequence[Share], references: Mapping[str, Device], config: Config, report: Report) -> list[Share]:
    """Let the sharing entries, in file order, claim the devices of the resource that they name.

    `shares` are the unshared devices in index order, `references` what a list of devices may call each of them (see `refer_to`). A
    list claims the devices it names, a count the next unclaimed ones, `all` what is left; an unclaimed device stays as it is. Where
    a list names a device that an earlier entry has, the earlier one keeps it, with an error. Under WSL every GPU in a list is
    the one device there is.
    """
    slicing = config.sharing.time_slicing
    if slicing is None:
        return list(shares)
    claims: dict[str, Share] = {}
    for number, entry in enumerate(slicing.resources):
        members = [share.device for share in shares if share.resource == entry.name]
        if not members:
            report_missing_resource(number, [share.resource for share in shares], config, report)
            continue
        if isinstance(entry.devices, tuple):
            claimed = _claim_list(number, slicing, members, references, claims, report)
        else:
            claimed = _claim_next(number, entry, members, claims, report)
        try:
            name = target_name(entry, rename_by_default=slicing.rename_by_default)
        except ValueError as error:
            name = None
            report.error(ProblemKind.CONFIG, f"renameByDefault: {error}; give the entry a rename", f"{ENTRIES}[{number}].name")
        for device in claimed:
            claims[device.id] = Share(name or "", device, min(entry.replicas, _COUNTED_REPLICAS), number)
            if name is None:
                report.withhold_device(device, "its resource has no valid name")
    return [share for share in (claims.get(share.device.id, share) for share in shares) if share.resource]


def target_name(entry: SharedResource, *, rename_by_default: bool) -> str:
    """The resource that an entry offers its devices under. Raises ValueError if `.shared` makes the name too long.

    `renameByDefault` names what is shared, so it leaves an entry of one replica alone; `rename` is always followed.
    """
    if entry.rename is not None:
        return entry.rename
    return parse_resource_name(f"{entry.name}.shared") if rename_by_default and entry.replicas > 1 else entry.name


def expand(share: Share) -> list[Device]:
    """The devices that kubelet sees for a share: its replicas, or the device itself if it is offered once."""
    if not share.is_shared:
        return [share.device]
    return [replace(share.device, id=f"{share.device.id}::{number}", replica=number) for number in range(share.replicas)]


def report_sharing(shares: Sequence[Share], gpus: Sequence[Gpu], report: Report) -> None:
    """Say what sharing does not do, and which shared GPUs let one program in only."""
    shared = [share for share in shares if share.is_shared]
    if not shared:
        return
    report.inform(
        ProblemKind.CONFIG,
        "time-slicing isolates no memory and no faults: each replica can use all memory of its device, and one that takes it all "
        "stops the others",
        "sharing.timeSlicing",
    )
    parents = {share.device.gpu_uuid for share in shared}
    for mode in (ComputeMode.EXCLUSIVE_PROCESS, ComputeMode.EXCLUSIVE_THREAD):
        closed = [gpu.index for gpu in gpus if gpu.uuid in parents and gpu.compute_mode is mode]
        if closed:
            report.warn(
                ProblemKind.HARDWARE,
                f"{list_gpus(closed)}: shared, but the compute mode {mode.name} lets one program in at a time, so the second "
                "container fails; set it back with nvidia-smi -c DEFAULT, or do not share it",
            )


def _claim_list(
    number: int,
    slicing: TimeSlicing,
    members: Sequence[Device],
    references: Mapping[str, Device],
    claims: Mapping[str, Share],
    report: Report,
) -> list[Device]:
    entry, ids = slicing.resources[number], {device.id for device in members}
    claimed: dict[str, Device] = {}
    for position, text in enumerate(entry.devices):
        path = f"{ENTRIES}[{number}].devices[{position}]"
        device = references.get(text.lower())
        if device is None or device.id not in ids:
            report.warn(ProblemKind.UNMET, explain_missing_device(text, entry.name, device, members, report.withheld), path)
        elif device.id in claimed:
            if device.id != WSL_ID:
                report.warn(ProblemKind.CONFIG, f"{text!r} names device {device.index} ({device.id}) a second time", path)
        elif device.id in claims:
            _report_claimed(device, claims[device.id].entry, entry, slicing, path, report)
        else:
            claimed[device.id] = device
    return list(claimed.values())


def _report_claimed(
    device: Device, first: int | None, entry: SharedResource, slicing: TimeSlicing, path: str, report: Report
) -> None:
    """Say that an earlier entry has what this one names too. Under WSL it is no trouble where both ask for the same."""
    assert first is not None, "an entry made the claim"
    earlier = report.place(f"{ENTRIES}[{first}]")
    if device.id != WSL_ID:
        found = f"device {device.index} ({device.id}) is claimed by {earlier} already, which keeps it"
        remedy = "let one entry claim it, and put lists of devices before counts and all"
    elif _asks_for_another(entry, slicing.resources[first], slicing):
        found = f"under WSL all GPUs are one device, which is claimed by {earlier} already, and that keeps it"
        remedy = "let one entry claim it, or all ask for the same replicas, name and policy"
    else:
        return
    report.error(ProblemKind.CONTRADICTION, f"{found}; {remedy}", path)


def _asks_for_another(entry: SharedResource, earlier: SharedResource, slicing: TimeSlicing) -> bool:
    """Whether two entries for one device want different things of it."""
    same = (entry.replicas, slicing.offered_name(entry)) == (earlier.replicas, slicing.offered_name(earlier))
    return not same or entry.allocation_policy not in (None, earlier.allocation_policy)


def _claim_next(
    number: int, entry: SharedResource, members: Sequence[Device], claims: Mapping[str, Share], report: Report
) -> list[Device]:
    free = [device for device in members if device.id not in claims]
    wanted = len(free) if entry.devices == "all" else entry.devices
    if wanted > len(free) or not free:
        report.warn(
            ProblemKind.UNMET,
            f"asks for {entry.devices} devices of {entry.name}, and {len(free)} of {len(members)} are left unclaimed",
            f"{ENTRIES}[{number}].devices",
        )
    return free[:wanted]
