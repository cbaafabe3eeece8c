"""What outlives the process: causes and the arrangement, so that a restart neither heals a GPU nor books one twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.health.memory import from_json, to_json
from device_plugin.health.state import HealthState
from device_plugin.serving.arrangement import arrangement_from_json, arrangement_to_json
from device_plugin.supervisor.state_file import StateFile

if TYPE_CHECKING:
    from pathlib import Path

    from device_plugin.logs import Logger
    from device_plugin.serving.served import Served
    from device_plugin.supervisor.threads import WorkThread


class Memory:
    """Keeps both in the state file of a directory, written on the thread for files."""

    def __init__(self, directory: Path, files: WorkThread[None], logger: Logger) -> None:
        self._file = StateFile(directory)
        self._files, self._logger = files, logger
        self._kept: tuple[HealthState, Served] | None = None
        self._told: str | None = None

    def recall(self) -> tuple[HealthState, Served | None]:
        """What an earlier process left. What of it cannot be used is logged."""
        sections, problem = self._file.read()
        notes = [problem] if problem else []
        state, served = HealthState(), None
        if "health" in sections:
            state, more = from_json(sections["health"])
            notes += more
        if "arrangement" in sections:
            served, reason = arrangement_from_json(sections["arrangement"])
            notes += [reason] if reason else []
        for note in notes:
            self._logger.warning("state.not_restored", reason=note)
        return state, served

    def keep(self, state: HealthState, served: Served | None) -> None:
        """Write both soon, if anything differs from the last time, or if that was in vain or is gone.

        Nothing is kept before something was served.
        """
        if served is None or ((state, served) == self._kept and self._file.is_there()):
            return
        self._kept = state, served

        def write(_: None) -> None:
            try:
                self._file.write({"health": to_json(state), "arrangement": arrangement_to_json(served)})
            except OSError as error:
                self._kept = None
                self._tell(error.strerror or str(error))
            else:
                self._told = None

        self._files.submit(write)

    def _tell(self, reason: str) -> None:
        """Say it once for as long as it lasts."""
        if reason != self._told:
            self._told = reason
            self._logger.warning("state.not_saved", path=str(self._file.path), reason=reason)
