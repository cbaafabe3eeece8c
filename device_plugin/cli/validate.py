"""`validate FILE...`: check config files without a node. Each problem on a line that starts `file:line:column:`."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from device_plugin.cli.report import print_problems
from device_plugin.config.document import decode
from device_plugin.config.load import load
from device_plugin.config.notices import find_differences
from device_plugin.config.source import ConfigSource
from device_plugin.errors import ConfigError
from device_plugin.problems import Origin, Problem, ProblemKind, Severity

if TYPE_CHECKING:
    import argparse

STANDARD_INPUT = "-"


def validate(arguments: argparse.Namespace) -> int:
    """Exit status 1 if any file cannot be used; then nothing but problems is printed. Flags and variables play no part."""
    found = {file: _problems(file) for file in arguments.files}
    for problems in found.values():
        print_problems(problems, file=sys.stdout)
    if any(problem.severity is Severity.ERROR for problems in found.values() for problem in problems):
        return 1
    for file in found:
        print(f"{_shown(file)}: ok")
    return 0


def _problems(file: str) -> list[Problem]:
    """What there is to say about a file. What is about the whole of it stands at its start."""
    name = _shown(file)
    try:
        text = decode(sys.stdin.buffer.read(), name) if file == STANDARD_INPUT else ConfigSource(file=file).read().text
        if text is None:
            return [Problem(Severity.ERROR, ProblemKind.CONFIG, "there is no such file", Origin(name, 1, 1))]
        loaded = load(text, file=name)
        problems = (*loaded.problems, *find_differences(loaded.config))
    except ConfigError as error:
        problems = error.problems
    return [
        problem if problem.origin.line else replace(problem, origin=Origin(name, 1, 1, problem.origin.path)) for problem in problems
    ]


def _shown(file: str) -> str:
    return "<stdin>" if file == STANDARD_INPUT else file
