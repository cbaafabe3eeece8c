"""`kubelet DIR`: the stand-in kubelet by hand, to see what a plugin registers and lists."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.cli.report import print_problems
from device_plugin.cli.run import configure_logs
from device_plugin.errors import ConfigError
from device_plugin.logs import get_logger
from device_plugin.simulation.kubelet import StandInKubelet

if TYPE_CHECKING:
    import argparse


def kubelet(arguments: argparse.Namespace) -> int:
    """Exit status 0 after a signal."""
    try:
        configure_logs(arguments)
    except ConfigError as error:
        print_problems(error.problems)
        return 1
    asyncio.run(_serve(Path(arguments.directory)))
    return 0


async def _serve(directory: Path) -> None:
    logger = get_logger(directory=str(directory))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    (directory / "pod-resources").mkdir(parents=True, exist_ok=True)
    stand_in = StandInKubelet(directory, pod_resources=directory / "pod-resources" / "kubelet.sock")
    async with stand_in:
        logger.info("kubelet.started", socket=str(stand_in.socket), pod_resources=str(stand_in.pod_resources))
        stopping = asyncio.ensure_future(stop.wait())
        told = 0.0
        while not stopping.done():
            change = asyncio.ensure_future(stand_in.record.changes.next())
            await asyncio.wait({stopping, change}, return_when=asyncio.FIRST_COMPLETED)
            change.cancel()
            entries = [entry for entry in stand_in.record.entries if entry.time > told]
            for entry in entries:
                logger.info(
                    "kubelet.observed",
                    happening=entry.happening.value,
                    resource=entry.resource,
                    detail=entry.detail,
                    devices=len(entry.devices),
                    healthy=len(entry.healthy),
                )
            told = entries[-1].time if entries else told
