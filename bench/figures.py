"""Figures: percentiles, the best of several rounds, and rows of a table with their budgets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def percentile(values: Iterable[float], percent: float) -> float:
    """The nearest-rank percentile: the smallest value that at least `percent` of all values do not exceed."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values, no percentile")
    return ordered[max(math.ceil(len(ordered) * percent / 100), 1) - 1]


def best_percentile(rounds: Iterable[Sequence[float]], percent: float) -> float:
    """The percentile of each round, and of those the best: other work on the machine only ever makes a round slower."""
    return min(percentile(values, percent) for values in rounds)


@dataclass(frozen=True, slots=True)
class Budget:
    """What a figure may be at most. Every part that is given must hold: `ratio` times the floor, floor plus `over`, `limit`."""

    ratio: float | None = None
    over: float | None = None
    limit: float | None = None

    def __str__(self) -> str:
        parts = []
        if self.ratio is not None:
            parts.append(f"{self.ratio:g} x floor")
        if self.over is not None:
            parts.append(f"floor + {self.over:g}")
        if self.limit is not None:
            parts.append(f"{self.limit:g}")
        return ", ".join(parts)

    def allows(self, value: float, floor: float | None) -> bool:
        """Whether the figure keeps the budget. Raises ValueError where the budget needs a floor and there is none."""
        limits = [] if self.limit is None else [self.limit]
        if self.ratio is not None or self.over is not None:
            if floor is None:
                raise ValueError("this budget is relative to a floor that was not measured")
            limits += [floor * self.ratio] if self.ratio is not None else []
            limits += [floor + self.over] if self.over is not None else []
        return all(value <= limit for limit in limits)


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the plugin, beside the floor's where there is one. `unit` is that of value, floor and budget."""

    group: str
    name: str
    unit: str
    value: float
    floor: float | None = None
    budget: Budget | None = None

    @property
    def passes(self) -> bool | None:
        """Whether the budget is kept; None without one."""
        return self.budget.allows(self.value, self.floor) if self.budget else None

    def to_json(self) -> dict[str, Any]:
        """For machines: the row's fields, the ratio to the floor and the verdict."""
        return {
            "group": self.group,
            "name": self.name,
            "unit": self.unit,
            "value": round(self.value, 4),
            "floor": None if self.floor is None else round(self.floor, 4),
            "ratio": round(self.value / self.floor, 3) if self.floor else None,
            "budget": str(self.budget) if self.budget else None,
            "passes": self.passes,
        }


def format_rows(rows: Sequence[Row]) -> str:
    """The rows as a plain table, one heading for each group."""
    cells = [("", "plugin", "floor", "ratio", "unit", "budget", "")]
    cells += [
        (
            f"  {row.name}",
            f"{row.value:.3g}" if row.value < 100 else f"{row.value:.0f}",
            "" if row.floor is None else f"{row.floor:.3g}" if row.floor < 100 else f"{row.floor:.0f}",
            f"{row.value / row.floor:.2f}" if row.floor else "",
            row.unit,
            str(row.budget) if row.budget else "",
            {True: "pass", False: "FAIL", None: ""}[row.passes],
        )
        for row in rows
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    lines, group = [_line(cells[0], widths)], None
    for row, line in zip(rows, cells[1:], strict=True):
        if row.group != group:
            group = row.group
            lines.append(group)
        lines.append(_line(line, widths))
    return "\n".join(lines)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    left = (0, 4, 5, 6)
    padded = (
        cell.ljust(width) if column in left else cell.rjust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    )
    return "  ".join(padded).rstrip()
