"""The node that a command works on: this machine's, or a simulated one."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.cli.arguments import config_flags
from device_plugin.cli.process_options import SIMULATE, config_source, refusal, stated
from device_plugin.config.load import load
from device_plugin.errors import ConfigError, PluginError
from device_plugin.hardware.model import Platform
from device_plugin.hardware.nvml import NvmlDriver
from device_plugin.hardware.sysfs import Host
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.records import record
from device_plugin.supervisor.hardware import DriverThreads

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from device_plugin.config.load import Loaded
    from device_plugin.config.model import Config
    from device_plugin.hardware.driver import Driver, Event
    from device_plugin.hardware.model import Inventory
    from device_plugin.logs import Logger
    from device_plugin.simulation.node import SimulatedNode

REAL_ROOT = Path("/")


@record
class Node:
    """How to reach the hardware. `simulated` is None on a real node; `root` holds /sys, /proc and /dev.

    `flags` are the config's flags as given, with what goes with a simulated node.
    """

    simulated: SimulatedNode | None
    root: Path
    flags: dict[str, object]
    logger: Logger

    def make_hardware(
        self,
        config: Callable[[], Config],
        on_events: Callable[[Sequence[Event]], None],
        on_watch_changed: Callable[[dict[str, str]], None],
    ) -> tuple[DriverThreads, Host]:
        """The driver, and the file systems. Called on the running loop, once the first config is known."""
        make_driver, host, platform = self._reach(Path(config().flags.plugin.container_driver_root or "/"))
        hardware = DriverThreads(
            make_driver,
            host,
            platform,
            call_timeout_seconds=lambda: config().reconcile.driver_call_timeout,
            on_events=on_events,
            on_watch_changed=on_watch_changed,
            simulated=self.simulated is not None,
        )
        return hardware, host

    def read_inventory(self, config: Config) -> Inventory:
        """The Inventory now, read as `run` reads it, so that no call that hangs holds a command up. Raises DriverError."""

        async def read() -> Inventory:
            hardware, _ = self.make_hardware(lambda: config, lambda _: None, lambda _: None)
            try:
                return await hardware.discover(fresh=True)
            finally:
                hardware.close()

        return asyncio.run(read())

    def _reach(self, driver_root: Path) -> tuple[Callable[[], Driver], Host, Callable[[Sequence[str]], Platform]]:
        """How to make a driver, the file systems, and what tells the platform from the GPUs' names."""
        if self.simulated is not None:
            return NvmlDriver, self.simulated.host, lambda _: Platform.NVML
        from device_plugin.supervisor.local_driver import LocalDriver, LocalPlatform  # noqa: PLC0415 - as for a simulated node

        dev_root = driver_root if (driver_root / "dev").is_dir() else None  # device nodes are looked for there if it has any
        return lambda: LocalDriver(driver_root), Host(self.root, dev_root=dev_root), LocalPlatform(driver_root, self.logger)


def load_config(arguments: argparse.Namespace, node: Node) -> Loaded:
    """The config as `run` would have it, for commands that do not wait for a file. Raises ConfigError."""
    source = config_source(arguments).read()
    if source.missing:
        raise ConfigError([Problem(Severity.ERROR, ProblemKind.CONFIG, "there is no such file", Origin(source.missing))])
    return load(source.text, file=source.path, environment=arguments.environment, flags=node.flags)


@contextmanager
def open_node(arguments: argparse.Namespace, logger: Logger) -> Iterator[Node]:
    """The node that `--simulate` asks for, or this machine's. Raises PluginError for a profile that cannot be used."""
    flags = config_flags(arguments)
    profile, source = stated(arguments, SIMULATE)
    if source != "default" and not profile:  # a variable that is not set must not turn a simulated node into a real one
        raise refusal(source, "expected a node profile, not an empty text")
    if not profile:
        yield Node(None, REAL_ROOT, flags, logger)
        return
    from device_plugin.simulation.node import SimulatedNode  # noqa: PLC0415 - a real node pays nothing for it

    try:
        simulated = SimulatedNode(profile)
    except OSError as error:
        raise PluginError(f"the files of the simulated node cannot be written: {error}") from error
    with simulated:
        # The files that go with its GPUs, unless the command line states others. Host paths are those of a real node: kubelet is
        # answered the same.
        yield Node(simulated, simulated.root, {"driver-root-ctr-path": str(simulated.root)} | flags, logger)


def refuse_beside_real_gpus(node: Node, kubelet_socket: Path | None) -> None:
    """Simulated GPUs must never reach the kubelet of a node that has real ones (NVIDIA/k8s-test-infra#591). Raises PluginError."""
    if node.simulated is None or kubelet_socket is None:
        return
    gpus = Host(REAL_ROOT).nvidia_gpus()
    if gpus or (REAL_ROOT / "dev/nvidiactl").is_char_device():
        found = f"NVIDIA GPUs at {', '.join(gpus)}" if gpus else "the NVIDIA driver's device nodes"
        raise PluginError(f"--simulate is refused: this machine has {found}, and {kubelet_socket} may be its kubelet")
