"""Durations: Go's notation, read and written."""

from __future__ import annotations

import pytest

from device_plugin.config import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30s", 30),
        ("1h30m", 5400),
        ("1.5h", 5400),
        (".5s", 0.5),
        ("250ms", 0.25),
        ("0", 0),
        (0, 0),
        ("0s", 0),
        ("1m1.5s", 61.5),
        ("5us", 5e-6),
    ],
)
def test_durations(text, seconds):
    assert durations.parse_duration(text) == seconds


@pytest.mark.parametrize(
    "value", ["", "30", "s", "1 s", "-1s", "1d", ".s", "1s ", "9" * 30 + "h", 5, 1.5, False, None, [], "infinite"]
)
def test_durations_without_a_unit_or_sense_are_refused(value):
    with pytest.raises(ValueError, match="expected a duration"):
        durations.parse_duration(value)


@pytest.mark.parametrize("seconds", [0, 0.25, 30, 90, 5400, 3661.5])
def test_a_duration_is_shown_as_it_can_be_read(seconds):
    assert durations.parse_duration(durations.format_duration(seconds)) == seconds


@pytest.mark.parametrize(("seconds", "text"), [(0, "0s"), (90, "1m30s"), (300, "5m"), (0.5, "500ms")])
def test_how_durations_are_shown(seconds, text):
    assert durations.format_duration(seconds) == text
