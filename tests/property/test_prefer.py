"""Properties of GetPreferredAllocation: equal to brute force where it is exact, valid whatever is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from device_plugin.allocation.aligned import MAX_EXACT_WORK, choose_aligned, count_splits
from device_plugin.allocation.local_search import split_well
from device_plugin.allocation.model import Injection
from device_plugin.allocation.preferred import prefer
from device_plugin.allocation.response import allocate
from device_plugin.allocation.shares import Load, distribute, pack
from device_plugin.allocation.table import AllocationTable, build_table
from device_plugin.errors import AllocationRefused
from device_plugin.hardware.model import CommonAncestor, Link
from device_plugin.health.cause import Cause, CauseKind, ClearedBy
from device_plugin.serving.served import ServedDevice, ServedResource
from device_plugin.sharing.offer import Device, PreferencePolicy

Group = tuple[int | None, ...]


def enumerate_splits(gpus: list[int | None], size: int, missing: int) -> Iterator[list[Group]]:
    """Every split into groups of `size`, as NVIDIA's plugin goes through them: None stands for a GPU that the short group lacks."""
    if not gpus:
        yield []
        return
    for others in combinations(range(1, len(gpus)), size - 1):
        group = (gpus[0], *(gpus[place] for place in others))
        if group.count(None) in (0, missing):
            rest = [gpu for place, gpu in enumerate(gpus) if place and place not in others]
            for split in enumerate_splits(rest, size, missing):
                yield [group, *split]


def score(matrix: list[list[int]], group: Group) -> int:
    return sum(matrix[a][b] for a, b in combinations(group, 2) if a is not None and b is not None)


def choose_by_brute_force(matrix: list[list[int]], available: list[int], required: set[int], size: int) -> Group:
    """The published objective, literally: the first best split with a full group of all required, and its first best such group."""
    missing = -len(available) % size
    best: list[Group] = []
    for split in enumerate_splits([*available, *[None] * missing], size, missing):
        fitting = [group for group in split if None not in group and required <= set(group)]
        if fitting and (not best or sum(score(matrix, g) for g in split) > sum(score(matrix, g) for g in best)):
            best = split
    return max((g for g in best if None not in g and required <= set(g)), key=lambda group: score(matrix, group))


@st.composite
def aligned_requests(draw: st.DrawFn, gpus: int) -> tuple[list[list[int]], list[int], set[int], int]:
    """A symmetric matrix with few different values (so that ties are common), and a request."""
    values = st.sampled_from([10, 20, 50, 110, 150, 250])
    matrix = [[0] * gpus for _ in range(gpus)]
    for a, b in combinations(range(gpus), 2):
        matrix[a][b] = matrix[b][a] = draw(values)
    available = sorted(draw(st.sets(st.integers(0, gpus - 1), min_size=1)))
    size = draw(st.integers(1, len(available)))
    required = draw(st.sets(st.sampled_from(available), max_size=size))
    return matrix, available, required, size


def freeze(matrix: list[list[int]]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(row) for row in matrix)


@settings(max_examples=150, deadline=None)
@given(aligned_requests(8))
def test_up_to_eight_gpus_the_choice_is_exact(request_: tuple[list[list[int]], list[int], set[int], int]) -> None:
    """The very set that going through all splits finds, ties included."""
    matrix, available, required, size = request_
    expected = choose_by_brute_force(matrix, available, required, size)
    assert choose_aligned(freeze(matrix), available, frozenset(required), size) == expected


def test_eight_gpus_are_always_exact() -> None:
    """The bound on exact work lets every request on 8 GPUs through, and the hard ones on 16 not."""
    assert all(count_splits(gpus, size) * size <= MAX_EXACT_WORK for gpus in range(1, 9) for size in range(1, gpus + 1))
    assert count_splits(16, 2) == 2_027_025
    assert count_splits(16, 4) == 2_627_625


@settings(max_examples=60, deadline=None)
@given(aligned_requests(16))
def test_many_gpus_get_a_valid_split(request_: tuple[list[list[int]], list[int], set[int], int]) -> None:
    """Every GPU is in one group, groups have their size, a full one has all that is required; twice the same."""
    matrix, available, required, size = request_
    split = (
        split_well(freeze(matrix), available, frozenset(required), size) if len(required) < len(available) else [tuple(available)]
    )
    assert sorted(gpu for group in split for gpu in group) == available
    assert sorted((len(group) for group in split), reverse=True)[: len(available) // size] == [size] * (len(available) // size)
    assert len(required) == len(available) or any(required <= set(group) for group in split if len(group) == size)
    chosen = choose_aligned(freeze(matrix), available, frozenset(required), size)
    assert required <= set(chosen) <= set(available)
    assert len(chosen) == size
    assert chosen == choose_aligned(freeze(matrix), available, frozenset(required), size)


def share_one_by_one(loads: list[Load], wanted: int, sign: int) -> list[int]:
    """The greedy rule, literally: pick one device after the other."""
    picks = [0] * len(loads)
    for _ in range(wanted):
        open_groups = [g for g, load in enumerate(loads) if picks[g] < load.free]
        if not open_groups:
            break
        picks[min(open_groups, key=lambda g: (sign * (loads[g].allocated + picks[g]), picks[g], g))] += 1
    return picks


@settings(max_examples=200, deadline=None)
@given(st.lists(st.builds(Load, st.integers(0, 6), st.integers(0, 6)), max_size=6), st.integers(0, 40))
def test_shares_are_those_of_the_greedy_rule(loads: list[Load], wanted: int) -> None:
    """Working the numbers out at once gives what picking one by one gives."""
    assert distribute(loads, wanted) == share_one_by_one(loads, wanted, sign=1)
    assert pack(loads, wanted) == share_one_by_one(loads, wanted, sign=-1)


CAUSE = Cause(CauseKind.XID, "*", "79", "XID 79", 0.0, ClearedBy.RESET)
IDS = [
    *(f"GPU-{gpu}" for gpu in range(4)),
    *(f"GPU-{gpu}::{n}" for gpu in range(4) for n in range(3)),
    "MIG-0",
    "MIG-1",
    "",
    "no-such-device",
]


@st.composite
def served_resources(draw: st.DrawFn) -> ServedResource:
    """Any mix of whole, replicated and MIG devices, healthy or not, there or gone, under any policy."""
    devices = []
    for device_id in draw(st.sets(st.sampled_from(IDS[:-2]))):
        base, _, replica = device_id.partition("::")
        kind, number = base.split("-")
        device = Device(
            device_id, base, f"GPU-{number}", number if kind == "GPU" else f"{number}:0", int(replica) if replica else None
        )
        devices.append(
            ServedDevice(device, draw(st.sampled_from([(), (), (CAUSE,)])), present=draw(st.sampled_from([True, True, False])))
        )
    return ServedResource("nvidia.com/gpu", tuple(devices), draw(st.sampled_from(PreferencePolicy)))


LINKS = st.lists(
    st.builds(
        Link,
        st.integers(0, 5),
        st.integers(0, 5),
        st.sampled_from([None, *CommonAncestor]),
        st.integers(-1, 40),
        st.booleans(),
    ),
    max_size=12,
)


@settings(max_examples=300, deadline=None)
@given(
    served_resources(),
    LINKS,
    st.lists(st.sampled_from(IDS), max_size=12),
    st.lists(st.sampled_from(IDS), max_size=5),
    st.integers(-2, 12),
    st.randoms(use_true_random=False),
)
def test_every_choice_is_valid(resource, links, available, must_include, size, shuffler) -> None:
    """Whatever is asked: no error, no duplicate, nothing not offered, what must be included if there is room, as many as can be.

    And the order of the request does not matter.
    """
    table = build_table(resource, tuple(links), Injection())
    chosen = prefer(table, available, must_include, size)
    present = {served.device.id for served in resource.devices if served.present}
    assert len(set(chosen)) == len(chosen)
    assert set(chosen) <= set(must_include) | (set(available) & present)
    assert len(chosen) == min(max(size, 0), len(set(must_include) | (set(available) & present)))
    assert set(must_include) <= set(chosen) or len(set(must_include)) > max(size, 0)
    shuffler.shuffle(available)
    shuffler.shuffle(must_include)
    assert prefer(table, available, must_include, size) == chosen


@settings(max_examples=100, deadline=None)
@given(served_resources(), st.lists(st.sampled_from(IDS), max_size=12, unique=True), st.integers(1, 4))
def test_distinct_keeps_apart_where_it_can(resource: ServedResource, available: list[str], size: int) -> None:
    """Two devices of one GPU are chosen only when all GPUs with a healthy free device are in the choice."""
    distinct = ServedResource(resource.name, resource.devices, PreferencePolicy.DISTINCT)
    table = build_table(distinct, (), Injection())
    gpu_of = {served.device.id: served.device.gpu_uuid for served in distinct.devices}
    chosen = Counter(gpu_of[device_id] for device_id in prefer(table, available, [], size))
    free = {
        gpu_of[served.device.id]
        for served in distinct.devices
        if served.is_healthy and served.present and served.device.id in available
    }
    assert max(chosen.values(), default=0) <= 1 or free <= set(chosen)


@st.composite
def refusing_resources(draw: st.DrawFn) -> ServedResource:
    """Sound devices of a few GPUs, each GPU whole, in replicas or split, under rules that Allocate refuses requests by."""
    devices = []
    for gpu in range(draw(st.integers(1, 4))):
        uuid, kind = f"GPU-{gpu}", draw(st.sampled_from(["whole", "shared", "mig"]))
        if kind == "whole":
            devices.append(Device(uuid, uuid, uuid, str(gpu)))
        elif kind == "shared":
            devices += [Device(f"{uuid}::{n}", uuid, uuid, str(gpu), replica=n) for n in range(draw(st.integers(2, 3)))]
        else:
            devices += [Device(f"MIG-{gpu}-{n}", f"MIG-{gpu}-{n}", uuid, f"{gpu}:{n}") for n in range(draw(st.integers(1, 3)))]
    policy = draw(st.sampled_from([PreferencePolicy.DISTRIBUTED, PreferencePolicy.PACKED, PreferencePolicy.DISTINCT]))
    return ServedResource(
        "nvidia.com/gpu", tuple(map(ServedDevice, devices)), policy, fail_requests_greater_than_one=draw(st.booleans())
    )


def is_granted(table: AllocationTable, ids: Sequence[str]) -> bool:
    try:
        allocate(table, ids)
    except AllocationRefused:
        return False
    return True


@settings(max_examples=200, deadline=None)
@given(refusing_resources(), st.data())
def test_what_is_preferred_is_granted_if_anything_is(resource: ServedResource, data: st.DataObject) -> None:
    """A refusal fails the pod for good: advice never leads into one while some other choice would be granted."""
    table = build_table(resource, (), Injection())
    available = data.draw(st.lists(st.sampled_from([*table.positions]), min_size=1, unique=True))
    size = data.draw(st.integers(1, len(available)))
    required = data.draw(st.lists(st.sampled_from(available), max_size=min(size, 1), unique=True))
    others = [device_id for device_id in available if device_id not in required]
    possible = any(is_granted(table, [*required, *more]) for more in combinations(others, size - len(required)))
    assert is_granted(table, prefer(table, available, required, size)) == possible
