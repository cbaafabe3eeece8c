"""SimulatedNode: a node with simulated GPUs, for tests, the demo and `run --simulate`."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pynvml

from device_plugin.errors import PluginError
from device_plugin.hardware.sysfs import Host
from device_plugin.logs import get_logger
from device_plugin.simulation.hardware import SimulatedHardware
from device_plugin.simulation.library import SimulatedLibrary
from device_plugin.simulation.player import Player
from device_plugin.simulation.profile import NodeProfile, machine_from_profile
from device_plugin.simulation.profile_file import parse_profile, profile_path, read_profile
from device_plugin.simulation.root import SimulatedRoot

if TYPE_CHECKING:
    from types import TracebackType

    from device_plugin.simulation.machine import Machine


class SimulatedNode(SimulatedHardware):
    """One simulated node: its hardware, its files, and the library that stands for NVIDIA's in this process.

    `root` is a directory for the node's files (a temporary one if None); `host` reads it. As a context manager the node is
    installed in this process while the block runs. There is one installed node in a process at a time.
    """

    def __init__(
        self, profile: NodeProfile | Machine | str | Path, *, root: Path | None = None, make_device_nodes: bool = False
    ) -> None:
        self._profile_path, self._profile_content = None, b""
        if isinstance(profile, str | Path):
            self._profile_path = profile_path(profile)
            self._profile_content = read_profile(self._profile_path)
            profile = parse_profile(self._profile_content, self._profile_path)
        self._script = profile.faults if isinstance(profile, NodeProfile) else ()
        machine = machine_from_profile(profile) if isinstance(profile, NodeProfile) else profile
        self._own_root: tempfile.TemporaryDirectory[str] | None = None
        if root is None:
            self._own_root = tempfile.TemporaryDirectory(prefix="simulated-node-")
            root = Path(self._own_root.name)
        super().__init__(machine, SimulatedRoot(root, make_device_nodes=make_device_nodes))
        self._player: Player | None = None

    @property
    def root(self) -> Path:
        return self._tree.path

    @property
    def host(self) -> Host:
        """The node's file systems."""
        return Host(self.root, plain_nodes=True)

    def __enter__(self) -> Self:
        self.install()
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None) -> None:
        self.close()

    def install(self) -> None:
        """Put the simulated library in the place of NVIDIA's. Raises `PluginError` if there is one already, real or simulated."""
        if pynvml.nvmlLib is not None:
            what = "a simulated one" if isinstance(pynvml.nvmlLib, SimulatedLibrary) else "the real NVIDIA library"
            raise PluginError(f"cannot simulate the node {self.name!r}: this process uses {what} already")
        get_logger().warning("simulation.started", node=self.name, gpus=len(self.gpus), root=str(self.root))
        self._library = SimulatedLibrary(self.live)
        self._library.install()

    def play(self) -> None:
        """From now on play the profile's script, and follow the edits of its file, until `close`."""
        if self._player is None:
            self._player = Player(self, self._script, self._profile_path, self._profile_content)
            self._player.start()

    def remove(self) -> None:
        """Take the library away again, as at the end of a process."""
        if self._library is not None:
            self._library.remove()
            self._library = None

    def close(self) -> None:
        """Take everything away. Calls that hang return."""
        if self._player is not None:
            self._player.stop()
        self.live.close()
        self.remove()
        if self._own_root is not None:
            self._own_root.cleanup()
