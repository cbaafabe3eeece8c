"""What all answers of a node have in common, from its hardware and the config."""

import pytest

from device_plugin.config.load import load
from device_plugin.hardware.model import Inventory
from device_plugin.hardware.sysfs import Host, complete
from device_plugin.supervisor.injection import injection_from


@pytest.mark.parametrize(
    ("flags", "nodes"),
    [
        ({}, ("/dev/nvidia-uvm",)),
        ({"driver-root": "/run/nvidia/driver"}, ("/dev/nvidia-uvm",)),
        ({"driver-root": "/run/nvidia/driver", "dev-root": "/run/nvidia/driver/"}, ("/dev/nvidia-uvm",)),
        ({"driver-root": "/run/nvidia/driver", "dev-root": "/"}, ("/dev/nvidiactl", "/dev/nvidia-uvm-tools")),
    ],
)
def test_control_nodes_are_looked_for_where_the_config_says_that_they_are(tmp_path, flags, nodes):
    """A driver container's root has a `dev`; with `nvidiaDevRoot: /` the driver's nodes are not in it but in the host's."""
    for node in ("driver/dev/nvidia-uvm", "own/dev/nvidiactl", "own/dev/nvidia-uvm-tools"):
        (tmp_path / node).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / node).touch()
    inventory = complete(Inventory(), Host(tmp_path / "own", tmp_path / "driver"))
    injection = injection_from(load(None, flags=flags).config, inventory)
    assert injection.control_nodes == nodes
