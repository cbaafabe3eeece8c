"""`demo`: the plugin at work, without a GPU, a kubelet or a cluster. Ends by itself."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.cli.arguments import PROGRAM
from device_plugin.errors import PluginError
from device_plugin.logs import configure
from device_plugin.simulation.demo import play

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable


def demo(arguments: argparse.Namespace) -> int:
    """Exit status 1 if a step did not come to its end, that of a shell if a signal ended the demo."""
    configure("error", "text")
    wants_colour = {"always": True, "never": False}.get(
        arguments.color,
        sys.stdout.isatty() and not arguments.environment.get("NO_COLOR") and arguments.environment.get("TERM") != "dumb",
    )
    try:
        playing = play(lambda line: print(line, flush=True), program=_as_started(), colour=wants_colour)
        return asyncio.run(_until_a_signal(playing))
    except (PluginError, OSError, RuntimeError) as error:  # the latter from gRPC, for a path it cannot bind: a long TMPDIR
        print(f"The demo failed: {error}", file=sys.stderr)
        return 1


async def _until_a_signal(playing: Awaitable[None]) -> int:
    """End at a signal in good order, as `asyncio.run` does at SIGINT: an exit in the midst of gRPC's work crashes the process."""
    caught: list[int] = []
    task = asyncio.ensure_future(playing)

    def end(number: int) -> None:
        caught.append(number)
        task.cancel()

    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            asyncio.get_running_loop().add_signal_handler(number, end, number)
    try:
        await task
    except asyncio.CancelledError:
        if not caught:
            raise
        return 128 + caught[0]
    return 0


def _as_started() -> str:
    """What to type for another command: in a checkout the program is not on PATH."""
    if Path(sys.argv[0]).name == "__main__.py":
        interpreter = Path(sys.executable)
        here = Path.cwd()
        return f"{interpreter.relative_to(here) if interpreter.is_relative_to(here) else interpreter} -m device_plugin"
    return PROGRAM
