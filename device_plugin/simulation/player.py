"""Plays a profile on a node while it runs: its script of faults, and the edits of its file."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from device_plugin.errors import ConfigError, PluginError
from device_plugin.logs import get_logger, log_problem
from device_plugin.simulation.profile_file import parse_profile

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from device_plugin.simulation.hardware import SimulatedHardware
    from device_plugin.simulation.script import Step


class Player:
    """One daemon thread. `path` is the profile's file, None to follow none; `content` what was read of it; `clock` tells seconds.

    A step that does not fit the node (GPU 9 of 8) is logged and passed over. An edit that is not a profile is logged, and the node
    stays as it is. An edit replaces the node's hardware; the script goes on from where it was, with the steps that are to come.
    """

    POLL_SECONDS = 0.25

    def __init__(
        self,
        node: SimulatedHardware,
        steps: Sequence[Step],
        path: Path | None = None,
        content: bytes = b"",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node, self._path, self._content, self._clock = node, path, content, clock
        self._start = clock()
        self._played_until = -1.0  # seconds since the start; those of a step are 0 or more
        self._steps = sorted(steps, key=lambda step: step.at_seconds)
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._log = get_logger(node=node.name)

    def start(self) -> None:
        """Play on in a thread until `stop`."""
        self._thread = threading.Thread(target=self._run, name="simulation-player", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def turn(self) -> None:
        """Do what is due now: follow the file, then play every step whose time has come."""
        self._follow()
        elapsed = self._clock() - self._start
        self._played_until = elapsed
        while self._steps and self._steps[0].at_seconds <= elapsed:
            step = self._steps.pop(0)
            try:
                step.play(self._node)
            except (PluginError, ValueError) as error:
                self._log.error("fault.failed", fault=step.do, error=str(error))
            except Exception as error:  # noqa: BLE001 - a mistake of our own in one fault must not keep the others from being played
                self._log.error("fault.failed", fault=step.do, error=f"{type(error).__name__}: {error}")
            else:
                self._log.info("fault.played", fault=step.do, at_seconds=step.at_seconds)

    def _run(self) -> None:
        while not self._stop.wait(self.POLL_SECONDS):
            self.turn()

    def _follow(self) -> None:
        if self._path is None:
            return
        try:
            content = self._path.read_bytes()
        except OSError:  # there is none, or it is being replaced
            return
        if content == self._content:
            return
        self._content = content
        try:
            profile = parse_profile(content, self._path)
            self._node.replace_profile(profile)
        except ConfigError as error:
            for problem in error.problems:
                log_problem(self._log, problem)
            return
        except (OSError, ValueError) as error:
            self._log.error("profile.failed", error=str(error))
            return
        self._steps = sorted(
            (step for step in profile.faults if step.at_seconds > self._played_until), key=lambda step: step.at_seconds
        )
        self._log.info("profile.changed", gpus=len(profile.gpus))
