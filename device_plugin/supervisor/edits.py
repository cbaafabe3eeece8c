"""Edits of the config while the plugin runs: each is judged on this node's hardware, and taken back if it was let in unseen."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from device_plugin.errors import ConfigError
from device_plugin.supervisor.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from device_plugin.config.load import Loaded
    from device_plugin.config.model import Config
    from device_plugin.hardware.model import Inventory
    from device_plugin.logs import Logger
    from device_plugin.problems import Problem
    from device_plugin.supervisor.configuration import ConfigKeeper
    from device_plugin.supervisor.reconcile import Reconciler

HINT_SETTLES_SECONDS = 0.1  # one swap of a ConfigMap makes some eight notifications


class Edits:
    """Decides which config is in force.

    `inventory` is the hardware now, None while it is not known. `about_to_change` is awaited before another config is served,
    `changed` called when another one is in force.
    """

    def __init__(
        self,
        keeper: ConfigKeeper,
        reconciler: Reconciler,
        *,
        poll_seconds: float,
        inventory: Callable[[], Inventory | None],
        about_to_change: Callable[[], Awaitable[None]],
        changed: Callable[[], None],
        logger: Logger,
    ) -> None:
        self._keeper, self._reconciler, self._poll_seconds, self._logger = keeper, reconciler, poll_seconds, logger
        self._inventory, self._about_to_change, self._changed = inventory, about_to_change, changed
        self._read_now = Wakeup()
        self._forced = False
        self._judged_on: Inventory | None = None  # the hardware that the edit refused last does not fit
        self._awaited: tuple[Problem, ...] = ()

    @property
    def loaded(self) -> Loaded:
        """The config in force, with where it came from."""
        loaded = self._keeper.loaded
        assert loaded is not None, "asked for the config before there was one"
        return loaded

    def config(self) -> Config:
        """The config in force."""
        return self.loaded.config

    @property
    def watched_directory(self) -> str:
        """The directory in which edits show, empty where there is nothing to watch."""
        return self._keeper.source.watched_directory

    def read_soon(self, *, forced: bool = False) -> None:
        """Read the source without waiting for the next poll; if `forced`, judge it anew even if it is the same."""
        self._forced = self._forced or forced
        self._read_now.set()

    def look(self) -> bool:
        """Read the source now, before anything is known of the node; whether another config is in force. Raises ConfigError."""
        return self._keeper.look(_nothing_forbids)

    async def first(self, begin_to_wait: Callable[[], None]) -> Loaded:
        """The first config that can be used; waits for a file that is not there yet. Raises ConfigError."""
        while self._keeper.loaded is None and not self.look():
            begin_to_wait()
            await self._read_now.wait(self._poll_seconds)
        return self.loaded

    async def follow(self, before_look: Callable[[], None]) -> None:
        """Read the source at an interval, and soon after a hint, for ever."""
        while True:
            if await self._read_now.wait(self._poll_seconds):
                await asyncio.sleep(HINT_SETTLES_SECONDS)
            before_look()
            forced, self._forced = self._forced, False
            is_another = self._keeper.look(self._forbids, force=forced)
            if self._keeper.awaits_node:
                self._judged_on = self._inventory()
            if is_another:
                await self._about_to_change()
                self._changed()

    def note_hardware(self) -> None:
        """The hardware is another: an edit that was refused because of it may fit now."""
        if self._keeper.awaits_node and self._inventory() is not self._judged_on:
            self.read_soon(forced=True)

    async def reconcile(self, inventory: Inventory) -> None:
        """Reconcile; an edit that was let in before the node was known is taken back if a config before it fits the node better.

        Raises ConfigError if none does and only an edit helps.
        """
        loaded = self.loaded
        try:
            await self._reconciler.reconcile(loaded, inventory)
        except ConfigError as error:
            if not self._take_back(error.problems, inventory):
                raise
            return
        awaited = self._reconciler.awaited
        if not awaited:
            self._keeper.note_served(loaded)
        elif self._take_back(awaited, inventory):
            return
        elif awaited != self._awaited:
            self._logger.warning("plugin.awaits_node", reasons=[problem.message for problem in awaited])
        self._awaited = awaited

    def _forbids(self, loaded: Loaded, again: bool) -> Sequence[Problem]:
        return self._reconciler.forbids(loaded, self._inventory(), again=again)

    def _take_back(self, problems: Sequence[Problem], inventory: Inventory) -> bool:
        fit = self._reconciler.fit(self.loaded, inventory)
        if not self._keeper.withdraw(problems, lambda earlier: self._reconciler.fit(earlier, inventory) < fit):
            return False
        self._judged_on = inventory
        self._changed()
        return True


def _nothing_forbids(_: Loaded, _again: bool) -> Sequence[Problem]:
    return ()
