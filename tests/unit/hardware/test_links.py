"""NVLinks, NVSwitches and PCIe ancestors."""

from __future__ import annotations

import pytest

from device_plugin.hardware.model import CommonAncestor

PAIRS = [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]


def links_of(found):
    gpus = [found.driver.read_gpu(index) for index in range(len(found.node.gpus))]
    return found.driver.read_links(gpus)


def test_direct_links_are_counted_in_each_direction(opened):
    """Links count from source to target, so a link seen from one end only is told as it is."""
    found = opened({}, {}, {}, links={"nvlink": "X 2 .\n 1 X 3\n . 3 X"})
    assert [(link.source, link.target, link.nvlinks) for link in links_of(found)] == [
        (0, 1, 2),
        (0, 2, 0),
        (1, 0, 1),
        (1, 2, 3),
        (2, 0, 0),
        (2, 1, 3),
    ]
    assert not any(link.via_switch for link in links_of(found))


def test_gpus_on_nvswitches_are_joined_through_them(opened):
    """Switch-attached GPUs have no link to each other and are joined all the same (coldzerofear/vgpu-manager#70)."""
    found = opened({"nvswitchLinks": 12}, {"nvswitchLinks": 12}, {})
    assert [(link.nvlinks, link.via_switch) for link in links_of(found) if {link.source, link.target} == {0, 1}] == [(0, True)] * 2
    assert not any(link.via_switch for link in links_of(found) if 2 in (link.source, link.target))


def test_an_old_driver_tells_a_switch_by_its_address(opened):
    """Without the far end's type, the address that stands for a switch tells it."""
    found = opened({"nvswitchLinks": 6}, {"nvswitchLinks": 6}, missingSymbols=["nvmlDeviceGetNvLinkRemoteDeviceType"])
    assert all(link.via_switch for link in links_of(found))


def test_direct_links_on_an_old_driver(opened):
    """Without the far end's type, direct links are still told by their address."""
    found = opened({}, {}, links={"nvlink": "X 2\n2 X"}, missingSymbols=["nvmlDeviceGetNvLinkRemoteDeviceType"])
    assert [link.nvlinks for link in links_of(found)] == [2, 2]


@pytest.mark.parametrize(
    ("word", "ancestor"),
    [
        ("PIX", CommonAncestor.SINGLE),
        ("PXB", CommonAncestor.MULTIPLE),
        ("PHB", CommonAncestor.HOSTBRIDGE),
        ("NODE", CommonAncestor.NODE),
        ("SYS", CommonAncestor.SYSTEM),
    ],
)
def test_ancestors(opened, word, ancestor):
    """Both directions of a pair have its common ancestor."""
    found = opened({}, {}, links={"pcie": f"X {word}\n{word} X"})
    assert [link.ancestor for link in links_of(found)] == [ancestor, ancestor]


def test_every_ordered_pair_has_one_link_in_order(opened):
    """All pairs are there, sorted."""
    found = opened({}, {}, {})
    assert [(link.source, link.target) for link in links_of(found)] == PAIRS


@pytest.mark.parametrize(
    "call",
    [
        "nvmlDeviceGetNvLinkState",
        "nvmlDeviceGetNvLinkRemotePciInfo",
        "nvmlDeviceGetTopologyCommonAncestor",
        "nvmlDeviceGetHandleByUUID",
        "*",
    ],
)
@pytest.mark.parametrize("code", ["UNKNOWN", "GPU_IS_LOST", "NOT_SUPPORTED", "INVALID_ARGUMENT", 4242])
def test_what_cannot_be_read_is_unknown_and_never_raises(opened, call, code):
    """Whatever fails while links are read, every pair has its entry (NVIDIA/k8s-device-plugin#2038)."""
    found = opened({}, {}, {}, links={"nvlink": "X 1 1\n1 X 1\n1 1 X"})
    gpus = [found.driver.read_gpu(index) for index in range(3)]
    found.node.answer(call, code)
    assert [(link.source, link.target) for link in found.driver.read_links(gpus)] == PAIRS


def test_a_lost_gpu_leaves_the_links_of_the_others(opened):
    """With one GPU lost, links between the others are all there, although NVML's look-up by UUID fails on the way past it."""
    found = opened({}, {}, {}, links={"nvlink": "X 1 2\n1 X 1\n2 1 X", "pcie": "X PIX PIX\nPIX X PIX\nPIX PIX X"})
    gpus = [found.driver.read_gpu(index) for index in range(3)]
    found.node.lose(1)
    by_pair = {(link.source, link.target): link for link in found.driver.read_links(gpus)}
    assert (by_pair[0, 2].nvlinks, by_pair[2, 0].nvlinks) == (2, 2)
    assert by_pair[0, 2].ancestor is CommonAncestor.SINGLE
    assert (by_pair[0, 1].nvlinks, by_pair[0, 1].ancestor) == (0, None)


def test_a_level_nobody_knows_is_no_ancestor(opened):
    """A topology level of a later NVML is unknown, not an error."""
    found = opened({}, {})
    found.node.live.replace(_with_level(found.node.live.machine, 77))
    assert [link.ancestor for link in links_of(found)] == [None, None]


def _with_level(machine, level):
    from dataclasses import replace

    return replace(machine, ancestors={frozenset(gpu.uuid for gpu in machine.gpus): level})
