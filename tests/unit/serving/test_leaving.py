"""A device goes from kubelet's list late and in two steps; a resource closes with an empty list."""

from __future__ import annotations

import pytest

from device_plugin.hardware.model import Inventory
from device_plugin.health.cause import Cause, CauseKind, ClearedBy

GPU = "nvidia.com/gpu"


def lost(uuid):
    return Cause(CauseKind.GPU_LOST, uuid, "unreadable", "GPU is lost", 1.0, ClearedBy.RESET)


def test_a_first_offer_is_shown_as_it_is(world):
    """With nothing shown before, every device of the Offer is Healthy, in the Offer's order."""
    plugin = world.plugin(world.gpu(0), world.gpu(1), held={})
    plugin.serve(world.offer(gpu=world.whole("GPU-0", "GPU-1")))
    assert plugin.listed() == {"GPU-0": "", "GPU-1": ""}
    assert plugin.next_change() is None


def test_a_cause_is_shown_on_every_device_it_hits(world):
    """A GPU's cause hits all replicas of that GPU and none of another."""
    plugin = world.plugin(world.gpu(0), world.gpu(1), held={})
    plugin.causes = (Cause(CauseKind.XID, "GPU-0", "79", "XID 79", 1.0, ClearedBy.REBOOT),)
    plugin.serve(world.offer(gpu=world.shared("GPU-0", 2) + world.shared("GPU-1", 2)))
    assert plugin.listed() == {"GPU-0::0": "XID 79", "GPU-0::1": "XID 79", "GPU-1::0": "", "GPU-1::1": ""}


def test_a_device_leaves_after_the_grace(world):
    """A device that left the Offer stays Unhealthy until the grace is over, then its ID goes."""
    plugin = world.plugin(world.gpu(0), world.gpu(1), held={})
    plugin.serve(world.offer(gpu=world.whole("GPU-0", "GPU-1")))
    rest = world.offer(gpu=world.whole("GPU-0"))
    plugin.serve(rest)
    assert plugin.listed() == {"GPU-0": "", "GPU-1": "leaving"}
    assert plugin.next_change() == 1060.0
    plugin.now = 1059.9
    plugin.serve(rest)
    assert "GPU-1" in plugin.listed()
    plugin.now = 1060.0
    plugin.serve(rest)
    assert plugin.listed() == {"GPU-0": ""}
    assert plugin.next_change() is None


def test_a_leaving_device_is_given_away_while_its_hardware_is_there(world):
    """Kubelet may have picked it a moment ago: `present` stays until the inventory lacks the hardware."""
    plugin = world.plugin(world.gpu(0), world.gpu(1), held={})
    plugin.serve(world.offer(gpu=world.whole("GPU-0", "GPU-1")))
    rest = world.offer(gpu=world.whole("GPU-0"))
    assert plugin.serve(rest).resource(GPU).device("GPU-1").present
    plugin.inventory = Inventory((world.gpu(0),))
    assert not plugin.serve(rest).resource(GPU).device("GPU-1").present


def test_a_late_answer_keeps_the_id_five_seconds_longer(world):
    """Kubelet looks an ID up after Allocate and dies if it is not there: no ID goes within 5 s of an answer that named it."""
    plugin = world.plugin(world.gpu(0), held={})
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    plugin.serve(world.offer(gpu=()))
    plugin.answered = {("nvidia.com/gpu", "GPU-0"): 1058.0}
    plugin.now = 1060.0
    plugin.serve(world.offer(gpu=()))
    assert plugin.listed() == {"GPU-0": "leaving"}
    assert plugin.next_change() == 1063.0
    plugin.now = 1063.0
    plugin.serve(world.offer(gpu=()))
    assert plugin.listed() == {}


def test_a_held_device_stays_until_its_holder_is_gone(world):
    """An ID that has left the list reads Healthy in its pod's status: a held one stays, however long that is."""
    plugin = world.plugin(world.gpu(0), held={GPU: {"GPU-0"}})
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    plugin.serve(world.offer(gpu=()))
    plugin.now = 99999.0
    plugin.serve(world.offer(gpu=()))
    assert plugin.listed() == {"GPU-0": "leaving"}
    assert plugin.next_change() is None
    plugin.held = {}
    plugin.serve(world.offer(gpu=()))
    assert plugin.listed() == {}


def test_a_device_that_comes_back_leaves_no_longer(world):
    """An edit that is taken back restores the device at once, and a later leave starts its grace anew."""
    plugin = world.plugin(world.gpu(0), held={})
    full, none = world.offer(gpu=world.whole("GPU-0")), world.offer(gpu=())
    for time, an_offer in ((1000.0, full), (1010.0, none), (1020.0, full)):
        plugin.now = time
        plugin.serve(an_offer)
    assert plugin.listed() == {"GPU-0": ""}
    plugin.now = 1065.0
    plugin.serve(none)
    assert plugin.next_change() == 1125.0


def test_even_without_grace_a_device_is_unhealthy_before_it_goes(world):
    """With a grace of 0 an ID still gets one list as Unhealthy."""
    plugin = world.plugin(world.gpu(0), held={}, grace=0.0)
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    plugin.serve(world.offer(gpu=()))
    assert plugin.listed() == {"GPU-0": "leaving"}
    assert plugin.next_change() == plugin.now
    plugin.serve(world.offer(gpu=()))
    assert plugin.listed() == {}


def test_a_clock_set_back_prolongs_no_grace(world):
    """A time in the future counts as now, so the device goes after one grace, not after the jump as well."""
    plugin = world.plugin(world.gpu(0), held={}, now=100000.0)
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    plugin.serve(world.offer(gpu=()))
    plugin.now = 1000.0
    plugin.serve(world.offer(gpu=()))
    assert plugin.next_change() == 1060.0


def test_a_resource_closes_in_three_steps(world):
    """A resource that left the Offer shows its leaving devices, then one empty list, then is gone."""
    plugin = world.plugin(world.gpu(0), held={})
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    plugin.serve(world.offer())
    assert plugin.listed() == {"GPU-0": "leaving"}
    assert plugin.served.resource(GPU).closing
    plugin.now = plugin.next_change()
    plugin.serve(world.offer())
    assert plugin.listed() == {}
    assert plugin.served.resource(GPU).closing
    assert plugin.next_change() == plugin.now
    plugin.serve(world.offer())
    assert plugin.listed() is None
    assert plugin.next_change() is None


def test_an_empty_list_that_kubelet_has_yet_to_be_given_is_kept_for_it(world):
    """Else kubelet never hears of it, and keeps the capacity of a resource that nobody serves (kubernetes/kubernetes#52190)."""
    plugin = world.plugin(world.gpu(0), held={}, grace=0.0)
    for an_offer in (world.offer(gpu=world.whole("GPU-0")), world.offer(), world.offer()):
        plugin.serve(an_offer)
    plugin.owed = frozenset({GPU})
    for _ in range(3):
        plugin.serve(world.offer())
        assert plugin.listed() == {}
        assert plugin.next_change() is None
    plugin.owed = frozenset()
    assert plugin.next_change() == plugin.now
    plugin.serve(world.offer())
    assert plugin.listed() is None


def test_what_is_owed_is_not_owed_to_a_resource_that_comes_back(world):
    plugin = world.plugin(world.gpu(0), held={}, grace=0.0, owed=frozenset({GPU}))
    full = world.offer(gpu=world.whole("GPU-0"))
    for an_offer in (full, world.offer(), world.offer(), full):
        plugin.serve(an_offer)
    assert plugin.listed() == {"GPU-0": ""}
    assert not plugin.served.resource(GPU).closing


def test_a_resource_that_never_had_a_device_closes_too(world):
    """Its server stands, so it gets its empty, closing round."""
    plugin = world.plugin(world.gpu(0), held={})
    plugin.serve(world.offer(gpu=()))
    assert not plugin.served.resource(GPU).closing
    plugin.serve(world.offer())
    assert plugin.served.resource(GPU).closing
    plugin.serve(world.offer())
    assert plugin.listed() is None


def test_a_closing_resource_that_comes_back_is_open_again(world):
    """Also in the round after its empty list."""
    plugin = world.plugin(world.gpu(0), held={}, grace=0.0)
    full = world.offer(gpu=world.whole("GPU-0"))
    for an_offer in (full, world.offer(), world.offer(), full):
        plugin.serve(an_offer)
    assert plugin.listed() == {"GPU-0": ""}
    assert not plugin.served.resource(GPU).closing


def test_a_lost_gpu_stays_in_the_capacity(world):
    """One GPU of eight lost reads 8 with 7 allocatable for as long as it is lost, and wakes nobody up meanwhile."""
    plugin = world.plugin(*(world.gpu(index) for index in range(8)), held={})
    plugin.serve(world.offer(gpu=world.whole(*(f"GPU-{index}" for index in range(8)))))
    seven = tuple(index for index in range(8) if index != 3)
    plugin.inventory = Inventory(tuple(world.gpu(index) for index in seven))
    plugin.causes = (lost("GPU-3"),)
    rest = world.offer(gpu=world.whole(*(f"GPU-{index}" for index in seven)))
    plugin.serve(rest)
    plugin.now += 3600
    plugin.serve(rest)
    assert len(plugin.listed()) == 8
    assert [name for name, why in plugin.listed().items() if why] == ["GPU-3"]
    assert not plugin.served.resource(GPU).device("GPU-3").present
    assert plugin.next_change() is None


def test_a_lost_gpu_does_not_keep_a_closing_resource(world):
    """A resource that was renamed away ends, lost GPU or not."""
    plugin = world.plugin(held={}, causes=(lost("GPU-0"),))
    plugin.serve(world.offer(gpu=world.whole("GPU-0")))
    plugin.serve(world.offer())
    plugin.now = plugin.next_change()
    plugin.serve(world.offer())
    assert plugin.listed() == {}


@pytest.mark.parametrize("is_lost", [False, True])
def test_a_broken_device_is_there_and_a_lost_one_is_not(world, is_lost):
    """Allocate gives what is only Unhealthy; a GPU that is lost it refuses, though the last inventory that was read has it."""
    broken = Cause(CauseKind.XID, "GPU-0", "79", "XID 79", 1.0, ClearedBy.RESET)
    plugin = world.plugin(world.gpu(0), held={}, causes=(lost("GPU-0") if is_lost else broken,))
    assert plugin.serve(world.offer(gpu=world.whole("GPU-0"))).resource(GPU).device("GPU-0").present is not is_lost


def test_causes_of_a_gpu_and_of_its_part_stand_in_one_order(world):
    """Those of the whole GPU come first, in whatever order they were found."""
    whole = Cause(CauseKind.XID, "GPU-0", "48", "XID 48", 1.0, ClearedBy.RESET)
    part = Cause(CauseKind.XID, "GPU-0", "43", "XID 43", 1.0, ClearedBy.RESET, hardware_id="MIG-0-1")
    plugin = world.plugin(world.gpu(0, 1), held={}, causes=(part, whole))
    plugin.serve(world.offer(gpu=world.whole("MIG-0-1")))
    assert plugin.listed() == {"MIG-0-1": "XID 48; XID 43"}


def test_the_hardware_of_the_one_wsl_device_is_any_gpu(world):
    """Under WSL the device `all` is there as long as there is a GPU."""
    plugin = world.plugin(world.gpu(0), held={})
    wsl = world.device("GPU-0")
    wsl = type(wsl)(id="all", hardware_id="all", gpu_uuid="GPU-0", index="0")
    assert plugin.serve(world.offer(gpu=(wsl,))).resource(GPU).device("all").present
    plugin.inventory = Inventory()
    assert not plugin.serve(world.offer(gpu=(wsl,))).resource(GPU).device("all").present


@pytest.mark.parametrize("held", [None, {}])
def test_leaving_devices_come_last_by_gpu_and_replica(world, held):
    """The order of a list is defined: the Offer's, then the leaving by GPU, MIG and replica number."""
    plugin = world.plugin(*(world.gpu(index) for index in range(12)), held=held)
    plugin.serve(world.offer(gpu=world.shared("GPU-10", 2) + world.shared("GPU-2", 12) + world.shared("GPU-0", 1)))
    plugin.serve(world.offer(gpu=world.shared("GPU-11", 1)))
    assert list(plugin.listed()) == [
        "GPU-11::0",
        "GPU-0::0",
        *(f"GPU-2::{number}" for number in range(12)),
        "GPU-10::0",
        "GPU-10::1",
    ]
