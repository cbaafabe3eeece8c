"""The plugin itself on a simulated node, in this process: the real supervisor over the real sockets, beside a stand-in kubelet.

For the demo, the end-to-end tests and the soak run.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Self

from device_plugin.config.source import ConfigSource
from device_plugin.hardware.model import Platform
from device_plugin.hardware.nvml import NvmlDriver
from device_plugin.logs import get_logger
from device_plugin.supervisor.configuration import ConfigKeeper
from device_plugin.supervisor.hardware import DriverThreads
from device_plugin.supervisor.settings import Settings
from device_plugin.supervisor.supervisor import Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from device_plugin.config.model import Config
    from device_plugin.hardware.driver import Event
    from device_plugin.hardware.sysfs import Host
    from device_plugin.logs import Logger
    from device_plugin.simulation.node import SimulatedNode


class SimulatedPlugin:
    """One life of the plugin as an async context manager. The node must be installed.

    `directory` is the device-plugin directory with kubelet's socket in it, `config_file` the file it follows (None: no file).
    """

    def __init__(
        self,
        node: SimulatedNode,
        directory: Path,
        *,
        config_file: Path | None = None,
        pod_resources: Path | None = None,
        flags: Mapping[str, object] | None = None,
        environment: Mapping[str, str] | None = None,
        config_poll_seconds: float = 30.0,
        notifications: bool = True,
        registers: bool = True,
        logger: Logger | None = None,
    ) -> None:
        self._node, self._config_file = node, config_file
        self._logger = logger or get_logger()
        self._flags = {"driver-root-ctr-path": str(node.root), **(flags or {})}
        self._environment = environment or {}
        self._settings = Settings(
            socket_directory=directory,
            kubelet_socket=directory / "kubelet.sock" if registers else None,
            pod_resources_socket=pod_resources or directory / "no-pod-resources.sock",
            host_root=node.root,
            cdi_directory=directory / "cdi",
            config_poll_seconds=config_poll_seconds,
            notifications=notifications,
        )
        self._life: asyncio.Task[None] | None = None

    supervisor: Supervisor

    async def __aenter__(self) -> Self:
        source = ConfigSource(file=str(self._config_file) if self._config_file else "")
        keeper = ConfigKeeper(source, environment=self._environment, flags=self._flags, logger=self._logger)
        self.supervisor = Supervisor(self._settings, keeper, self._make_hardware, logger=self._logger)
        self._life = asyncio.ensure_future(self.supervisor.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """End in good order. What ended the plugin before is in `wait_end`."""
        self.supervisor.stop()
        with contextlib.suppress(Exception):
            await self.wait_end()

    async def wait_end(self) -> None:
        """Wait until the plugin has ended by itself; raises what ended it."""
        assert self._life is not None, "not started"
        await self._life

    def _make_hardware(
        self,
        config: Callable[[], Config],
        on_events: Callable[[Sequence[Event]], None],
        on_watch_changed: Callable[[dict[str, str]], None],
    ) -> tuple[DriverThreads, Host]:
        hardware = DriverThreads(
            NvmlDriver,
            self._node.host,
            lambda _: Platform.NVML,
            call_timeout_seconds=lambda: config().reconcile.driver_call_timeout,
            on_events=on_events,
            on_watch_changed=on_watch_changed,
            simulated=True,
        )
        return hardware, self._node.host
