"""Edits and pods at once: whatever comes between what, no GPU is with two pods that must not share it, and kubelet lives."""

import asyncio
import contextlib
import itertools
import random

import pytest

from device_plugin.simulation.kubelet_devices import PodRejected

SHARING = "sharing: {{timeSlicing: {{resources: [{}]}}}}\n"
NONE, MIXED = "flags: {migStrategy: none}\n", "flags: {migStrategy: mixed}\n"
WHOLE_AND_SHARED = [
    "",
    SHARING.format("{name: nvidia.com/gpu, replicas: 3}"),
    SHARING.format("{name: nvidia.com/gpu, replicas: 2, rename: gpu.shared}"),
    SHARING.format("{name: nvidia.com/gpu, replicas: 2, rename: gpu.shared, devices: [0, 2]}"),
    "resources: {gpus: [{pattern: '*', name: nvidia.com/other}]}\n",
]
WHOLE_AND_MIG = [
    NONE,
    MIXED,
    NONE + SHARING.format("{name: nvidia.com/gpu, replicas: 2}"),
    MIXED + SHARING.format("{name: nvidia.com/mig-1g.5gb, replicas: 2}"),
]


def collisions(node):
    """Pairs of devices of two pods that meet on one GPU where only one may be: all but replicas of one thing, and MIG siblings."""
    parents = {mig.uuid: gpu.uuid for gpu in node.node.gpus for mig in gpu.mig}
    given = [
        (name, *device_id.partition("::")[::2])
        for name, state in node.kubelet.manager.pods.items()
        if state.failure is None
        for grants in state.granted.values()
        for grant in grants.values()
        for device_id in grant.devices
    ]
    for (pod, hardware, replica), (other_pod, other, other_replica) in itertools.combinations(given, 2):
        if pod == other_pod or parents.get(hardware, hardware) != parents.get(other, other):
            continue
        may_meet = bool(replica and other_replica) if hardware == other else hardware in parents and other in parents
        if not may_meet:
            yield (pod, hardware, replica), (other_pod, other, other_replica)


@pytest.mark.parametrize(
    ("profile", "edits", "seed"),
    [("l4x4", WHOLE_AND_SHARED, 1), ("a100-mig-mixed", WHOLE_AND_MIG, 2)],
)
async def test_pods_that_come_and_go_between_edits_never_meet_on_a_gpu(rig, fast, profile, edits, seed):
    """One GPU was given to two pods (NVIDIA/k8s-device-plugin#135). Pods are admitted and end at any moment of an edit; those that
    may not share a GPU never do, and no ID that kubelet looks up has left its list."""
    node, chance = rig(profile, config=fast(edits[0])), random.Random(seed)
    node.kubelet._rng.seed(seed)
    async with node.running():
        over, admitted = asyncio.Event(), 0

        async def place():
            nonlocal admitted
            for number in itertools.count():
                if over.is_set():
                    return
                pods = node.kubelet.manager.pods
                resources = sorted(name for name in node.kubelet.manager.resources if node.healthy(name))
                name = f"p{number}"
                with contextlib.suppress(PodRejected, KeyError):  # taken meanwhile, or its resource is on its way out
                    await node.admit(name, **{chance.choice(resources): chance.randint(1, 2)}) if resources else None
                    admitted += 1
                if name in pods and pods[name].failure is not None:
                    del pods[name]
                assert not list(collisions(node))
                if len(pods) > 5 or (pods and chance.random() < 0.3):
                    node.kubelet.delete(chance.choice(sorted(pods)))
                await asyncio.sleep(chance.uniform(0, 0.02))

        placing = asyncio.create_task(place())
        for _ in range(12):
            node.write(fast(chance.choice(edits)))
            await asyncio.sleep(chance.uniform(0.02, 0.5))
        over.set()
        await placing
        assert node.kubelet.crash is None
        assert admitted > 20
        node.kubelet.manager.pods.clear()
        node.write(fast(edits[0]))
        await node.wait(lambda: len(node.healthy()) == len(node.node.gpus), 5.0)
