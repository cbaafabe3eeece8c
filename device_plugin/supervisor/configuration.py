"""The config in force: the last good one, whatever happens to its file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.config.load import load
from device_plugin.config.options import stated_settings
from device_plugin.errors import ConfigError
from device_plugin.logs import log_problem

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from device_plugin.config.load import Loaded
    from device_plugin.config.source import ConfigSource, SourceText
    from device_plugin.logs import Logger
    from device_plugin.problems import Problem

    Forbids = Callable[[Loaded, bool], Sequence[Problem]]


class ConfigKeeper:
    """Reads the source and keeps what was good.

    `problems` are those of the text last read, whether it came into force or not; each is logged once per text. `awaits_node` says
    that this text is good in itself and may come into force once the node is another: then `look` again with `force`.
    """

    def __init__(
        self, source: ConfigSource, *, environment: Mapping[str, str], flags: Mapping[str, object], logger: Logger
    ) -> None:
        self.source = source
        self.loaded: Loaded | None = None
        self.problems: tuple[Problem, ...] = ()
        self._environment, self._flags, self._logger = environment, flags, logger
        self._seen: SourceText | None = None
        self._refused: str | None = None
        self._untried: list[Loaded] = []  # were in force before this one, and nothing has been served since
        self.awaits_node = False

    def look(self, forbids: Forbids, *, force: bool = False) -> bool:
        """Read the source; whether another config is in force now.

        `forbids` says why a config that is good in itself cannot be used on this node, and is told whether that text was refused
        before. Before there is a config in force, what is wrong with the text raises ConfigError, and a file that is not there is
        waited for. Afterwards both leave the last good config.
        """
        try:
            text = self.source.read()
            if text == self._seen and not force:
                return False
            again = self.awaits_node and text == self._seen
            self._seen, self.awaits_node = text, False
            if text.missing:
                self._report_missing(text)
                return False
            return self._consider(text, lambda loaded: forbids(loaded, again))
        except ConfigError as error:
            if self.loaded is None:
                raise
            self._refuse(error.problems)
            return False

    def withdraw(self, problems: Sequence[Problem], is_better: Callable[[Loaded], bool]) -> bool:
        """Go back to the last config before that `is_better`, since the one in force, let in unseen, does not fit the node.

        False if there is none, or if what is in force has been served.
        """
        better = next((number for number in reversed(range(len(self._untried))) if is_better(self._untried[number])), None)
        if better is None:
            return False
        self.loaded = self._untried[better]
        del self._untried[better:]
        self.awaits_node = True
        self._refuse(problems)
        return True

    def note_served(self, loaded: Loaded) -> None:
        """That config has been served: while it is in force it is not withdrawn any more."""
        if loaded is self.loaded:
            self._untried.clear()

    def _consider(self, text: SourceText, forbids: Callable[[Loaded], Sequence[Problem]]) -> bool:
        loaded = load(text.text, file=text.path, environment=self._environment, flags=self._flags)
        is_in_force = self.loaded is not None and loaded.config.model_dump() == self.loaded.config.model_dump()
        forbidden = () if is_in_force else forbids(loaded)
        if forbidden and self.loaded is not None:
            self.awaits_node = True
            self._refuse(forbidden)
            return False
        self._refused, self.problems = None, loaded.problems
        if is_in_force:
            self.loaded = loaded  # the same, but its values may stand at other places of the file
            self._logger.info("config.unchanged", config_hash=loaded.hash[:12], path=text.path)
            return False
        previous, self.loaded = self.loaded, loaded
        self._untried += [previous] if previous else []
        self._logger.info(
            "config.loaded",
            path=text.path,
            config_hash=loaded.hash[:12],
            previous_config_hash=previous.hash[:12] if previous else None,
            settings=stated_settings(loaded.config),
        )
        for problem in loaded.problems:
            log_problem(self._logger, problem)
        return True

    def _refuse(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        text = "\n".join(map(str, problems))
        if text == self._refused:
            return
        self._refused = text
        in_force = self.loaded.hash[:12] if self.loaded else None
        self._logger.error("config.refused", problems=len(problems), in_force=in_force)
        for problem in problems:
            log_problem(self._logger, problem)

    def _report_missing(self, text: SourceText) -> None:
        if self.loaded is None:
            self._logger.warning("config.awaited", path=text.missing)
        else:
            self._logger.warning("config.vanished", path=text.missing, in_force=self.loaded.hash[:12])
