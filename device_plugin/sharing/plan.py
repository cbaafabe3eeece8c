"""`plan`: Inventory x Config -> Offer. Pure: same values, same Offer, in the same order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from device_plugin.config.model import DeviceSelection, Resources
from device_plugin.config.notices import keys_beyond_peer
from device_plugin.hardware.model import Platform
from device_plugin.problems import ProblemKind
from device_plugin.sharing.channels import has_required_channels
from device_plugin.sharing.identity import identify_gpus, report_faults
from device_plugin.sharing.limits import fit_shares
from device_plugin.sharing.mig import arrange_hardware, report_withheld, shape_served
from device_plugin.sharing.names import name_hardware, report_idle_patterns
from device_plugin.sharing.nodes import report_unknown_nodes
from device_plugin.sharing.offer import Device, Offer, PreferencePolicy, Resource
from device_plugin.sharing.phrases import list_counts
from device_plugin.sharing.platforms import WSL_ID, collapse_wsl, is_supported
from device_plugin.sharing.references import refer_to
from device_plugin.sharing.replicas import ENTRIES, Share, claim_devices, expand, report_sharing
from device_plugin.sharing.report import Report
from device_plugin.sharing.selection import select_gpus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from device_plugin.config.model import Config, SharedResource
    from device_plugin.hardware.model import Gpu, Inventory, MigDevice
    from device_plugin.sharing.mig import Hardware, Shape


def plan(inventory: Inventory, config: Config, *, keep_shape: Shape | None = None) -> Offer:
    """What the node should offer under this config, and everything wrong with it. Never raises; no order of the input matters.

    The Offer is always the best that can be served: the earlier of two entries that claim one device has it, a list stops where
    kubelet's limit does, and where the MIG strategy `single` does not fit the node nothing is offered, or what has `keep_shape`
    (`kept_shape` of the Offer served). Of its errors those of the kinds CONFIG, CONTRADICTION, TOO_LARGE and MIG_SINGLE are about
    the config as a whole; HARDWARE, MIG and PLATFORM errors are about this node, and no reason to refuse a config.
    """
    report = Report(config)
    shares = _share_hardware(inventory, config, keep_shape, report)
    _report_differences(inventory, config, keep_shape, shares, report)
    by_name: dict[str, list[Share]] = {}
    for share in shares:  # in index order, since the hardware came so
        by_name.setdefault(share.resource, []).append(share)
    fitting = {name: fit_shares(name, by_name[name], report) for name in sorted(by_name)}
    resources = tuple(_make_resource(name, members, config, report) for name, members in fitting.items() if members)
    return Offer(resources, report.problems, report.withheld)


def kept_shape(inventory: Inventory, offer: Offer) -> Shape | None:
    """The shape of what an Offer, made from that Inventory, serves: `keep_shape` for the next `plan` after a hardware change."""
    return shape_served(inventory.gpus, (device.hardware_id for resource in offer.resources for device in resource.devices))


def _share_hardware(inventory: Inventory, config: Config, keep_shape: Shape | None, report: Report) -> list[Share]:
    """Every device offered, under which name and how many times, before kubelet's limit."""
    if not is_supported(inventory, config, report):
        return []
    selection = select_gpus(inventory, config, report)
    report_faults(selection, report)
    report_idle_patterns(selection.gpus, config, report)
    if selection.gpus:
        has_required_channels(inventory, config, report)
    if inventory.platform is Platform.WSL:
        gpus: Sequence[Gpu] = selection.gpus
        named = collapse_wsl(selection, config, report)
        behind = gpus
    else:
        gpus = identify_gpus(selection.gpus, report)
        hardware = arrange_hardware(gpus, config.flags.mig_strategy, keep_shape, report)
        named = _name_devices(hardware, config, report)
        behind = ()
    references = {text: device for _, device in named for text in refer_to(device, behind)}
    shares = claim_devices([Share(name, device) for name, device in named], references, config, report)
    report_sharing(shares, gpus, report)
    report_unknown_nodes([share.device for share in shares], config, report)
    return shares


def _name_devices(hardware: Sequence[Hardware], config: Config, report: Report) -> list[tuple[str, Device]]:
    named = []
    for gpu, mig in hardware:
        try:
            named.append((name_hardware(gpu, mig, config), _make_device(gpu, mig)))
        except ValueError as error:
            assert mig is not None, "a whole GPU always has a name"
            report_withheld(gpu, mig, str(error), report)
    return named


def _make_device(gpu: Gpu, mig: MigDevice | None) -> Device:
    """The unshared device. A negative NUMA node is the kernel's way to say that it knows none."""
    numa_node = gpu.numa_node if gpu.numa_node is not None and gpu.numa_node >= 0 else None
    if mig is None:
        return Device(gpu.uuid, gpu.uuid, gpu.uuid, str(gpu.index), numa_node=numa_node, device_nodes=gpu.device_nodes)
    return Device(
        mig.uuid,
        mig.uuid,
        gpu.uuid,
        f"{gpu.index}:{mig.index}",
        numa_node=numa_node,
        device_nodes=mig.device_nodes,
        gpu_instance_id=mig.gpu_instance_id,
        compute_instance_id=mig.compute_instance_id,
    )


def _make_resource(name: str, shares: Sequence[Share], config: Config, report: Report) -> Resource:
    slicing = config.sharing.time_slicing
    return Resource(
        name=name,
        devices=tuple(device for share in shares for device in expand(share)),
        policy=_choose_policy(name, shares, config, report),
        fail_requests_greater_than_one=(
            slicing is not None and slicing.fail_requests_greater_than_one and any(share.is_shared for share in shares)
        ),
    )


def _choose_policy(name: str, shares: Sequence[Share], config: Config, report: Report) -> PreferencePolicy:
    """Aligned for whole unshared GPUs; for all else what the entries say, the first of them if they disagree, or the flag."""
    slicing = config.sharing.time_slicing
    entries = sorted({share.entry for share in shares if share.entry is not None})
    stated = [
        (number, policy) for number in entries if slicing is not None and (policy := slicing.resources[number].allocation_policy)
    ]
    whole = not any(share.is_shared or share.device.is_mig or share.device.hardware_id == WSL_ID for share in shares)
    for number, policy in stated:
        path = f"{ENTRIES}[{number}].allocationPolicy"
        if whole:
            report.warn(
                ProblemKind.CONFIG,
                f"{policy} has no effect: {name} has whole GPUs only, which are chosen by their links",
                path,
            )
        elif policy != stated[0][1]:
            report.error(
                ProblemKind.CONTRADICTION,
                f"{name} cannot be {policy} and {stated[0][1]}: {report.place(f'{ENTRIES}[{stated[0][0]}]')} says the latter, "
                "which holds",
                path,
            )
    if whole:
        return PreferencePolicy.ALIGNED
    return PreferencePolicy(stated[0][1] if stated else config.flags.plugin.shared_devices_allocation_policy)


def _report_differences(
    inventory: Inventory, config: Config, keep_shape: Shape | None, shares: Sequence[Share], report: Report
) -> None:
    """Say what NVIDIA's plugin, which reads `resources`, `rename` and `devices` and ignores them, would offer here instead."""
    slicing, keys = config.sharing.time_slicing, keys_beyond_peer(config)
    if not keys:
        return
    ignoring = _as_the_peer_reads(config)
    here, there = _count(shares), _count(_share_hardware(inventory, ignoring, keep_shape, Report(ignoring)))
    outcome = f"ignores them and would offer {list_counts(there)}"
    if slicing is not None and any(entry.replicas == 1 for entry in slicing.resources):
        outcome = "refuses a file with replicas: 1"
    elif here == there:
        return
    report.inform(
        ProblemKind.DIFFERENCE,
        f"here these take effect: {', '.join(keys)}; this node offers {list_counts(here)}. NVIDIA's plugin {outcome}",
        keys[0],
    )


def _as_the_peer_reads(config: Config) -> Config:
    """The Config without what NVIDIA's plugin does not know or ignores. Of entries for one resource the most replicas count."""
    changes: dict[str, object] = {"resources": Resources(), "devices": DeviceSelection()}
    slicing = config.sharing.time_slicing
    if slicing is not None:
        entries: dict[str, SharedResource] = {}
        for entry in sorted(slicing.resources, key=lambda entry: entry.replicas):
            entries[entry.name] = entry.model_copy(update={"rename": None, "devices": "all", "allocation_policy": None})
        time_slicing = slicing.model_copy(update={"resources": tuple(entries.values())})
        changes["sharing"] = config.sharing.model_copy(update={"time_slicing": time_slicing})
    return config.model_copy(update=changes)


def _count(shares: Sequence[Share]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for share in shares:
        counts[share.resource] += share.replicas
    return counts
