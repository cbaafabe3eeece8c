"""What an edit may not do on its way: dip below both ends, register what stays, or touch what pods hold."""

import asyncio

import pytest

from device_plugin.simulation.kubelet_record import Happening

SHARING = "sharing: {{timeSlicing: {{resources: [{}]}}}}\n"
MIXED = "flags: {migStrategy: mixed}\n"
CONFIGS = {
    "l4x4": [
        "",
        SHARING.format("{name: nvidia.com/gpu, replicas: 4}"),
        SHARING.format("{name: nvidia.com/gpu, replicas: 2, rename: gpu.shared, devices: [1, 2]}"),
        "devices: {exclude: [3]}\n",
    ],
    "a100-mig-mixed": [
        MIXED,
        MIXED + SHARING.format("{name: nvidia.com/mig-1g.5gb, replicas: 2}"),
        "flags: {migStrategy: none}\n",
    ],
}


def healthy(node):
    return {name: frozenset(resource.healthy) for name, resource in node.kubelet.manager.resources.items()}


async def settle(node):
    """Wait until kubelet's healthy devices have not changed for longer than the grace; what they are then."""
    while True:
        before = healthy(node)
        await asyncio.sleep(0.35)
        if healthy(node) == before:
            return before


def every_step(count):
    """A round trip that takes each of the steps from one config to another once: 0 1 0 2 1 2 0."""
    steps = [number for first in range(count) for second in range(first + 1, count) for number in (first, second)]
    return [*steps[1:], 0]


@pytest.mark.parametrize("profile", CONFIGS)
async def test_no_list_on_the_way_is_below_both_ends(rig, fast, profile):
    """From every config to every other while pods hold devices: what is healthy before and after is healthy in every list between,
    no list has fewer healthy devices than both, nothing that stays is registered again, and what pods hold stays listed."""
    configs = CONFIGS[profile]
    node = rig(profile, config=fast(configs[0]))
    async with node.running():
        for name in ("a", "b"):
            await node.admit(name, **{max(healthy(node), key=lambda resource: len(node.healthy(resource))): 1})
        held = {i for pod in node.kubelet.manager.pods.values() for grant in pod.granted["main"].values() for i in grant.devices}
        await asyncio.sleep(0.6)  # what was answered is booked
        before = await settle(node)
        for number in every_step(len(configs)):
            seen, loaded = len(node.kubelet.record.entries), len(node.of("config.loaded"))
            node.write(fast(configs[number]))
            await node.wait_log("config.loaded", loaded + 1)
            after = await settle(node)
            between = list(node.kubelet.record.entries)[seen:]
            for entry in between:
                if entry.happening is Happening.LIST:
                    ends = before.get(entry.resource, frozenset()), after.get(entry.resource, frozenset())
                    assert entry.healthy >= ends[0] & ends[1]
                    assert len(entry.healthy) >= min(map(len, ends))
            registered = {entry.resource for entry in between if entry.happening is Happening.REGISTERED}
            assert not registered & {name for name, ids in before.items() if ids and after.get(name)}
            assert held <= {device_id for name in healthy(node) for device_id in node.kubelet.listed(name)}
            before = after
