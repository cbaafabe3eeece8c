"""Durations as the config has them: Go's notation, which the peer reads and writes."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from device_plugin.config.values import shown

_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9, "h": 3600 * 10**9}
_DURATION = r"(?=\.?[0-9])([0-9]{0,18})(?:\.([0-9]{0,18}))?(ns|us|µs|μs|ms|s|m|h)"
_LONGEST_DURATION = 2**63 - 1  # nanoseconds, as in Go: 292 years
FOREVER = _LONGEST_DURATION


def _parse_nanoseconds(text: str) -> int:
    nanoseconds, end = 0, 0
    for match in re.finditer(_DURATION, text):
        if match.start() != end:
            break
        unit, fraction = _NANOSECONDS[match[3]], match[2] or ""
        nanoseconds += int(match[1] or "0") * unit + int(fraction or "0") * unit // 10 ** len(fraction)
        end = match.end()
    if text.startswith("-") and text[1:] and not set(text[1:]) - set("0123456789.numµμsh"):
        raise ValueError(f"expected a duration that is not negative, such as 30s, not {text!r}")
    if not text or end != len(text):
        raise ValueError(f"expected a duration with a unit, such as 30s, 5m or 1h30m, not {text!r}")
    if nanoseconds > _LONGEST_DURATION:
        raise ValueError(f"expected a duration of at most 292 years, not {text!r}")
    return nanoseconds


def parse_duration(value: object) -> float:
    """Seconds from a Go duration (`60s`, `1h30m`, `0`). A bare number is refused: its unit would be a guess. Raises ValueError."""
    if value == 0 and not isinstance(value, bool):
        return 0.0
    if not isinstance(value, str):
        raise ValueError(f"expected a duration with a unit, such as 30s, 5m or 1h30m, not {shown(value)}")
    return 0.0 if value == "0" else _parse_nanoseconds(value) / 1e9


def parse_positive_duration(value: object) -> float:
    """Seconds, and more than none. Raises ValueError."""
    seconds = parse_duration(value)
    if seconds == 0:
        raise ValueError(f"expected a duration longer than 0s, not {shown(value)}")
    return seconds


def format_duration(seconds: float) -> str:
    """The shortest text that reads back as that duration: `90s` is `1m30s`, half a second `500ms`."""
    return _format_nanoseconds(round(seconds * 1e9))


def _format_nanoseconds(nanoseconds: int) -> str:
    parts, rest = [], nanoseconds
    for unit in ("h", "m", "s", "ms", "us", "ns"):
        count, rest = divmod(rest, _NANOSECONDS[unit])
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def parse_label_interval(value: object) -> int:
    """Nanoseconds of the label program's interval: a Go duration, a number of nanoseconds, or `infinite`. Raises ValueError."""
    if value == "infinite":
        return FOREVER
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= _LONGEST_DURATION:
        return int(value)
    if isinstance(value, str):
        return 0 if value == "0" else _parse_nanoseconds(value)
    raise ValueError(f'expected a duration such as 60s, a number of nanoseconds, or "infinite", not {shown(value)}')


def format_label_interval(nanoseconds: int) -> str:
    """What `parse_label_interval` reads back."""
    return "infinite" if nanoseconds == FOREVER else _format_nanoseconds(nanoseconds)


_TIMES = r"(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))+"
_DURATION_SCHEMA = {"anyOf": [{"type": "string", "pattern": rf"^(0|{_TIMES})$"}, {"const": 0}]}
_POSITIVE_DURATION_SCHEMA = {"type": "string", "pattern": rf"^(?=.*[1-9]){_TIMES}$"}
Duration = Annotated[
    float, BeforeValidator(parse_duration), PlainSerializer(format_duration, return_type=str), WithJsonSchema(_DURATION_SCHEMA)
]
PositiveDuration = Annotated[
    float,
    BeforeValidator(parse_positive_duration),
    PlainSerializer(format_duration, return_type=str),
    WithJsonSchema(_POSITIVE_DURATION_SCHEMA),
]
LabelInterval = Annotated[
    int,
    BeforeValidator(parse_label_interval),
    PlainSerializer(format_label_interval, return_type=str),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"const": "infinite"}, *_DURATION_SCHEMA["anyOf"]]}),
]
