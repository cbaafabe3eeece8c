"""imex: a channel that is asked for and not there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from device_plugin.problems import ProblemKind, Severity
from device_plugin.sharing.plan import plan

GPU = "nvidia.com/gpu"


def test_a_channel_that_is_there_is_nothing_to_speak_of(make, look):
    """With its device node the channel is injected, required or not."""
    node = replace(make.gpus(2), imex_channels=(0,))
    offer = plan(node, make.config({"imex": {"channelIDs": [0], "required": True}}))
    assert look.counts(offer) == {GPU: 2}
    assert offer.problems == ()


def test_a_missing_channel_is_warned_of(make, look):
    """Not required, it is left out and the GPUs are offered."""
    offer = plan(make.gpus(2), make.config({"imex": {"channelIDs": [0]}}))
    assert look.counts(offer) == {GPU: 2}
    [problem] = offer.problems
    assert (problem.severity, problem.kind) == (Severity.WARNING, ProblemKind.UNMET)
    assert problem.origin.path == "imex.channelIDs"
    assert problem.message == "this node has no IMEX channel0 in /dev/nvidia-caps-imex-channels; containers start without it"


def test_a_required_channel_that_is_missing_is_a_fault_of_the_node(make, look):
    """A start waits for it. The GPUs stay in the Offer, so that a node that loses its channel keeps its capacity, Unhealthy."""
    config = make.config({"imex": {"channelIDs": [0], "required": True}, "devices": {"exclude": [0]}})
    offer = plan(make.gpus(3), config)
    assert look.counts(offer) == {GPU: 2}
    [problem] = offer.errors(ProblemKind.PLATFORM)
    assert problem.origin.path == "imex.required"
    assert problem.message == (
        "this node has no IMEX channel0 in /dev/nvidia-caps-imex-channels, and it is required; "
        "no container can be started with a GPU"
    )


@pytest.mark.parametrize("required", [False, True])
def test_a_node_without_gpus_needs_no_channel(make, required):
    """There is no container to give it to; that there is no GPU is said already."""
    offer = plan(make.gpus(0), make.config({"imex": {"channelIDs": [0], "required": required}}))
    assert [problem.message for problem in offer.problems] == ["the driver shows no GPU"]
