"""Platforms that are not a plain NVML node: WSL, Tegra, and a discovery strategy that disagrees with what is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.config.values import DiscoveryStrategy
from device_plugin.hardware.model import Platform
from device_plugin.problems import ProblemKind
from device_plugin.sharing.names import name_hardware
from device_plugin.sharing.offer import Device
from device_plugin.sharing.phrases import join_words, list_products

if TYPE_CHECKING:
    from device_plugin.config.model import Config
    from device_plugin.hardware.model import Inventory
    from device_plugin.sharing.report import Report
    from device_plugin.sharing.selection import Selection

WSL_ID = "all"
WSL_NODE = "/dev/dxg"
_STRATEGY = "flags.deviceDiscoveryStrategy"


def is_supported(inventory: Inventory, config: Config, report: Report) -> bool:
    """Whether anything can be offered on the node's platform. What is odd about it is reported.

    Tegra is refused, unless the strategy `nvml` is forced and NVML shows GPUs there. A forced strategy that disagrees with the node
    gives a warning and never another number of GPUs (NVIDIA/k8s-device-plugin#995).
    """
    forced, found = config.flags.device_discovery_strategy, list_products(sorted(inventory.gpus, key=lambda gpu: gpu.index))
    if inventory.platform is Platform.TEGRA:
        if forced is DiscoveryStrategy.NVML and inventory.gpus:
            report.warn(
                ProblemKind.PLATFORM,
                f"the discovery strategy nvml is forced on a Tegra system (found: {found}); what NVML shows is offered, and "
                "containers may need device nodes that NVML does not know",
                _STRATEGY,
            )
            return True
        report.error(
            ProblemKind.PLATFORM,
            "Tegra systems (Jetson, IGX with an integrated GPU) are not supported; found a Tegra system and, through NVML, "
            f"{found}. Nothing is offered",
            _STRATEGY if forced is DiscoveryStrategy.TEGRA else "",
        )
        found_at = {(gpu.index, gpu.uuid) for gpu in inventory.gpus} | {(gpu.index, gpu.uuid or "") for gpu in inventory.unreadable}
        for index, uuid in found_at:
            report.withhold(index, uuid, "its platform is not supported")
        return False
    if forced is DiscoveryStrategy.TEGRA:
        report.warn(
            ProblemKind.PLATFORM,
            f"the discovery strategy tegra is forced, but this is no Tegra system (found: platform {inventory.platform}, {found}); "
            "what NVML shows is offered. Set it to auto",
            _STRATEGY,
        )
    return True


def collapse_wsl(selection: Selection, config: Config, report: Report) -> list[tuple[str, Device]]:
    """The one device of a WSL system: Windows hands out all GPUs together through one device node.

    Its resource is that of the first GPU chosen; a config that tells the GPUs apart is warned of. Its causes are those of that GPU.
    """
    if not selection.gpus:
        return []
    if selection.hides:
        report.warn(
            ProblemKind.PLATFORM, "WSL hands out all GPUs together: devices.include and exclude cannot hide some", "devices"
        )
    names = {name_hardware(gpu, None, config): None for gpu in selection.gpus}
    name = next(iter(names))
    if len(names) > 1:
        report.warn(
            ProblemKind.PLATFORM,
            f"WSL hands out all GPUs together: they cannot be {join_words(list(names))} at once and are all offered as {name}",
            "resources.gpus",
        )
    device = Device(WSL_ID, WSL_ID, selection.gpus[0].uuid or WSL_ID, WSL_ID, device_nodes=(WSL_NODE,))
    return [(name, device)]
