"""IMEX channels that the config asks for and the node does not have."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.problems import ProblemKind
from device_plugin.sharing.phrases import join_words

if TYPE_CHECKING:
    from device_plugin.config.model import Config
    from device_plugin.hardware.model import Inventory
    from device_plugin.sharing.report import Report

DIRECTORY = "/dev/nvidia-caps-imex-channels"


def has_required_channels(inventory: Inventory, config: Config, report: Report) -> bool:
    """Whether containers can be given what `imex.required` asks for. A channel that is not there is reported in any case."""
    missing = [f"channel{number}" for number in config.imex.channel_ids if number not in inventory.imex_channels]
    if not missing:
        return True
    found = f"this node has no IMEX {join_words(missing)} in {DIRECTORY}"
    if config.imex.required:
        report.error(ProblemKind.PLATFORM, f"{found}, and it is required; nothing is offered", "imex.required")
        return False
    report.warn(ProblemKind.UNMET, f"{found}; containers start without it", "imex.channelIDs")
    return True
