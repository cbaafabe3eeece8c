"""Pair scores: how well two GPUs are joined. The scale is that of NVIDIA's plugin, so that the same node gets the same choice.

A pair has points for its nearest PCIe ancestor and 100 for each NVLink straight between the two. NVLinks that end at an
NVSwitch have no GPU at their other end, so a count of direct links gives such a pair nothing, though every GPU behind the
switches reaches every other one at full speed (coldzerofear/vgpu-manager#70). Here such a pair counts as fully joined. The
points are the same for each of them, so where all GPUs hang on switches the order of choices is that of the PCIe points
alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.hardware.model import CommonAncestor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from device_plugin.hardware.model import Link

NVLINK_POINTS = 100
MAX_NVLINKS = 18  # of one GPU: NVLink 4 and 5
_PCIE_POINTS = {
    CommonAncestor.INTERNAL: 60,
    CommonAncestor.SINGLE: 50,
    CommonAncestor.MULTIPLE: 40,
    CommonAncestor.HOSTBRIDGE: 30,
    CommonAncestor.NODE: 20,
    CommonAncestor.SYSTEM: 10,
}

Scores = tuple[tuple[int, ...], ...]


def pair_score(link: Link) -> int:
    """The points of one link: 0 where nothing is known about it."""
    pcie = 0 if link.ancestor is None else _PCIE_POINTS[link.ancestor]
    nvlinks = MAX_NVLINKS if link.via_switch else min(max(link.nvlinks, 0), MAX_NVLINKS)
    return pcie + NVLINK_POINTS * nvlinks


def score_pairs(indexes: Sequence[str], links: Iterable[Link]) -> Scores:
    """A symmetric matrix of pair scores for GPUs given by their index as text, in that order.

    The driver states a link once per direction. Should the two disagree, the direction from the GPU that stands first
    counts. A pair without a link has 0.
    """
    points = {(str(link.source), str(link.target)): pair_score(link) for link in links}
    rows = [[0] * len(indexes) for _ in indexes]
    for first, source in enumerate(indexes):
        for second in range(first + 1, len(indexes)):
            rows[first][second] = rows[second][first] = points.get((source, indexes[second]), 0)
    return tuple(tuple(row) for row in rows)
