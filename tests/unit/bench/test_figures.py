"""The bench's own arithmetic: percentiles, budgets, the table and its JSON."""

from __future__ import annotations

import pytest

from bench.figures import Budget, Row, best_percentile, format_rows, percentile


@pytest.mark.parametrize(("percent", "expected"), [(0, 1), (50, 3), (80, 4), (81, 5), (95, 5), (100, 5)])
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(percent, expected):
    """Nearest rank: a value that was measured, never one between two."""
    assert percentile([5, 1, 4, 2, 3], percent) == expected


def test_one_value_is_every_percentile():
    """A single sample stands for all."""
    assert [percentile([7.5], percent) for percent in (0, 50, 100)] == [7.5, 7.5, 7.5]


def test_there_is_no_percentile_of_nothing():
    """No figure is made up where nothing was measured."""
    with pytest.raises(ValueError, match="no values"):
        percentile([], 50)


def test_the_best_round_counts_as_a_whole():
    """The percentile is taken within each round; rounds are not mixed."""
    assert best_percentile([[1, 9, 9], [4, 5, 6]], 50) == 5


@pytest.mark.parametrize(
    ("budget", "value", "floor", "allowed"),
    [
        (Budget(ratio=1.4), 140, 100, True),
        (Budget(ratio=1.4), 141, 100, False),
        (Budget(over=5), 15, 10, True),
        (Budget(over=5), 15.1, 10, False),
        (Budget(limit=64), 64, None, True),
        (Budget(limit=64), 65, None, False),
        (Budget(ratio=1.2, limit=64), 60, 50, True),
        (Budget(ratio=1.2, limit=64), 61, 50, False),
        (Budget(ratio=1.2, limit=64), 65, 60, False),
    ],
)
def test_a_budget_holds_only_if_each_of_its_parts_does(budget, value, floor, allowed):
    """A ratio to the floor, a distance from it and a fixed limit all have to hold."""
    assert budget.allows(value, floor) is allowed


def test_a_relative_budget_without_a_floor_is_not_judged():
    """It would pass or fail by chance."""
    with pytest.raises(ValueError, match="floor"):
        Budget(ratio=1.4).allows(1, None)


def test_rows_say_what_was_measured_and_the_verdict():
    """The JSON has the figure, the floor, the ratio, the budget in words and whether it was kept."""
    row = Row("start", "to Register", "ms", 300.5, 200.0, Budget(ratio=1.4, limit=1000))
    assert row.to_json() == {
        "group": "start",
        "name": "to Register",
        "unit": "ms",
        "value": 300.5,
        "floor": 200.0,
        "ratio": 1.502,
        "budget": "1.4 x floor, 1000",
        "passes": False,
    }


def test_a_figure_without_budget_has_no_verdict():
    """It informs; `--check` does not look at it."""
    row = Row("start", "PSS", "MiB", 40.0)
    assert (row.passes, row.to_json()["passes"], row.to_json()["ratio"]) == (None, None, None)


def test_the_table_has_one_heading_for_each_group():
    """Groups in the order measured, the verdict at the end of a line that has one."""
    rows = [
        Row("start", "RSS", "MiB", 50.0, 40.0, Budget(limit=64)),
        Row("start", "PSS", "MiB", 30.0),
        Row("XIDs", "worst", "ms", 250.0, None, Budget(limit=200)),
    ]
    assert format_rows(rows).splitlines() == [
        "         plugin  floor  ratio  unit  budget",
        "start",
        "  RSS        50     40   1.25  MiB   64      pass",
        "  PSS        30                MiB",
        "XIDs",
        "  worst     250                ms    200     FAIL",
    ]
