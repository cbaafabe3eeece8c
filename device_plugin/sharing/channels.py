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


def missing_channels(inventory: Inventory, config: Config) -> str | None:
    """Which of the channels that the config asks for this node lacks, as a clause; None where it has them all."""
    missing = [f"channel{number}" for number in config.imex.channel_ids if number not in inventory.imex_channels]
    return f"this node has no IMEX {join_words(missing)} in {DIRECTORY}" if missing else None


def has_required_channels(inventory: Inventory, config: Config, report: Report) -> bool:
    """Whether containers can be given what `imex.required` asks for. A channel that is not there is reported in any case."""
    missing = missing_channels(inventory, config)
    if missing is None:
        return True
    if config.imex.required:
        report.error(
            ProblemKind.PLATFORM, f"{missing}, and it is required; no container can be started with a GPU", "imex.required"
        )
        return False
    report.warn(ProblemKind.UNMET, f"{missing}; containers start without it", "imex.channelIDs")
    return True
