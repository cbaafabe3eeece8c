"""Delays between attempts."""

from __future__ import annotations

import itertools

from device_plugin.kubelet.backoff import Backoff


def test_delays_double_up_to_the_limit_and_begin_anew_after_a_reset():
    """From a tenth of a second to three minutes."""
    backoff = Backoff(random=lambda: 1.0)
    delays = [backoff.next_delay() for _ in range(13)]
    assert delays[:4] == [0.1, 0.2, 0.4, 0.8]
    assert delays[-2:] == [180.0, 180.0]
    backoff.reset()
    assert backoff.next_delay() == 0.1


def test_jitter_keeps_between_half_and_the_whole():
    """Resources that failed together do not try together again."""
    values = itertools.cycle([0.0, 0.5, 1.0])
    backoff = Backoff(first_seconds=8.0, limit_seconds=8.0, random=lambda: next(values))
    assert [backoff.next_delay() for _ in range(3)] == [4.0, 6.0, 8.0]


def test_two_backoffs_differ():
    """The real source of randomness is used where none is given."""
    one, other = Backoff(), Backoff()
    assert [one.next_delay() for _ in range(8)] != [other.next_delay() for _ in range(8)]
