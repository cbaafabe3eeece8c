"""Pair scores."""

from __future__ import annotations

import pytest

from device_plugin.allocation.links import pair_score, score_pairs
from device_plugin.allocation.preferred import prefer
from device_plugin.hardware.model import CommonAncestor, Link
from device_plugin.sharing.offer import PreferencePolicy


@pytest.mark.parametrize(
    ("ancestor", "points"),
    [
        (CommonAncestor.INTERNAL, 60),
        (CommonAncestor.SINGLE, 50),
        (CommonAncestor.MULTIPLE, 40),
        (CommonAncestor.HOSTBRIDGE, 30),
        (CommonAncestor.NODE, 20),
        (CommonAncestor.SYSTEM, 10),
        (None, 0),
    ],
)
def test_nearer_on_pcie_is_better(ancestor, points):
    """The scale of NVIDIA's plugin; what the driver would not tell is worth nothing, and no error."""
    assert points == pair_score(Link(0, 1, ancestor))


def test_nvlinks_count():
    """Each NVLink has 100 points, up to the 18 that a GPU can have."""
    assert pair_score(Link(0, 1, CommonAncestor.SINGLE, nvlinks=3)) == 350
    assert pair_score(Link(0, 1, CommonAncestor.SYSTEM, nvlinks=18)) == 1810
    assert pair_score(Link(0, 1, CommonAncestor.SYSTEM, nvlinks=40)) == 1810


def test_switches_join_fully(make_table, make_gpu):
    """GPUs behind NVSwitches were taken for unconnected (coldzerofear/vgpu-manager#70); they are joined best, and alike."""
    assert pair_score(Link(0, 1, CommonAncestor.SYSTEM, via_switch=True)) == 1810
    links = [
        Link(a, b, CommonAncestor.SINGLE if a // 2 == b // 2 else CommonAncestor.SYSTEM, via_switch={a, b} <= {1, 3, 4})
        for a in range(5)
        for b in range(5)
        if a != b
    ]
    table = make_table([make_gpu(index) for index in range(5)], PreferencePolicy.ALIGNED, tuple(links))
    assert prefer(table, list(table.positions), [], 3) == ("GPU-1", "GPU-3", "GPU-4")


def test_the_first_gpu_says_what_joins_a_pair():
    """A link that the driver states in one direction only counts from the GPU of the lower index."""
    one_way = [Link(0, 1, CommonAncestor.SYSTEM, nvlinks=1), Link(1, 0, CommonAncestor.SYSTEM)]
    assert score_pairs(["0", "1"], one_way) == ((0, 110), (110, 0))
    other_way = [Link(0, 1, CommonAncestor.SYSTEM), Link(1, 0, CommonAncestor.SYSTEM, nvlinks=1)]
    assert score_pairs(["0", "1"], other_way) == ((0, 10), (10, 0))


def test_missing_links_score_nothing():
    """A pair of which nothing is known is no error."""
    assert score_pairs(["0", "7"], []) == ((0, 0), (0, 0))
