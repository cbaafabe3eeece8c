"""What comes back from the state file: values of JSON, each checked before anybody believes it."""

from __future__ import annotations

from math import isfinite


def stored_text(value: object) -> str:
    """Text that others can be told: half a surrogate pair, which JSON can hold, is none. Raises TypeError or ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"expected text, not {value!r}")
    value.encode()
    return value


def stored_seconds(value: object) -> float:
    """A time in seconds. Raises TypeError."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not isfinite(value):
        raise TypeError(f"expected a time in seconds, not {value!r}")
    return float(value)
