"""What the log tells of a change, and what it does not repeat."""

from dataclasses import replace

import pytest

from device_plugin.health.cause import Cause, CauseKind, ClearedBy
from device_plugin.serving.served import Served, ServedDevice, ServedResource
from device_plugin.sharing.offer import Device, PreferencePolicy
from device_plugin.supervisor.report import log_changes

GPU = "nvidia.com/gpu"


def cause(kind, key, detail, uuid="GPU-0"):
    return Cause(kind, uuid, key, detail, 1.0, ClearedBy.PROBE)


ONE_ERROR, TWO_ERRORS = (cause(CauseKind.ECC, "uncorrectable", f"{count} errors") for count in (1, 2))
XID = cause(CauseKind.XID, "48", "XID 48")


def served(*causes, leaving_since=None, replicas=2):
    devices = tuple(
        ServedDevice(Device(f"GPU-0::{number}", "GPU-0", "GPU-0", "0", number), causes, leaving_since) for number in range(replicas)
    )
    return Served((ServedResource(GPU, devices, PreferencePolicy.PACKED),))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (served(), served(ONE_ERROR), [("device.became_unhealthy", "ecc", "1 errors")]),
        (served(ONE_ERROR), served(TWO_ERRORS), []),
        (served(ONE_ERROR), served(ONE_ERROR, XID), [("device.became_unhealthy", "ecc, xid", "1 errors; XID 48")]),
        (served(ONE_ERROR, XID), served(XID), []),
        (served(XID), served(), [("device.became_healthy", None, None)]),
        (served(), served(), []),
        (served(), served(leaving_since=2.0), [("device.left_offer", None, None)]),
        (served(leaving_since=2.0), served(XID, leaving_since=2.0), []),
        (served(leaving_since=2.0), served(), [("device.became_healthy", None, None)]),
        (served(leaving_since=2.0), served(XID), [("device.became_unhealthy", "xid", "XID 48")]),
    ],
)
def test_each_transition_is_one_line_for_all_devices_on_the_hardware(log, before, after, expected):
    """Resource, device, cause and config hash by the same names each time (NVIDIA/k8s-device-plugin#234)."""
    log_changes(log.logger, before, after, config_hash="abc")
    assert [(entry["event"], entry.get("cause"), entry.get("detail")) for entry in log.entries] == expected
    for entry in log.entries:
        shown = {name: entry[name] for name in ("resource", "device", "devices", "config_hash")}
        assert shown == {"resource": GPU, "device": "GPU-0", "devices": 2, "config_hash": "abc"}


def test_a_thousand_replicas_that_are_held_are_one_line(log):
    """Each has a cause of its own."""
    before = served(replicas=1000)
    devices = tuple(
        replace(each, causes=(replace(cause(CauseKind.HELD, "b", "held under b"), device_id=each.device.id),))
        for each in before.resources[0].devices
    )
    log_changes(log.logger, before, Served((replace(before.resources[0], devices=devices),)), config_hash="abc")
    assert [(entry["cause"], entry["devices"]) for entry in log.entries] == [("held", 1000)]


def test_what_is_there_from_the_beginning_is_told_with_the_resource(log):
    """And of its devices those that are not well."""
    log_changes(log.logger, None, served(XID), config_hash="abc")
    assert [entry["event"] for entry in log.entries] == ["resources.changed", "device.became_unhealthy"]
    assert log.entries[0]["added"] == {GPU: 2}
