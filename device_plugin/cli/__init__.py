"""The commands. The only place that reads argv and the environment, and the only one that decides an exit status."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from contextlib import contextmanager
from importlib import import_module
from io import TextIOWrapper
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Before grpc is imported anywhere: its fork handlers can hang helper programs (grpc/grpc#13873), and its own log lines go to
# standard error past ours.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")


@contextmanager
def _heeding_sigterm() -> Iterator[None]:
    """End at SIGTERM from the first moment on, until a command has a handler of its own.

    The kernel has no default for a container's first process: a signal that came during the imports would be lost, and the pod
    killed once its time to end is over.
    """
    is_ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if is_ours:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


@_heeding_sigterm()
def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that `argv` (default: the process's own) names and return its exit status.

    0 says that it did what was asked, 1 that it could not or that there are problems, 2 that `argv` cannot be understood.
    """
    _print_anything()
    with _collecting_later():
        from device_plugin.cli.arguments import parse_arguments  # noqa: PLC0415 - after the variables above are set
        from device_plugin.errors import PluginError  # noqa: PLC0415 - the same

        arguments = parse_arguments(sys.argv[1:] if argv is None else argv)
        # Each command imports what it needs: `validate` wants no gRPC, `run` no simulated kubelet.
        command = import_module(f"device_plugin.cli.{arguments.command}")
    try:
        status: int = getattr(command, arguments.command)(arguments)
        sys.stdout.flush()
    except PluginError as error:
        from device_plugin.cli.report import print_failure  # noqa: PLC0415 - most commands do not fail

        print_failure(error, arguments)
        return 1
    except BrokenPipeError:
        # The reader of our output has gone. Keep the interpreter from trying to print the rest at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        return 130
    return status


def _print_anything() -> None:
    """Have what the output's encoding lacks printed as an escape, where a character of a file's name or text ended the command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextmanager
def _collecting_later() -> Iterator[None]:
    """No garbage collection while modules are imported, and none of what they made.

    Imports leave next to no garbage. Searching all they make again and again is a tenth of the daemon's start, and later each full
    collection would stop its event loop for some 30 ms.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
