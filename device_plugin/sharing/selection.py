"""Which GPUs are offered at all: `devices.include` and `devices.exclude`. What they hide does not exist for anything after."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING

from device_plugin.config.values import matches_pattern
from device_plugin.problems import ProblemKind
from device_plugin.records import record
from device_plugin.sharing.phrases import list_products

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from device_plugin.config.model import Config
    from device_plugin.hardware.model import Gpu, Inventory, UnreadableGpu
    from device_plugin.sharing.report import Report

_PCI_ADDRESS = r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})\.([0-7])"
_INDEX = r"[0-9]+"
HIDDEN = "hidden by devices.include or devices.exclude"


@record
class Selection:
    """The GPUs chosen, in index order; and whether any was hidden."""

    gpus: tuple[Gpu, ...]
    unreadable: tuple[UnreadableGpu, ...]
    hides: bool


def parse_pci_address(text: str) -> tuple[int, int, int, int] | None:
    """Domain, bus, device and function of `00000000:17:00.0`, `0000:17:00.0` or `17:00.0` in either case; None for other text."""
    match = re.fullmatch(_PCI_ADDRESS, text, re.IGNORECASE)
    if match is None:
        return None
    domain, bus, device, function = (int(part, 16) if part else 0 for part in match.groups())
    return domain, bus, device, function


def same_number(digits: str, number: int) -> bool:
    """Whether decimal digits spell that number. Compares texts: a file may hold more digits than `int` takes."""
    return (digits.lstrip("0") or "0") == str(number)


def select_gpus(inventory: Inventory, config: Config, report: Report) -> Selection:
    """The GPUs that the config leaves, in index order. An empty `include` includes all; `exclude` wins.

    A selector that chooses nothing is reported, and so is a selection that leaves nothing.
    """
    gpus = sorted(inventory.gpus, key=lambda gpu: (gpu.index, gpu.uuid, gpu.pci_bus_id or "", gpu.name))
    unreadable = sorted(inventory.unreadable, key=lambda gpu: (gpu.index, gpu.reason, gpu.uuid or ""))
    include, exclude = config.devices.include, config.devices.exclude
    for key, selectors in (("include", include), ("exclude", exclude)):
        for number, selector in enumerate(selectors):
            chosen = any(chooses(selector, gpu) for gpu in gpus)
            if not chosen and all(may_choose(selector, gpu) is False for gpu in unreadable):
                report.warn(ProblemKind.UNMET, _explain(selector, gpus), f"devices.{key}[{number}]")

    def is_left(verdict: Callable[[str], bool | None]) -> bool:
        included = not include or any(verdict(selector) is not False for selector in include)
        return included and not any(verdict(selector) for selector in exclude)

    left, left_unreadable = [], []
    for gpu in gpus:
        if is_left(partial(chooses, gpu=gpu)):
            left.append(gpu)
        else:
            report.withhold(gpu.index, gpu.uuid, HIDDEN)
    for lost in unreadable:
        if is_left(partial(may_choose, gpu=lost)):
            left_unreadable.append(lost)
        else:
            report.withhold(lost.index, lost.uuid or "", HIDDEN)
    hides = len(left) + len(left_unreadable) < len(gpus) + len(unreadable)
    if hides and not left and not left_unreadable:
        report.warn(
            ProblemKind.UNMET,
            f"devices.include and devices.exclude leave no GPU; this node has {list_products(gpus)}",
            "devices.include" if include else "devices.exclude",
        )
    return Selection(tuple(left), tuple(left_unreadable), hides)


def chooses(selector: str, gpu: Gpu) -> bool:
    """Whether a selector (an index, a UUID, a PCI address or a product pattern) means that GPU."""
    if re.fullmatch(_INDEX, selector):
        return same_number(selector, gpu.index)
    address = parse_pci_address(selector)
    if address is not None:
        return gpu.pci_bus_id is not None and parse_pci_address(gpu.pci_bus_id) == address
    return (bool(gpu.uuid) and selector.lower() == gpu.uuid.lower()) or matches_pattern(selector, gpu.name)


def may_choose(selector: str, gpu: UnreadableGpu) -> bool | None:
    """As `chooses`, for a GPU whose name and address nobody knows; None where that leaves it open."""
    if re.fullmatch(_INDEX, selector):
        return same_number(selector, gpu.index)
    if selector.lower().startswith("gpu-") and gpu.uuid is not None:
        return selector.lower() == gpu.uuid.lower()
    return None


def _explain(selector: str, gpus: Sequence[Gpu]) -> str:
    return f"{selector!r} chooses no GPU; this node has {list_products(gpus)}"
