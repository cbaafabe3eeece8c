"""What commands print: problems, tables, and data as JSON or YAML."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any, TextIO

import yaml

from device_plugin.cli.process_options import as_stated
from device_plugin.errors import ConfigError
from device_plugin.problems import Origin, Problem, ProblemKind, Severity

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from device_plugin.errors import PluginError


def print_problems(problems: Iterable[Problem], *, file: TextIO | None = None) -> None:
    """One problem a line, its place first."""
    for problem in problems:
        print(problem, file=file or sys.stderr)


def print_failure(error: PluginError, arguments: argparse.Namespace) -> None:
    """Why a command could not do its work, as problems."""
    if isinstance(error, ConfigError):
        print_problems(as_stated(error.problems, arguments))
    else:
        print_problems([node_error(str(error))])


def node_error(message: str, source: str = "node") -> Problem:
    """A problem of this machine rather than of what was asked for. `source`: a file of it, where it is about one."""
    return Problem(Severity.ERROR, ProblemKind.HARDWARE, message, Origin(source))


def print_data(data: Any, form: str) -> None:
    """JSON or YAML, keys in the order given."""
    if form == "json":
        print(json.dumps(data, indent=2))
    else:
        print(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=120), end="")


def format_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Columns of text, two spaces apart, the last one unpadded."""
    table = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table)
