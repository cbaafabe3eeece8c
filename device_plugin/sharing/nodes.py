"""Which devices offered have device nodes that nobody can name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.problems import ProblemKind
from device_plugin.sharing.phrases import join_words, list_gpus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from device_plugin.config.model import Config
    from device_plugin.sharing.offer import Device
    from device_plugin.sharing.report import Report


def report_unknown_nodes(devices: Iterable[Device], config: Config, report: Report) -> None:
    """Say what a container will lack of the device nodes that `passDeviceSpecs` asks for; with CDI alone it asks for none."""
    plugin = config.flags.plugin
    if not plugin.pass_device_specs or all(strategy.is_cdi for strategy in plugin.device_list_strategy):
        return
    unknown = [device for device in devices if not device.device_nodes]
    gpus = [int(device.index) for device in unknown if not device.is_mig]
    if gpus:
        report.warn(
            ProblemKind.UNMET,
            f"{list_gpus(gpus)}: the driver tells no minor number, so containers get the control nodes and no /dev/nvidia<minor>",
            "flags.plugin.passDeviceSpecs",
        )
    mig = [device.index for device in unknown if device.is_mig]
    if mig:
        report.warn(
            ProblemKind.UNMET,
            f"MIG {'device' if len(mig) == 1 else 'devices'} {join_words(mig)}: the minor number of the GPU or of the instances' "
            "capabilities is unknown, so containers get the control nodes and neither /dev/nvidia<minor> nor "
            "/dev/nvidia-caps/nvidia-cap<minor>",
            "flags.plugin.passDeviceSpecs",
        )
