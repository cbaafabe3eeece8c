"""`run`: serve this node's GPUs to kubelet until a signal ends it."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

from device_plugin import __version__
from device_plugin.cli.node import open_node, refuse_beside_real_gpus
from device_plugin.cli.process_options import (
    CDI_DIRECTORY,
    CDI_DISABLE_HOOKS,
    CDI_FEATURE_FLAGS,
    CONFIG_POLL_INTERVAL,
    FILE_NOTIFICATIONS,
    KUBELET_SOCKET,
    LOG_FORMAT,
    LOG_LEVEL,
    POD_RESOURCES_SOCKET,
    as_stated,
    config_source,
    process_bool,
    process_list,
    process_path,
    process_seconds,
    process_value,
)
from device_plugin.cli.report import print_problems
from device_plugin.config.model import Config
from device_plugin.errors import ConfigError, PluginError
from device_plugin.logs import configure, get_logger, log_problem
from device_plugin.supervisor.configuration import ConfigKeeper
from device_plugin.supervisor.settings import DEFAULT_KUBELET_SOCKET, Settings
from device_plugin.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    import argparse
    from pathlib import Path
    from typing import Literal

    from device_plugin.cli.node import Node
    from device_plugin.config.source import ConfigSource
    from device_plugin.logs import Logger

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h
_LARGE_BYTES = 1024 * 1024  # below it, the messages of a list of 8,000 devices are made a quarter faster
END_SECONDS = 4.8  # kubelet gives a pod at least 5 s; a driver call that hangs must not use them up


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0 after a signal, 1 for what made serving impossible. Raises ConfigError while there is no log to say it."""
    give_memory_back()
    log_format = configure_logs(arguments)
    logger = get_logger()
    try:
        with open_node(arguments, logger) as node:
            settings, source = settings_from(arguments, node.root), config_source(arguments)
            logger.info("plugin.started", version=__version__, pid=os.getpid(), directory=str(settings.socket_directory))
            refuse_beside_real_gpus(node, settings.kubelet_socket)
            asyncio.run(_serve(arguments, settings, source, node, logger))
    except ConfigError as error:
        problems = as_stated(error.problems, arguments)
        if log_format == "text":
            print_problems(problems)  # for a person, who reads `file:line:column:` first
        else:
            for problem in problems:
                log_problem(logger, problem)
        return 1
    except PluginError as error:
        logger.error("plugin.failed", reason=str(error))  # noqa: TRY400 - raised on purpose: its text says it all
        return 1
    return 0


def give_memory_back() -> None:
    """Have the C library return large blocks to the system when they are freed.

    glibc begins so, but raises its limit with each one: after some lists of a thousand devices the process would keep 25 MiB that
    it does not use. A C library without such a setting is left as it is.
    """
    with suppress(AttributeError):
        set_option = ctypes.CDLL(None).mallopt
        for option in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD):
            set_option(option, _LARGE_BYTES)


async def _serve(arguments: argparse.Namespace, settings: Settings, source: ConfigSource, node: Node, logger: Logger) -> None:
    config = ConfigKeeper(source, environment=arguments.environment, flags=node.flags, logger=logger)
    supervisor = Supervisor(settings, config, node.make_hardware, logger=logger)
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


def _end_at_the_latest() -> None:
    """Whatever hangs in the kernel or in a library, the process ends in time."""
    timer = threading.Timer(END_SECONDS, os._exit, (0,))
    timer.daemon = True
    timer.start()


def configure_logs(arguments: argparse.Namespace) -> Literal["text", "json"]:
    """Set up logging as flags and variables say; the format. Raises ConfigError."""
    chosen = process_value(arguments, LOG_FORMAT)
    log_format: Literal["text", "json"] = "text" if chosen == "text" or (not chosen and sys.stderr.isatty()) else "json"
    configure(process_value(arguments, LOG_LEVEL), log_format)
    return log_format


def settings_from(arguments: argparse.Namespace, host_root: Path) -> Settings:
    """The process's settings. Raises ConfigError."""
    features, hooks = process_list(arguments, CDI_FEATURE_FLAGS), process_list(arguments, CDI_DISABLE_HOOKS)
    if features or hooks:
        from device_plugin.cdi import options_from  # noqa: PLC0415 - a start without CDI is the faster for not importing it

        options_from(Config(), features, hooks)  # a misspelt switch ends the start, whatever the strategy is now
    registers = bool(process_value(arguments, KUBELET_SOCKET))
    kubelet_socket = process_path(arguments, KUBELET_SOCKET) if registers else None
    return Settings(
        socket_directory=(kubelet_socket or DEFAULT_KUBELET_SOCKET).parent,
        kubelet_socket=kubelet_socket,
        pod_resources_socket=process_path(arguments, POD_RESOURCES_SOCKET),
        host_root=host_root,
        cdi_directory=process_path(arguments, CDI_DIRECTORY),
        cdi_feature_flags=features,
        cdi_disabled_hooks=hooks,
        config_poll_seconds=process_seconds(arguments, CONFIG_POLL_INTERVAL),
        notifications=process_bool(arguments, FILE_NOTIFICATIONS),
    )
