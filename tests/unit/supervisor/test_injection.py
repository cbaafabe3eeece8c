"""What all answers of a node have in common, from its hardware and the config."""

import pytest

from device_plugin.config.load import load
from device_plugin.hardware.model import Inventory
from device_plugin.hardware.sysfs import Host, complete
from device_plugin.supervisor.injection import _failed, injection_from


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


FAILURES = {"k8s.device-plugin.nvidia.com/gds=all": "disk full", "k8s.device-plugin.nvidia.com/imex-channel=0": "disk full"}


@pytest.mark.parametrize(
    ("device_class", "failed"), [("gds", True), ("imex-channel", True), ("mofed", False), ("channel", False), ("gpu", False)]
)
def test_a_class_is_named_only_if_its_own_file_is_there(device_class, failed):
    """A name that no file defines keeps the container from being created, whatever else could not be written."""
    assert _failed(device_class, FAILURES) is failed
    assert not _failed(device_class, {})


def test_a_gpu_whose_name_failed_takes_out_no_other():
    """GPUs are told apart by their names."""
    assert not _failed("gpu", {"k8s.device-plugin.nvidia.com/gpu=GPU-0": "not in the file"})
