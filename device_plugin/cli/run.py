"""`run`: serve this node's GPUs to kubelet until a signal ends it."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin import __version__
from device_plugin.cli.arguments import (
    CDI,
    CDI_DIRECTORY,
    LOGS,
    RUN,
    config_source,
    named,
    process_duration,
    process_list,
    process_value,
)
from device_plugin.cli.node import open_node, refuse_beside_real_gpus
from device_plugin.cli.report import print_problems
from device_plugin.errors import ConfigError, PluginError
from device_plugin.logs import configure, get_logger
from device_plugin.supervisor.configuration import ConfigKeeper
from device_plugin.supervisor.hardware import DriverThreads
from device_plugin.supervisor.settings import DEFAULT_KUBELET_SOCKET, Settings
from device_plugin.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from device_plugin.cli.node import Node
    from device_plugin.config.model import Config
    from device_plugin.hardware.driver import Event
    from device_plugin.hardware.sysfs import Host
    from device_plugin.logs import Logger

END_SECONDS = 4.8  # kubelet gives a pod at least 5 s; a driver call that hangs must not use them up


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 after a signal, 1 for what made serving impossible."""
    try:
        configure_logs(arguments)
        logger = get_logger()
        with open_node(arguments, logger) as node:
            settings = settings_from(arguments, node.root)
            logger.info("plugin.started", version=__version__, pid=os.getpid(), directory=str(settings.socket_directory))
            refuse_beside_real_gpus(node, settings.kubelet_socket)
            asyncio.run(_serve(arguments, settings, node, logger))
    except ConfigError as error:
        print_problems(error.problems)
        return 1
    except PluginError as error:
        get_logger().error("plugin.failed", reason=str(error))
        return 1
    return 0


async def _serve(arguments: argparse.Namespace, settings: Settings, node: Node, logger: Logger) -> None:
    config = ConfigKeeper(config_source(arguments), environment=arguments.environment, flags=node.flags, logger=logger)
    supervisor = Supervisor(settings, config, _make_hardware(node), logger=logger)
    loop = asyncio.get_running_loop()

    def end(number: int) -> None:
        logger.info("plugin.stopping", signal=signal.Signals(number).name)
        _end_at_the_latest()
        supervisor.stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
        loop.add_signal_handler(number, end, number)
    loop.add_signal_handler(signal.SIGHUP, supervisor.reload)
    if node.simulated is not None:
        node.simulated.play()
    await supervisor.run()


def _make_hardware(node: Node) -> Callable[..., tuple[DriverThreads, Host]]:
    def make(
        config: Callable[[], Config],
        on_events: Callable[[Sequence[Event]], None],
        on_watch_changed: Callable[[dict[str, str]], None],
    ) -> tuple[DriverThreads, Host]:
        host = node.host(config())
        hardware = DriverThreads(
            node.make_driver(config()),
            host,
            node.platform(config()),
            call_timeout_seconds=lambda: config().reconcile.driver_call_timeout,
            on_events=on_events,
            on_watch_changed=on_watch_changed,
            simulated=node.simulated is not None,
        )
        return hardware, host

    return make


def _end_at_the_latest() -> None:
    """Whatever hangs in the kernel or in a library, the process ends in time."""
    timer = threading.Timer(END_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()


def configure_logs(arguments: argparse.Namespace) -> None:
    """Set up logging as flags and variables say. Raises ConfigError."""
    log_format = process_value(arguments, named(LOGS, "log-format"))
    level = process_value(arguments, named(LOGS, "log-level"))
    configure(level, "text" if log_format == "text" else "json" if log_format == "json" else None)


def settings_from(arguments: argparse.Namespace, host_root: Path) -> Settings:
    """The process's settings. Raises ConfigError."""
    socket = process_value(arguments, named(RUN, "kubelet-socket"))
    return Settings(
        socket_directory=Path(socket).absolute().parent if socket else DEFAULT_KUBELET_SOCKET.parent,
        kubelet_socket=Path(socket).absolute() if socket else None,
        pod_resources_socket=Path(process_value(arguments, named(RUN, "pod-resources-socket"))),
        host_root=host_root,
        cdi_directory=Path(process_value(arguments, *CDI_DIRECTORY)),
        cdi_feature_flags=process_list(arguments, named(CDI, "cdi-feature-flags")),
        cdi_disabled_hooks=process_list(arguments, named(CDI, "cdi-disable-hooks")),
        config_poll_seconds=process_duration(arguments, named(RUN, "config-poll-interval")),
        notifications=process_value(arguments, named(RUN, "file-notifications")) == "true",
    )
