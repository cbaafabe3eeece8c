"""A simulated node with an open driver, as each test wants it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from device_plugin.hardware.nvml import NvmlDriver
from device_plugin.simulation.node import SimulatedNode
from device_plugin.simulation.profile import NodeProfile

A100 = {
    "name": "NVIDIA A100-SXM4-40GB",
    "memoryMib": 40960,
    "computeCapability": "8.0",
    "numa": 0,
    "migCapable": True,
    "eccUncorrectable": 0,
    "remapPending": False,
    "remapFailed": False,
    "recoveryAction": "none",
}


@dataclass
class Opened:
    node: SimulatedNode
    driver: NvmlDriver

    @property
    def uuids(self):
        return [gpu.uuid for gpu in self.node.gpus]


@pytest.fixture
def a_node(tmp_path):
    """Make and install a node of these GPUs; properties not given are those of an A100."""
    with ExitStack() as stack:

        def make(*gpus, links=None, **node):
            entries = [{**A100, **gpu} for gpu in gpus]
            values = {"name": "test", "driverVersion": "580.95.05", "gpus": entries, "links": links or {}, **node}
            return stack.enter_context(SimulatedNode(NodeProfile.model_validate(values), root=tmp_path / "root"))

        yield make


@pytest.fixture
def opened(a_node):
    """The same, with a driver opened on it."""
    with ExitStack() as stack:

        def make(*gpus, **node):
            found = Opened(a_node(*gpus, **node), NvmlDriver())
            found.driver.open()
            stack.callback(found.driver.close)
            stack.callback(found.node.clear)
            return found

        yield make
