"""Aligned choices on the structures that nodes have."""

from __future__ import annotations

from itertools import combinations

import pytest

from device_plugin.allocation.aligned import MAX_GPUS, choose_aligned, score_group
from device_plugin.allocation.local_search import split_well

NOBODY: frozenset[int] = frozenset()
CUBE_MESH = ("01122000", "10210200", "12020010", "21200001", "20000112", "02001021", "00101202", "00012120")
"""NVLinks between the eight GPUs of a DGX-1V."""


def tree_score(a: int, b: int) -> int:
    """Pairs on one PCIe switch, switches in pairs, four of those per socket, as in a node of 16."""
    return next(points for shift, points in ((1, 50), (2, 40), (3, 20), (9, 10)) if a >> shift == b >> shift)


def make_scores(score, order):
    """The matrix of GPUs that stand in `order`."""
    return tuple(tuple(0 if a == b else score(a, b) for b in order) for a in order)


def mesh_score(a: int, b: int) -> int:
    """Two cube meshes side by side."""
    return 10 + (100 * int(CUBE_MESH[a % 8][b % 8]) if a // 8 == b // 8 else 0)


@pytest.mark.parametrize("step", [1, 3, 5, 7, 11])
@pytest.mark.parametrize(("size", "one_group"), [(2, 50), (4, 2 * 50 + 4 * 40), (8, 4 * 50 + 8 * 40 + 16 * 20)])
def test_sixteen_gpus_on_a_tree(step, size, one_group):
    """Groups of 2, 4, 8 of 16 GPUs are whole branches, however the driver counts the GPUs."""
    scores = make_scores(tree_score, [step * place % 16 for place in range(16)])
    split = split_well(scores, range(16), NOBODY, size)
    assert [score_group(scores, group) for group in split] == [one_group] * (16 // size)
    assert score_group(scores, choose_aligned(scores, range(16), NOBODY, size)) == one_group


@pytest.mark.parametrize("step", [1, 3, 5, 7, 11])
def test_two_meshes(step):
    """Four of two cube meshes are a quad of one mesh, and what is left splits into quads as well."""
    scores = make_scores(mesh_score, [step * place % 16 for place in range(16)])
    quad = score_group(make_scores(mesh_score, range(4)), range(4))
    assert [score_group(scores, group) for group in split_well(scores, range(16), NOBODY, 4)] == [quad] * 4


def test_what_is_left_counts():
    """The last pair taken from GPUs 0 to 3 must not break the only other pair: 0-1 is best alone, but leaves 2-3 unjoined."""
    points = {(0, 1): 30, (0, 2): 20, (1, 3): 20}
    scores = make_scores(lambda a, b: points.get((min(a, b), max(a, b)), 0), range(4))
    assert choose_aligned(scores, range(4), NOBODY, 2) == (0, 2)
    assert choose_aligned(scores, range(4), frozenset({1}), 2) == (1, 3)


def test_of_equal_splits_the_first_counted_wins():
    """3 of 5 GPUs, of which 3 is linked to 0, 2 and 4: {0, 1} with {2, 3, 4} comes before {0, 2, 3} with {1, 4}."""
    scores = make_scores(lambda a, b: int((min(a, b), max(a, b)) in {(0, 3), (2, 3), (3, 4)}), range(5))
    assert choose_aligned(scores, range(5), NOBODY, 3) == (2, 3, 4)


def test_so_many_gpus_that_splits_cannot_all_be_weighed():
    """Pairs of 40 GPUs fall in more ways than can be gone through; the choice is made all the same, and is a best pair."""
    scores = make_scores(lambda a, b: int(a // 2 == b // 2), range(40))
    assert choose_aligned(scores, range(40), frozenset({7}), 2) == (6, 7)


def test_required_gpus_stay_together():
    """GPUs from two ends of the tree can be required; the others join one of them."""
    scores = make_scores(tree_score, range(16))
    chosen = choose_aligned(scores, range(16), frozenset({0, 15}), 4)
    best = max(score_group(scores, tuple(sorted((0, 15, *two)))) for two in combinations(range(1, 15), 2))
    assert {0, 15} <= set(chosen)
    assert score_group(scores, chosen) == best


def test_unlinked_gpus_come_in_index_order():
    """Where nothing is known about links, or all are alike, the first GPUs are taken: the plain choice."""
    for gpus in (8, 16):
        for size in range(1, gpus + 1):
            assert choose_aligned(((0,) * gpus,) * gpus, range(gpus), NOBODY, size) == tuple(range(size))


def test_more_gpus_than_any_node_has():
    """Beyond what is weighed, neighbours in index order are taken with what is required, at once."""
    gpus = MAX_GPUS + 1
    assert choose_aligned(((0,) * gpus,) * gpus, range(gpus), frozenset({40, 50}), 4) == (0, 1, 40, 50)
