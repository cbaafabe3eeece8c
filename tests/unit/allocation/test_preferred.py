"""GetPreferredAllocation: the policies, and that trouble ends in a plain valid choice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from device_plugin.allocation.preferred import prefer
from device_plugin.allocation.response import allocate
from device_plugin.hardware.model import CommonAncestor, Link
from device_plugin.health.cause import Cause, CauseKind, ClearedBy
from device_plugin.sharing.offer import PreferencePolicy

DISTRIBUTED, PACKED, DISTINCT = PreferencePolicy.DISTRIBUTED, PreferencePolicy.PACKED, PreferencePolicy.DISTINCT
BROKEN = (Cause(CauseKind.XID, "GPU-0", "79", "XID 79", 0.0, ClearedBy.RESET),)


def per_gpu(ids: Iterable[str]) -> dict[str, int]:
    return dict(Counter(device_id.partition("::")[0] for device_id in ids))


def link_all(score: dict[tuple[int, int], int], gpus: int) -> tuple[Link, ...]:
    """Links with that many NVLinks per pair, in both directions."""
    return tuple(
        Link(a, b, CommonAncestor.SYSTEM, nvlinks=score.get((min(a, b), max(a, b)), 0))
        for a in range(gpus)
        for b in range(gpus)
        if a != b
    )


@pytest.mark.parametrize(
    ("gpus", "replicas", "size", "expected"),
    [(2, 4, 2, [1, 1]), (2, 4, 4, [2, 2]), (3, 2, 3, [1, 1, 1])],
)
def test_distributed_spreads(make_table, make_replicas, gpus, replicas, size, expected):
    """Replicas come from as many GPUs as there are."""
    table = make_table([device for gpu in range(gpus) for device in make_replicas(gpu, replicas)], DISTRIBUTED)
    assert expected == list(per_gpu(prefer(table, list(table.positions), [], size)).values())


def test_distributed_counts_what_is_in_use(make_table, make_replicas):
    """Two GPUs of two replicas, one replica of GPU 1 in use: one of each is preferred, GPU 0 first."""
    table = make_table([*make_replicas(0, 2), *make_replicas(1, 2)], DISTRIBUTED)
    available = ["GPU-1::1", "GPU-0::1", "GPU-0::0"]
    assert prefer(table, available, [], 2) == ("GPU-0::0", "GPU-1::1")
    assert prefer(table, available, [], 1) == ("GPU-0::0",)


@pytest.mark.parametrize(
    ("gpus", "replicas", "size", "expected"),
    [(2, 4, 2, [2]), (2, 4, 4, [4]), (2, 4, 5, [4, 1]), (3, 2, 3, [2, 1])],
)
def test_packed_fills_up(make_table, make_replicas, gpus, replicas, size, expected):
    """Replicas come from as few GPUs as possible, so that whole GPUs stay free (NVIDIA/k8s-device-plugin#1621)."""
    table = make_table([device for gpu in range(gpus) for device in make_replicas(gpu, replicas)], PACKED)
    assert expected == list(per_gpu(prefer(table, list(table.positions), [], size)).values())


def test_packed_prefers_the_gpu_in_use(make_table, make_replicas):
    """The GPU with the most allocated replicas is filled first, whatever its index."""
    table = make_table([*make_replicas(0, 4), *make_replicas(1, 4), *make_replicas(2, 4)], PACKED)
    available = [i for i in table.positions if i not in ("GPU-1::0", "GPU-2::0", "GPU-2::1")]
    assert per_gpu(prefer(table, available, [], 3)) == {"GPU-2": 2, "GPU-1": 1}


@pytest.mark.parametrize("policy", [DISTRIBUTED, PACKED])
def test_allocated_counts_not_what_is_free(make_table, make_replicas, policy):
    """Two allocated of 8 and two allocated of 4 are a tie: the first GPU gives the first device, under either policy."""
    table = make_table([*make_replicas(0, 8), *make_replicas(1, 4)], policy)
    available = [i for i in table.positions if i not in ("GPU-0::0", "GPU-0::1", "GPU-1::0", "GPU-1::1")]
    assert prefer(table, available, [], 1) == ("GPU-0::2",)


def test_must_include_counts_as_allocated(make_table, make_replicas):
    """The GPU of a device already chosen is avoided when spreading, and kept to when packing."""
    devices = [*make_replicas(0, 4), *make_replicas(1, 4)]
    for policy, expected in ((DISTRIBUTED, {"GPU-0": 1, "GPU-1": 1}), (PACKED, {"GPU-1": 2})):
        table = make_table(devices, policy)
        chosen = prefer(table, list(table.positions), ["GPU-1::2"], 2)
        assert "GPU-1::2" in chosen
        assert expected == per_gpu(chosen)


def test_a_broken_device_is_no_sign_of_use(make_table, make_replicas):
    """Unhealthy and leaving replicas are not offered by kubelet, and do not make their GPU look busy."""
    devices = [*make_replicas(0, 2), *make_replicas(0, 6, first=2, causes=BROKEN), *make_replicas(1, 4)]
    table = make_table(devices, PACKED)
    available = ["GPU-0::0", "GPU-0::1", "GPU-1::1", "GPU-1::2", "GPU-1::3"]
    assert per_gpu(prefer(table, available, [], 2)) == {"GPU-1": 2}


def test_mig_devices_are_grouped_by_gpu(make_table, make_mig):
    """MIG devices of one GPU are one group; NVIDIA's plugin takes each MIG device for a GPU of its own."""
    devices = [*make_mig(0, 7), *make_mig(1, 2)]
    spread = prefer(make_table(devices, DISTRIBUTED), [d.device.id for d in devices], [], 4)
    assert spread == ("MIG-0-0", "MIG-0-1", "MIG-1-0", "MIG-1-1")
    packed = prefer(make_table(devices, PACKED), [d.device.id for d in devices if d.device.id != "MIG-1-0"], [], 2)
    assert packed == ("MIG-0-0", "MIG-1-1")


def test_replicas_of_mig_devices_spread_over_mig_devices_too(make_table, make_mig):
    """On one GPU, two replicas come from two MIG devices when spreading, from one when packing."""
    devices = make_mig(0, 2, replicas=3)
    ids = [d.device.id for d in devices]
    assert prefer(make_table(devices, DISTRIBUTED), ids, [], 2) == ("MIG-0-0::0", "MIG-0-1::0")
    assert prefer(make_table(devices, PACKED), [i for i in ids if i != "MIG-0-1::0"], [], 2) == ("MIG-0-1::1", "MIG-0-1::2")


def test_whole_and_replicated_devices_share_one_resource(make_table, make_gpu, make_replicas):
    """A resource may mix replicas of one GPU with whole GPUs; each GPU gives one before any gives two."""
    table = make_table([*make_replicas(0, 3), make_gpu(1), make_gpu(2)], DISTRIBUTED)
    assert prefer(table, list(table.positions), [], 3) == ("GPU-0::0", "GPU-1", "GPU-2")


def test_what_allocate_would_refuse_is_not_preferred(make_table, make_gpu, make_replicas):
    """With failRequestsGreaterThanOne a container of two gets whole GPUs where two are free: a replica would fail its pod."""
    table = make_table([*make_replicas(0, 3), make_gpu(1), make_gpu(2), make_gpu(3)], DISTRIBUTED, fail_greater_than_one=True)
    everything = list(table.positions)
    chosen = prefer(table, everything, [], 2)
    assert chosen == ("GPU-1", "GPU-2")
    assert allocate(table, chosen).envs["NVIDIA_VISIBLE_DEVICES"] == "GPU-1,GPU-2"
    assert prefer(table, everything, ["GPU-3"], 2) == ("GPU-1", "GPU-3")
    assert prefer(table, everything, [], 1) == ("GPU-0::0",), "one replica alone is fine"
    assert len(prefer(table, everything, [], 4)) == 4, "too few whole ones: Allocate says why not"


def test_distinct_never_takes_two_of_one_gpu(make_table, make_replicas):
    """Asked for two cards, CI got two slices of one (NVIDIA/gpu-operator#386, NVIDIA/k8s-device-plugin#491)."""
    table = make_table([*make_replicas(0, 4), *make_replicas(1, 4)], DISTINCT)
    available = ["GPU-0::3", "GPU-1::1", "GPU-1::2", "GPU-1::3"]
    assert prefer(table, available, [], 2) == ("GPU-0::3", "GPU-1::1")
    assert prefer(table, available, ["GPU-1::1"], 2) == ("GPU-0::3", "GPU-1::1")


def test_distinct_takes_the_emptiest_gpus(make_table, make_replicas):
    """Of more GPUs than needed, distinct takes those with the fewest allocated."""
    table = make_table([d for gpu in range(3) for d in make_replicas(gpu, 3)], DISTINCT)
    available = [i for i in table.positions if i != "GPU-0::0"]
    assert prefer(table, available, [], 2) == ("GPU-1::0", "GPU-2::0")


def test_distinct_that_cannot_be_met_is_still_answered(make_table, make_replicas):
    """With one GPU left, distinct answers what there is: Allocate is the place to refuse, with a text of its own."""
    table = make_table([*make_replicas(0, 4), *make_replicas(1, 4)], DISTINCT)
    assert prefer(table, ["GPU-1::0", "GPU-1::1", "GPU-1::2"], [], 2) == ("GPU-1::0", "GPU-1::1")
    crowded = prefer(table, list(table.positions), ["GPU-0::0", "GPU-0::1"], 3)
    assert crowded == ("GPU-0::0", "GPU-0::1", "GPU-1::0")


@pytest.mark.parametrize("policy", list(PreferencePolicy))
def test_answers_do_not_depend_on_the_order_of_the_request(make_table, make_gpu, policy):
    """Kubelet names devices in random order; the answer is the same for each."""
    links = link_all({(0, 3): 2, (1, 2): 2, (4, 5): 1}, 8)
    table = make_table([make_gpu(index) for index in range(8)], policy, links)
    ids = list(table.positions)
    expected = prefer(table, ids, ["GPU-2", "GPU-5"], 4)
    shuffler = random.Random(5)
    for _ in range(20):
        shuffler.shuffle(ids)
        assert expected == prefer(table, ids, shuffler.sample(["GPU-2", "GPU-5"], 2), 4)


@pytest.mark.parametrize("policy", list(PreferencePolicy))
def test_trouble_ends_in_a_valid_choice(make_table, make_gpu, policy):
    """Nothing that kubelet may ask raises: an error would fail the pod for good (NUMA-made sets: kubernetes/kubernetes#136431)."""
    table = make_table([make_gpu(index) for index in range(4)], policy)
    everything = list(table.positions)
    assert prefer(table, everything, [], 0) == ()
    assert prefer(table, everything, [], -3) == ()
    assert prefer(table, [], [], 2) == ()
    assert tuple(everything) == prefer(table, everything, [], 9), "too few: all there are"
    assert tuple(everything) == prefer(table, everything, ["GPU-3"], 4), "exactly enough"
    assert prefer(table, ["GPU-1", "GPU-1", "GPU-2", "GPU-2"], ["GPU-2", "GPU-2"], 2) == ("GPU-1", "GPU-2"), "duplicates count once"
    assert prefer(table, everything, ["GPU-1", "GPU-0", "GPU-2"], 2) == ("GPU-0", "GPU-1"), "more to include than asked for"
    assert prefer(table, ["GPU-3"], ["GPU-2"], 2) == ("GPU-2", "GPU-3"), "to include, yet not said to be available"
    assert prefer(table, ["GPU-9", *everything], [], 2) == ("GPU-0", "GPU-1"), "unknown IDs are never chosen freely"
    assert prefer(table, ["GPU-9"], [], 1) == ()
    assert prefer(table, everything, ["GPU-9"], 2) == ("GPU-9", "GPU-0"), "kubelet has chosen it already"
    assert prefer(table, everything, ["GPU-0", "GPU-1", "GPU-9"], 2) == ("GPU-9", "GPU-0"), "never more than asked for"


@pytest.mark.parametrize("policy", list(PreferencePolicy))
def test_healthy_devices_come_first(make_table, make_gpu, policy):
    """A device that fell ill after kubelet asked is chosen only if the healthy ones do not suffice; one that is gone, never."""
    devices = [make_gpu(0, causes=BROKEN), make_gpu(1, causes=BROKEN, present=False), make_gpu(2), make_gpu(3)]
    table = make_table(devices, policy)
    everything = list(table.positions)
    assert prefer(table, everything, [], 2) == ("GPU-2", "GPU-3")
    assert prefer(table, everything, [], 3) == ("GPU-0", "GPU-2", "GPU-3")
    assert prefer(table, everything, [], 4) == ("GPU-0", "GPU-2", "GPU-3")


def test_indexes_are_numbers(make_table, make_gpu, make_replicas):
    """GPU 10 comes after GPU 2 and replica 10 after replica 2, in whatever order devices are served."""
    table = make_table([make_gpu(index) for index in (10, 2, 1)])
    assert prefer(table, list(table.positions), [], 2) == ("GPU-1", "GPU-2")
    table = make_table(reversed(make_replicas(0, 11)))
    assert prefer(table, list(table.positions), [], 3) == ("GPU-0::0", "GPU-0::1", "GPU-0::2")
