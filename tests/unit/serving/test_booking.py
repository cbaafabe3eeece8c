"""No double booking: hardware still held under another arrangement gets no new work."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device_plugin.hardware.model import Inventory
from device_plugin.health.cause import CauseKind

GPU, SHARED = "nvidia.com/gpu", "nvidia.com/gpu.shared"


def healthy(plugin, name=GPU):
    return [device_id for device_id, why in plugin.listed(name).items() if not why]


def test_from_exclusive_to_shared_and_back_while_a_pod_holds_it(world):
    """The pod keeps the whole GPU to itself until it ends, whatever edits come and go."""
    plugin = world.plugin(world.gpu(0), world.gpu(1), held={GPU: {"GPU-0"}})
    exclusive = world.offer(gpu=world.whole("GPU-0", "GPU-1"))
    shared = world.offer(gpu=world.shared("GPU-0", 2) + world.shared("GPU-1", 2))
    plugin.serve(exclusive)
    plugin.serve(shared)
    assert plugin.listed() == {
        "GPU-0::0": "held under nvidia.com/gpu as GPU-0",
        "GPU-0::1": "held under nvidia.com/gpu as GPU-0",
        "GPU-1::0": "",
        "GPU-1::1": "",
        "GPU-0": "leaving",
        "GPU-1": "leaving",
    }
    plugin.serve(exclusive)
    assert healthy(plugin) == ["GPU-0", "GPU-1"]
    plugin.serve(shared)
    plugin.held = {}
    plugin.serve(shared)
    assert healthy(plugin) == ["GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1"]


def test_from_shared_to_exclusive_while_a_replica_is_held(world):
    """The whole GPU waits for the last pod on one of its replicas."""
    plugin = world.plugin(world.gpu(0), held={GPU: {"GPU-0::1", "GPU-0::0"}})
    plugin.serve(world.offer(gpu=world.shared("GPU-0", 2)))
    exclusive = world.offer(gpu=world.whole("GPU-0"))
    plugin.serve(exclusive)
    assert plugin.listed()["GPU-0"] == "held under nvidia.com/gpu as GPU-0::0 and 1 more"
    plugin.held = {GPU: {"GPU-0::1"}}
    plugin.serve(exclusive)
    assert plugin.listed()["GPU-0"] == "held under nvidia.com/gpu as GPU-0::1"
    plugin.held = {}
    plugin.serve(exclusive)
    assert healthy(plugin) == ["GPU-0"]


def test_of_several_held_ids_the_same_one_is_always_named(world):
    """The first by text: a detail that changed with each look would be told as news."""
    plugin = world.plugin(world.gpu(0), held={GPU: {f"GPU-0::{number}" for number in range(12)} - {"GPU-0::0", "GPU-0::1"}})
    plugin.serve(world.offer(gpu=world.shared("GPU-0", 12)))
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    assert plugin.listed()["GPU-0"] == "held under nvidia.com/gpu as GPU-0::10 and 9 more"


def test_replicas_stand_beside_replicas(world):
    """More, fewer or renamed replicas of a GPU that is shared anyway wait for nobody, with and without pod-resources."""
    for held in (None, {GPU: {"GPU-0::3"}}):
        plugin = world.plugin(world.gpu(0), held=held)
        plugin.serve(world.offer(gpu=world.shared("GPU-0", 4)))
        plugin.serve(world.offer(**{"gpu.shared": world.shared("GPU-0", 2)}))
        assert healthy(plugin, SHARED) == ["GPU-0::0", "GPU-0::1"]


def test_a_renamed_exclusive_gpu_waits_for_its_holder(world):
    """The same ID under another resource is the same GPU."""
    plugin = world.plugin(world.gpu(0), held={GPU: {"GPU-0"}})
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    plugin.serve(world.offer(big=world.whole("GPU-0")))
    assert plugin.listed("nvidia.com/big") == {"GPU-0": "held under nvidia.com/gpu as GPU-0"}


def test_mig_devices_of_one_gpu_stand_beside_each_other(world):
    """A new MIG device does not wait for the holder of another one."""
    plugin = world.plugin(world.gpu(0, 0, 1), held={"nvidia.com/mig-1": {"MIG-0-0"}})
    plugin.serve(world.offer(mig_1=world.whole("MIG-0-0")))
    plugin.serve(world.offer(mig_1=world.whole("MIG-0-1")))
    assert plugin.listed("nvidia.com/mig-1") == {"MIG-0-1": "", "MIG-0-0": "leaving"}


@pytest.mark.parametrize("replicas", [None, 0])
def test_a_gpu_and_its_mig_devices_exclude_each_other(world, replicas):
    """Between whole and MIG, both ways, the holder of the old device comes first: also where both are shared."""
    whole, mig = (world.device("GPU-0", replicas),), (world.device("MIG-0-0", replicas),)
    plugin = world.plugin(world.gpu(0), held={GPU: {whole[0].id}})
    plugin.serve(world.offer(gpu=whole))
    plugin.inventory = Inventory((world.gpu(0, 0),))
    plugin.serve(world.offer(mig=mig))
    assert plugin.listed("nvidia.com/mig")[mig[0].id] == f"held under nvidia.com/gpu as {whole[0].id}"
    plugin = world.plugin(world.gpu(0, 0), held={"nvidia.com/mig": {mig[0].id}})
    plugin.serve(world.offer(mig=mig))
    plugin.inventory = Inventory((world.gpu(0),))
    plugin.serve(world.offer(gpu=whole))
    assert plugin.listed()[whole[0].id] == f"held under nvidia.com/mig as {mig[0].id}"


def test_an_answer_for_another_name_of_the_same_id_says_nothing_of_this_one(world):
    """A whole GPU that was renamed is listed under both names for a while: who takes it by the new one does not hold the old."""
    plugin = world.plugin(world.gpu(0), held={})
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    plugin.serve(world.offer(other=world.whole("GPU-0")))
    plugin.answered = {("nvidia.com/other", "GPU-0"): 1000.0}
    plugin.serve(world.offer(other=world.whole("GPU-0")))
    assert plugin.listed("nvidia.com/other") == {"GPU-0": ""}
    assert plugin.listed() == {"GPU-0": "leaving"}


def test_an_answer_just_given_counts_as_held(world):
    """Pod-resources names a holder only once kubelet has taken the answer in."""
    plugin = world.plugin(world.gpu(0), held={}, answered={("nvidia.com/gpu", "GPU-0"): 999.0})
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    shared = world.offer(gpu=world.shared("GPU-0", 1))
    plugin.serve(shared)
    assert plugin.listed()["GPU-0::0"].startswith("held under nvidia.com/gpu as GPU-0")
    assert plugin.next_change() == 1004.0
    plugin.now = 1004.0
    plugin.serve(shared)
    assert healthy(plugin) == ["GPU-0::0"]


def test_without_pod_resources_the_grace_has_to_do(world):
    """Nobody tells who holds the old device, so the new ones wait out its grace, and say that this is all that is known."""
    plugin = world.plugin(world.gpu(0), held=None)
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    shared = world.offer(gpu=world.shared("GPU-0", 1))
    plugin.serve(shared)
    assert "for all that is known" in plugin.listed()["GPU-0::0"]
    plugin.now = plugin.next_change()
    assert plugin.now == 1060.0
    plugin.serve(shared)
    assert plugin.listed() == {"GPU-0::0": ""}


def test_a_holder_that_only_pod_resources_knows(world):
    """A lost state file, or another plugin before us: an ID of this node's hardware that is in no list is held all the same."""
    plugin = world.plugin(world.gpu(0), world.gpu(1), held={"other.com/gpu": {"GPU-0"}, "x/nic": {"eth0"}, GPU: {"GPU-1"}})
    plugin.serve(world.offer(gpu=world.whole("GPU-0", "GPU-1")))
    assert plugin.listed() == {"GPU-0": "held under other.com/gpu as GPU-0", "GPU-1": ""}


def test_the_cause_names_every_resource_and_keeps_its_time(world):
    """One cause for each resource the GPU is held under, `since` when it was first seen there."""
    plugin = world.plugin(world.gpu(0), held={"a.com/x": {"GPU-0"}, "b.com/x": {"GPU-0"}})
    an_offer = world.offer(gpu=world.whole("GPU-0"))
    plugin.serve(an_offer)
    plugin.now = 1500.0
    causes = plugin.serve(an_offer).resource(GPU).device("GPU-0").causes
    assert [(cause.kind, cause.key, cause.since) for cause in causes] == [
        (CauseKind.HELD, "a.com/x", 1000.0),
        (CauseKind.HELD, "b.com/x", 1000.0),
    ]


def test_the_one_wsl_device_meets_every_gpu(world):
    """`all` stands for every GPU, as the old device and as the new one."""
    everything = replace(world.device("GPU-0"), id="all", hardware_id="all", gpu_uuid="GPU-0")
    plugin = world.plugin(world.gpu(0), world.gpu(1), held={GPU: {"all"}})
    plugin.serve(world.offer(gpu=(everything,)))
    plugin.serve(world.offer(gpu=world.whole("GPU-1")))
    assert plugin.listed()["GPU-1"] == "held under nvidia.com/gpu as all"
    plugin.held = {GPU: {"GPU-1"}}
    plugin.serve(world.offer(gpu=(everything,)))
    assert plugin.listed()["all"] == "held under nvidia.com/gpu as GPU-1"


def test_an_edit_with_no_holder_never_loses_capacity(world):
    """With pod-resources, going from 1 to 4 replicas of a free GPU shows 4 at once, and back shows 1 at once."""
    plugin = world.plugin(world.gpu(0), held={})
    for an_offer, count in (
        (world.offer(gpu=world.whole("GPU-0")), 1),
        (world.offer(gpu=world.shared("GPU-0", 4)), 4),
        (world.offer(gpu=world.whole("GPU-0")), 1),
    ):
        plugin.serve(an_offer)
        assert len(healthy(plugin)) == count


def test_as_long_as_kubelet_could_tell_but_does_not_nothing_that_left_is_free(world):
    """It may be held, for all that is known; the grace time is for nodes where nobody can be asked."""
    plugin = world.plugin(world.gpu(0), silent=True)
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    shared = world.offer(shared=world.shared("GPU-0", 2))
    plugin.serve(shared)
    plugin.now += 10_000
    plugin.serve(shared)
    assert plugin.listed() == {"GPU-0": "leaving"}
    assert plugin.listed("nvidia.com/shared")["GPU-0::0"] == "held under nvidia.com/gpu as GPU-0, for all that is known"
    assert plugin.next_change() is None
    plugin.silent, plugin.held = False, {}
    plugin.serve(shared)
    assert healthy(plugin, "nvidia.com/shared") == ["GPU-0::0", "GPU-0::1"]
