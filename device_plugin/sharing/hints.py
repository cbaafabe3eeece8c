"""Why an entry meets nothing on this node, and what was probably meant."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from device_plugin.config.values import MigStrategy
from device_plugin.problems import ProblemKind, nearest
from device_plugin.sharing.names import GPU_RESOURCE
from device_plugin.sharing.phrases import join_words

if TYPE_CHECKING:
    from collections.abc import Sequence

    from device_plugin.config.model import Config
    from device_plugin.sharing.offer import Device, Withheld
    from device_plugin.sharing.report import Report

_MIG_RESOURCE = r"nvidia\.com/mig-([0-9]+c\.)?[0-9]+g\.[0-9]+gb([-.][a-z][a-z.]*)?"


def report_missing_resource(number: int, resources: Sequence[str], config: Config, report: Report) -> None:
    """Say that a sharing entry names no resource of this node.

    That is harmless where the name belongs to other nodes of one ConfigMap, and probably a slip where another entry renames to it,
    where `resources` gives the hardware another name, or where it is nearly a name that exists.
    """
    slicing = config.sharing.time_slicing
    assert slicing is not None
    name, path = slicing.resources[number].name, f"sharing.timeSlicing.resources[{number}].name"
    here = sorted(set(resources))
    has = f"this node has {join_words(here) or 'no device'}"
    custom = {item.name for item in (*config.resources.gpus, *config.resources.mig)}
    is_default = name == GPU_RESOURCE or re.fullmatch(_MIG_RESOURCE, name) is not None
    renames = {entry.rename for entry in slicing.resources} | (
        {f"{e.name}.shared" for e in slicing.resources} if slicing.rename_by_default else set()
    )
    if is_default and custom.intersection(here):
        report.warn(ProblemKind.UNMET, f"no device is called {name}: {has}, by the names under resources; name those", path)
    elif name in renames:
        report.warn(
            ProblemKind.UNMET, f"no device is called {name} before sharing; name the resource that it is made from: {has}", path
        )
    elif is_default or name in custom:
        strategy = config.flags.mig_strategy
        why = f" and the MIG strategy is {strategy}" if strategy is not MigStrategy.MIXED and name != GPU_RESOURCE else ""
        report.inform(ProblemKind.UNMET, f"no device is called {name}: {has}{why}", path)
    elif near := nearest(name, sorted({*here, *custom, GPU_RESOURCE}), likeness=0.8):
        report.warn(ProblemKind.UNMET, f"no device is called {name}; did you mean {near}? {has}", path)
    else:
        report.inform(ProblemKind.UNMET, f"no device is called {name}: {has}", path)


def explain_missing_device(
    text: str, resource: str, found: Device | None, members: Sequence[Device], withheld: Sequence[Withheld]
) -> str:
    """Why a device named by a sharing entry is not one of the entry's resource. `found` is what the text names elsewhere."""
    has, reference = f"it has {join_words([device.index for device in members])}", text.lower()
    if found is not None:
        return f"device {text!r} is not of {resource} but of another resource; {has}"
    for item in withheld:
        if reference in (item.index, item.hardware_id.lower()):
            return f"device {text!r} is not offered ({item.reason}); {resource} has the rest"
    if any(device.index.startswith(f"{reference}:") or device.gpu_uuid.lower() == reference for device in members):
        return f"GPU {text!r} is split into MIG devices; name those: {has}"
    return f"{resource} has no device {text!r} on this node; {has}"
