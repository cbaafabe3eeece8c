"""No GPU is given to a second pod that must not share it, and no ID leaves a list before its time."""

import asyncio
import contextlib

import pytest

from device_plugin.simulation.kubelet_devices import PodRejected
from device_plugin.simulation.kubelet_record import Happening

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
WHOLE = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 1}]}}\n"
REPLICAS = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4, rename: gpu.shared}]}}\n"
MIXED = "flags: {migStrategy: mixed}\n"


def gpus_of(ids):
    return {device_id.partition("::")[0] for device_id in ids}


async def test_from_whole_to_shared_and_back_while_a_pod_holds(rig, fast):
    """One GPU given to two pods (NVIDIA/k8s-device-plugin#135)."""
    node = rig("l4x4", config=fast())
    async with node.running():
        held = gpus_of((await node.admit("whole", gpu=1)).devices("main", GPU))
        node.write(fast(REPLICAS))
        await node.kubelet.wait_allocatable(SHARED, 12)
        await asyncio.sleep(0.6)  # the grace is over, the pod is not
        assert not gpus_of(node.healthy(SHARED)) & held
        assert len(node.kubelet.listed(SHARED)) == 16, "what is held is listed, Unhealthy"
        sharing = gpus_of((await node.admit("shared", **{SHARED: 1})).devices("main", SHARED))
        assert not sharing & held
        node.write(fast(WHOLE))
        await node.kubelet.wait_allocatable(GPU, 3)  # the holder of a whole GPU goes on under the name it has
        assert not gpus_of(node.healthy(GPU)) & sharing
        node.kubelet.delete("shared")
        await node.kubelet.wait_allocatable(GPU, 4)
        node.write(fast(REPLICAS))
        await node.kubelet.wait_allocatable(SHARED, 12)
        node.kubelet.delete("whole")
        await node.kubelet.wait_allocatable(SHARED, 16)


async def test_from_whole_to_mig_and_back_while_a_pod_holds(rig, fast):
    node = rig(config=fast(MIXED))
    async with node.running():
        held = gpus_of((await node.admit("whole", gpu=8)).devices("main", GPU))
        assert len(held) == 8
        node.node.set_mig_mode(0, enabled=True)
        node.node.repartition(0, ["3g.20gb", "3g.20gb"])
        await node.wait(lambda: len(node.kubelet.listed("nvidia.com/mig-3g.20gb")) == 2)
        await asyncio.sleep(0.6)
        assert not node.healthy("nvidia.com/mig-3g.20gb")
        node.kubelet.delete("whole")
        await node.kubelet.wait_allocatable("nvidia.com/mig-3g.20gb", 2)
        pod = await node.admit("mig", **{"nvidia.com/mig-3g.20gb": 1})
        assert pod.devices("main", "nvidia.com/mig-3g.20gb")
        node.node.set_mig_mode(0, enabled=False)
        await node.wait(lambda: node.uuid(0) in node.kubelet.listed(GPU))
        await asyncio.sleep(0.6)
        assert node.uuid(0) not in node.healthy(GPU)
        node.kubelet.delete("mig")
        await node.kubelet.wait_allocatable(GPU, 8)


async def test_an_edit_made_while_the_plugin_was_away_is_treated_like_a_live_one(rig, fast):
    node = rig("l4x4", config=fast())
    async with node.kubelet:
        async with node.running(kubelet=False):
            held = gpus_of((await node.admit("whole", gpu=1)).devices("main", GPU))
        node.write(fast(REPLICAS))
        async with node.running(kubelet=False):
            await node.kubelet.wait_allocatable(SHARED, 12)
            assert not any(gpus_of(entry.healthy) & held for entry in node.lists(SHARED)), "not even in the first list"
            node.kubelet.delete("whole")
            await node.kubelet.wait_allocatable(SHARED, 16)
        assert node.kubelet.crash is None


async def test_without_the_pod_resources_socket_the_grace_has_to_do_and_that_is_said(rig, fast):
    node = rig("l4x4", config=fast().replace("leavingGrace: 200ms", "leavingGrace: 800ms"))
    async with node.running(pod_resources=False):
        held = gpus_of((await node.admit("whole", gpu=1)).devices("main", GPU))
        assert node.of("pod_resources.missing")
        await asyncio.sleep(0.6)  # nothing that was answered is under way
        node.write(fast(REPLICAS).replace("leavingGrace: 200ms", "leavingGrace: 800ms"))
        await node.wait(lambda: len(node.kubelet.listed(SHARED)) == 16)
        assert not node.healthy(SHARED), "any of the four may be held, for all that is known"
        await node.kubelet.wait_allocatable(SHARED, 16, 5.0)
        assert held <= gpus_of(node.healthy(SHARED))


async def test_a_device_that_left_goes_once_its_time_is_over_though_nothing_else_happens(rig, fast):
    """No look at the hardware, no probe and no pod has to come by."""
    quiet = (
        fast().replace("rediscoveryInterval: 150ms", "rediscoveryInterval: 1h").replace("probeInterval: 100ms", "probeInterval: 1h")
    )
    node = rig("l4x4", config=quiet)
    async with node.running(pod_resources=False):
        node.write(quiet + "devices: {exclude: [0]}\n")
        await node.wait(lambda: node.uuid(0) not in node.healthy())
        await node.wait(lambda: node.uuid(0) not in node.kubelet.listed(GPU), 3.0)


async def test_an_allocation_that_meets_an_edit_gets_what_it_asked_and_nobody_else_does(rig, fast):
    """To refuse a device that kubelet chose a moment before the edit would fail that pod for good: it is given, and what stands on
    the same GPU by now is not."""
    node = rig("l4x4", config=fast())
    async with node.running():
        client = node.kubelet._clients[GPU]
        node.write(fast(REPLICAS))
        await node.kubelet.wait_allocatable(SHARED, 16)
        chosen = node.uuid(2)
        await client.allocate([chosen])  # chosen before the list came
        await node.wait(lambda: chosen not in gpus_of(node.healthy(SHARED)))
        assert len(node.healthy(SHARED)) == 12


@pytest.mark.parametrize("seed", range(2))
async def test_slow_and_interleaved_allocations_never_lose_an_id_under_way(rig, fast, seed):
    """An ID that leaves the list around its Allocate kills kubelet (seen on kubelet 1.36)."""
    node = rig("l4x4", config=fast().replace("leavingGrace: 200ms", "leavingGrace: 0s"))
    node.kubelet._rng.seed(seed)
    configs = [fast(), fast(REPLICAS), fast(WHOLE), fast(REPLICAS.replace("4", "2"))]
    async with node.running():
        done = asyncio.Event()

        async def place():
            number = 0
            while not done.is_set():
                number += 1
                for resource in (GPU, SHARED):
                    with contextlib.suppress(PodRejected, KeyError):
                        await node.admit(f"p{number}", **{resource: 1})
                    node.kubelet.manager.pods.pop(f"p{number}", None)
                await asyncio.sleep(0.002)

        placing = asyncio.create_task(place())
        for number in range(12):
            node.write(configs[(number * (seed + 1)) % 4].replace("leavingGrace: 200ms", "leavingGrace: 0s"))
            await asyncio.sleep(0.15)
        done.set()
        await placing
        assert node.kubelet.crash is None


async def test_a_leaving_id_stays_until_the_last_answer_that_named_it_has_settled(rig, fast):
    node = rig("l4x4", config=fast().replace("leavingGrace: 200ms", "leavingGrace: 0s"))
    async with node.running(pod_resources=False):
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        chosen = next(iter((await node.admit("a", gpu=1)).devices("main", GPU)))
        answered_at = loop.time()
        node.write(fast(REPLICAS).replace("leavingGrace: 200ms", "leavingGrace: 0s"))
        await node.wait(lambda: not node.healthy(GPU))
        await node.wait(lambda: chosen not in node.kubelet.listed(GPU))
        gone_at = loop.time()
        assert gone_at - asked_at >= 0.5  # the answer was given somewhere between the two
        assert gone_at - answered_at < 1.5


async def test_what_takes_devices_away_is_told_before_what_gives_them(rig, fast):
    """A rename taken back: at no time does kubelet see a GPU free under both names, whichever name comes first."""
    slow = fast().replace("leavingGrace: 200ms", "leavingGrace: 1h")
    renamed = slow + "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, rename: gpu.shared}]}}\n"
    node = rig(config=slow)
    async with node.running():
        for text, resource, count in ((renamed, SHARED, 16), (slow, GPU, 8), (renamed, SHARED, 16)):
            node.write(text)
            await node.kubelet.wait_allocatable(resource, count)
        lists = node.kubelet.record.of(Happening.LIST)
    free = {GPU: frozenset(), SHARED: frozenset()}
    for entry in lists:
        free[entry.resource] = {device.partition("::")[0] for device in entry.healthy}
        assert not free[GPU] & free[SHARED]


async def test_a_pod_that_takes_a_renamed_gpu_is_not_taken_for_the_holder_of_the_old_name(rig, fast):
    """A whole GPU has one ID under every name. The answer to the new name's pod counted as one for the old name, which is listed as
    leaving still: the GPU was Unhealthy under that pod, and with `refuseUnhealthyRestart` its container was not started."""
    slow = fast().replace("leavingGrace: 200ms", "leavingGrace: 30s")
    node = rig("l4x4", config=slow)
    async with node.running():
        node.write(slow + 'resources: {gpus: [{pattern: "*", name: nvidia.com/l4}]}\n')
        await node.kubelet.wait_allocatable("nvidia.com/l4", 4)
        lists = len(node.lists("nvidia.com/l4"))
        await node.admit("p", **{"nvidia.com/l4": 1})
        await asyncio.sleep(0.3)
        assert len(node.lists("nvidia.com/l4")) == lists
        assert len(node.healthy("nvidia.com/l4")) == 4
