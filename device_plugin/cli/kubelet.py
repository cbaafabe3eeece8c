"""`kubelet DIR`: the stand-in kubelet by hand, to see what a plugin registers and lists."""

from __future__ import annotations

import asyncio
import signal
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.cli.run import configure_logs
from device_plugin.errors import SocketTaken, SocketUnusable
from device_plugin.kubelet.changes import first_of
from device_plugin.logs import get_logger
from device_plugin.simulation.kubelet import StandInKubelet

if TYPE_CHECKING:
    import argparse

    from device_plugin.logs import Logger
    from device_plugin.simulation.kubelet_record import Entry, Record


def kubelet(arguments: argparse.Namespace) -> int:
    """Exit status 0 after a signal. Raises PluginError if it cannot serve in that directory."""
    configure_logs(arguments)
    asyncio.run(_serve(Path(arguments.directory).absolute()))
    return 0


async def _serve(directory: Path) -> None:
    logger = get_logger(directory=str(directory))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    _refuse_if_served(directory / "kubelet.sock")
    stand_in = StandInKubelet(directory, pod_resources=directory / "pod-resources" / "kubelet.sock")
    try:
        await stand_in.start()
    except (OSError, RuntimeError) as error:  # gRPC raises the latter for a path it cannot bind
        raise SocketUnusable(f'cannot serve as kubelet in "{directory}": {error}') from error
    logger.info("kubelet.started", socket=str(stand_in.socket), pod_resources=str(stand_in.pod_resources))
    try:
        await first_of(stop.wait(), _tell(stand_in.record, logger))
    finally:
        await stand_in.stop()


def _refuse_if_served(path: Path) -> None:
    """At its start a kubelet deletes every socket of its directory: this one must not do that to a real one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return  # nobody there
    raise SocketTaken(f'a kubelet serves "{path}" already; give another directory')


async def _tell(record: Record, logger: Logger) -> None:
    """Log what happens, for ever."""
    last: Entry | None = None
    while True:
        change = record.changes.next()
        for entry in _after(last, record):
            logger.info(
                "kubelet.observed",
                happening=entry.happening.value,
                resource=entry.resource,
                detail=entry.detail,
                devices=len(entry.devices),
                healthy=len(entry.healthy),
            )
            last = entry
        await change


def _after(last: Entry | None, record: Record) -> list[Entry]:
    """The entries since that one; all that are remembered if it is not among them."""
    fresh: list[Entry] = []
    for entry in reversed(record.entries):
        if entry is last:
            break
        fresh.append(entry)
    return fresh[::-1]
