"""`validate FILE...`: check config files without a node. Each problem on a line that starts `file:line:column:`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.cli.report import print_problems
from device_plugin.config.load import load
from device_plugin.config.source import ConfigSource
from device_plugin.errors import ConfigError

if TYPE_CHECKING:
    import argparse


def validate(arguments: argparse.Namespace) -> int:
    """Exit status 1 if any file cannot be used. Flags and variables play no part: the files alone are looked at."""
    status = 0
    for file in arguments.files:
        try:
            source = ConfigSource(file=file).read()
            if source.missing:
                print(f"{file}:1:1: error: there is no such file")
                status = 1
                continue
            loaded = load(source.text, file=file)
        except ConfigError as error:
            print_problems(error.problems)
            status = 1
        else:
            print_problems(loaded.problems)
            print(f"{file}: ok")
    return status
