"""`demo`: the plugin at work, without a GPU, a kubelet or a cluster. Ends by itself."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.cli.arguments import PROGRAM
from device_plugin.errors import PluginError
from device_plugin.logs import configure
from device_plugin.simulation.demo import play

if TYPE_CHECKING:
    import argparse


def demo(arguments: argparse.Namespace) -> int:
    """Exit status 1 if a step did not come to its end."""
    configure("error", "text")
    wants_colour = {"always": True, "never": False}.get(
        arguments.color,
        sys.stdout.isatty() and not arguments.environment.get("NO_COLOR") and arguments.environment.get("TERM") != "dumb",
    )
    try:
        asyncio.run(play(lambda line: print(line, flush=True), program=_as_started(), colour=wants_colour))
    except (PluginError, OSError, RuntimeError) as error:  # the latter from gRPC, for a path it cannot bind: a long TMPDIR
        print(f"The demo failed: {error}", file=sys.stderr)
        return 1
    return 0


def _as_started() -> str:
    """What to type for another command: in a checkout the program is not on PATH."""
    if Path(sys.argv[0]).name == "__main__.py":
        interpreter = Path(sys.executable)
        here = Path.cwd()
        return f"{interpreter.relative_to(here) if interpreter.is_relative_to(here) else interpreter} -m device_plugin"
    return PROGRAM
