"""What was served last survives a restart of the plugin."""

from __future__ import annotations

import json

import pytest

from device_plugin.serving.arrangement import arrangement_from_json, arrangement_to_json


def through_json(served):
    return arrangement_from_json(json.loads(json.dumps(arrangement_to_json(served))))


def test_an_arrangement_comes_back_as_it_was(world):
    """Devices, leaving times, policies and closing resources make the round trip."""
    plugin = world.plugin(world.gpu(0), world.gpu(1, 3), held={})
    plugin.serve(world.offer(gpu=world.shared("GPU-0", 2), mig=world.whole("MIG-1-3")))
    plugin.serve(world.offer(gpu=world.shared("GPU-0", 1)))
    assert through_json(plugin.served) == (plugin.served, None)


def test_an_edit_made_while_the_plugin_was_away_is_treated_like_a_live_one(world):
    """A GPU shared by an edit during the restart still belongs to the pod that holds it whole."""
    plugin = world.plugin(world.gpu(0), held={"nvidia.com/gpu": {"GPU-0"}})
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    plugin.served, _ = through_json(plugin.served)
    plugin.serve(world.offer(gpu=world.shared("GPU-0", 1)))
    assert plugin.listed() == {"GPU-0::0": "held under nvidia.com/gpu as GPU-0", "GPU-0": "leaving"}


GOOD = {
    "version": 1,
    "resources": [
        {
            "name": "nvidia.com/gpu",
            "policy": "packed",
            "failRequestsGreaterThanOne": False,
            "closing": False,
            "devices": [
                {
                    "id": "GPU-0",
                    "hardwareId": "GPU-0",
                    "gpuUuid": "GPU-0",
                    "index": "0",
                    "replica": None,
                    "numaNode": None,
                    "deviceNodes": [],
                    "gpuInstanceId": None,
                    "computeInstanceId": None,
                    "leavingSince": None,
                }
            ],
        }
    ],
}


def with_device(**changes):
    changed = json.loads(json.dumps(GOOD))
    changed["resources"][0]["devices"][0] |= changes
    return changed


def test_the_good_one_of_this_module_is_good():
    """So that the bad ones are bad for their own reason."""
    assert arrangement_from_json(GOOD)[1] is None


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        "text",
        {},
        {"version": 2, "resources": []},
        {"version": 1},
        {"version": 1, "resources": None},
        {"version": 1, "resources": ["x"]},
        {"version": 1, "resources": [{**GOOD["resources"][0], "policy": "greedy"}]},
        {"version": 1, "resources": [{**GOOD["resources"][0], "name": 7}]},
        with_device(id=None),
        with_device(id="GPU-\ud800"),  # no list could name it
        {"version": 1, "resources": [{**GOOD["resources"][0], "name": "nvidia.com/\ud800"}]},
        with_device(replica="1"),
        with_device(replica=True),
        with_device(deviceNodes=[1]),
        with_device(leavingSince="soon"),
        with_device(leavingSince=float("nan")),
    ],
)
def test_garbage_is_named_and_left_aside(value):
    """A state file that cannot be read costs its memory, never the start."""
    served, note = arrangement_from_json(value)
    assert served is None
    assert "last arrangement" in note
