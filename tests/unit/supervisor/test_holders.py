"""Who holds what, from kubelet's answers and ours."""

import pytest

from device_plugin.kubelet.podresources import Unreadable
from device_plugin.supervisor.holders import BOOKED_WITHIN_SECONDS, Holders

GPU = "nvidia.com/gpu"


class Kubelet:
    socket = "/pod-resources.sock"

    def __init__(self):
        self.answer = {}

    async def held(self):
        return self.answer


class Clock:
    def __init__(self):
        self.time = 1000.0

    def now(self):
        return self.time


@pytest.fixture
def kubelet():
    return Kubelet()


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def holders(kubelet, clock, log):
    return Holders(kubelet, clock, log.logger)


async def test_before_the_first_answer_nothing_is_known(holders):
    assert holders.held is None


async def test_kubelets_word_counts_and_a_change_is_told(holders, kubelet):
    kubelet.answer = {GPU: frozenset({"a"})}
    assert await holders.refresh()
    assert holders.held == {GPU: frozenset({"a"})}
    assert not await holders.refresh()


async def test_what_was_given_since_counts_until_kubelet_has_had_time_to_book_it(holders, kubelet, clock):
    await holders.refresh()
    holders.note_given(GPU, ["b"])
    assert holders.held == {GPU: frozenset({"b"})}
    clock.time += BOOKED_WITHIN_SECONDS / 2
    await holders.refresh()
    assert holders.held == {GPU: frozenset({"b"})}, "kubelet may still be booking it"
    clock.time += BOOKED_WITHIN_SECONDS
    assert await holders.refresh()
    assert holders.held == {}


async def test_an_error_keeps_the_last_answer_and_is_said_once(holders, kubelet, log):
    kubelet.answer = {GPU: frozenset({"a"})}
    await holders.refresh()
    kubelet.answer = Unreadable("no")
    assert not await holders.refresh()
    assert not await holders.refresh()
    assert holders.held == {GPU: frozenset({"a"})}
    assert len(log.of("pod_resources.failed")) == 1
    kubelet.answer = {}
    await holders.refresh()
    kubelet.answer = Unreadable("no")
    await holders.refresh()
    assert len(log.of("pod_resources.failed")) == 2, "a new fault is told anew"


async def test_a_socket_that_vanishes_keeps_the_last_answer(holders, kubelet):
    """Kubelet's restart takes the socket away for a moment; that frees nothing."""
    kubelet.answer = {GPU: frozenset({"a"})}
    await holders.refresh()
    kubelet.answer = None
    await holders.refresh()
    assert holders.held == {GPU: frozenset({"a"})}


async def test_without_the_socket_it_is_said_what_cannot_be_known(holders, kubelet, log):
    kubelet.answer = None
    holders.note_given(GPU, ["a"])
    await holders.refresh()
    await holders.refresh()
    assert holders.held is None
    (entry,) = log.of("pod_resources.missing")
    assert "/pod-resources.sock" in entry["reason"]
    assert "grace" in entry["reason"]


async def test_a_kubelet_that_could_tell_and_never_did_is_silent_until_it_does(holders, kubelet, log):
    """Nothing being known is not the same as nothing being held."""
    assert not holders.are_silent
    kubelet.answer = Unreadable("no")
    assert await holders.refresh()
    assert not await holders.refresh()
    assert holders.are_silent
    assert "counts as held" in log.of("pod_resources.failed")[0]["reason"]
    kubelet.answer = {GPU: frozenset({"a"})}
    assert await holders.refresh()
    assert not holders.are_silent
    kubelet.answer = Unreadable("no")
    await holders.refresh()
    assert not holders.are_silent, "the last answer holds on"
