"""The node that a command works on: this machine's, or a simulated one."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.cli.arguments import SIMULATION, config_flags, config_source, named, process_value
from device_plugin.config.load import load
from device_plugin.errors import ConfigError, PluginError
from device_plugin.hardware.model import Platform
from device_plugin.hardware.nvml import NvmlDriver
from device_plugin.hardware.sysfs import Host
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.simulation.node import SimulatedNode
from device_plugin.supervisor.discovery import read_inventory
from device_plugin.supervisor.local_driver import LocalDriver, LocalPlatform

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from device_plugin.config.load import Loaded
    from device_plugin.config.model import Config
    from device_plugin.hardware.driver import Driver
    from device_plugin.hardware.model import Inventory
    from device_plugin.logs import Logger


@dataclass(frozen=True, slots=True)
class Node:
    """How to reach the hardware. `simulated` is None on a real node; `root` holds /sys, /proc and /dev."""

    simulated: SimulatedNode | None
    root: Path
    flags: dict[str, object]
    logger: Logger

    def make_driver(self, config: Config) -> Callable[[], Driver]:
        """What makes a Driver for a thread."""
        if self.simulated is not None:
            return NvmlDriver
        root = Path(config.flags.plugin.container_driver_root or "/")
        return lambda: LocalDriver(root)

    def host(self, config: Config) -> Host:
        """The file systems. Device nodes are looked for in the driver root if it has a `dev`."""
        if self.simulated is not None:
            return self.simulated.host
        driver_root = Path(config.flags.plugin.container_driver_root or "/")
        return Host(self.root, dev_root=driver_root if (driver_root / "dev").is_dir() else None)

    def platform(self, config: Config) -> Callable[[Sequence[str]], Platform]:
        """What tells the platform from the GPUs' names."""
        if self.simulated is not None:
            return lambda _: Platform.NVML
        return LocalPlatform(Path(config.flags.plugin.container_driver_root or "/"), self.logger)

    def read_inventory(self, config: Config) -> Inventory:
        """The Inventory now, read on this very thread: for commands that end. Raises DriverError."""
        driver = self.make_driver(config)()
        facts = driver.open()
        try:
            return read_inventory(driver, facts, self.host(config), self.platform(config), simulated=self.simulated is not None)
        finally:
            driver.close()


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
    profile = process_value(arguments, named(SIMULATION, "simulate"))
    if not profile:
        yield Node(None, Path("/"), flags, logger)
        return
    with SimulatedNode(profile) as simulated:
        # The simulated node's files are the only ones that go with its GPUs.
        flags |= {"driver-root-ctr-path": str(simulated.root), "driver-root": str(simulated.root)}
        yield Node(simulated, simulated.root, flags, logger)


def refuse_beside_real_gpus(node: Node, kubelet_socket: Path | None) -> None:
    """Simulated GPUs must never reach the kubelet of a node that has real ones (NVIDIA/k8s-test-infra#591). Raises PluginError."""
    if node.simulated is None or kubelet_socket is None:
        return
    real = Host(Path("/")).nvidia_gpus()
    if real or Path("/dev/nvidiactl").is_char_device():
        found = f"NVIDIA GPUs at {', '.join(real)}" if real else "the NVIDIA driver's device nodes"
        raise PluginError(f"--simulate is refused: this machine has {found}, and {kubelet_socket} may be its kubelet")
