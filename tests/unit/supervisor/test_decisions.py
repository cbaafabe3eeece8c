"""Which problems end a start, which delay it, and which refuse an edit."""

import pytest

from device_plugin.problems import ProblemKind, Severity
from device_plugin.supervisor.decisions import Fit, delays_start, fit, forbids_reload, forbids_start

EDIT = {ProblemKind.CONTRADICTION, ProblemKind.TOO_LARGE}
NODE = {ProblemKind.MIG_SINGLE, ProblemKind.PLATFORM}


@pytest.mark.parametrize("kind", list(ProblemKind))
def test_what_ends_what_delays_and_what_is_served_nonetheless(make, kind):
    offer = make.offer(make.problem(kind))
    assert bool(forbids_start(offer)) == (kind in EDIT)
    assert bool(delays_start(offer)) == (kind in NODE)
    assert bool(forbids_reload(offer, make.offer())) == (kind in EDIT | NODE)
    assert fit(offer) is (Fit.IMPOSSIBLE if kind in EDIT else Fit.AWAITED if kind in NODE else Fit.SERVABLE)


@pytest.mark.parametrize("kind", list(ProblemKind))
@pytest.mark.parametrize("severity", [Severity.WARNING, Severity.INFO])
def test_what_is_no_error_never_stands_in_the_way(make, kind, severity):
    offer = make.offer(make.problem(kind, severity))
    assert not forbids_start(offer)
    assert not delays_start(offer)
    assert not forbids_reload(offer, make.offer())


def test_an_edit_is_not_refused_for_what_is_wrong_already(make):
    wrong = make.offer(make.problem(ProblemKind.MIG_SINGLE, message="before"))
    assert not forbids_reload(make.offer(make.problem(ProblemKind.MIG_SINGLE, message="after")), wrong)
    assert forbids_reload(make.offer(make.problem(ProblemKind.TOO_LARGE)), wrong)


def test_without_anything_in_force_every_fault_counts(make):
    assert forbids_reload(make.offer(make.problem(ProblemKind.TOO_LARGE)), None)


def test_all_that_is_wrong_is_said_at_once(make):
    offer = make.offer(
        make.problem(ProblemKind.TOO_LARGE), make.problem(ProblemKind.CONTRADICTION), make.problem(ProblemKind.UNMET)
    )
    assert len(forbids_start(offer)) == 2
