"""Keeps the Inventory current: looks again at an interval and for a reason, and lives through a driver that is away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from device_plugin.errors import CallHangs, DriverError, PluginError
from device_plugin.supervisor.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable

    from device_plugin.config.model import Config
    from device_plugin.hardware.model import Inventory
    from device_plugin.hardware.sysfs import Host
    from device_plugin.logs import Logger
    from device_plugin.supervisor.hardware import Hardware
    from device_plugin.supervisor.health_keeper import HealthKeeper

FIRST_RETRY_SECONDS, LAST_RETRY_SECONDS = 1.0, 30.0


class DriverAway(PluginError):
    """The driver has been away for too long; a fresh container may find it where this one does not."""


class Discoverer:
    """Reads the hardware. `changed` is called after each look that found the driver, and when it is found to be away."""

    def __init__(
        self,
        hardware: Hardware,
        host: Host,
        health: HealthKeeper,
        *,
        config: Callable[[], Config],
        changed: Callable[[], None],
        logger: Logger,
    ) -> None:
        self.inventory: Inventory | None = None
        self._hardware, self._host, self._health = hardware, host, health
        self._config, self._changed, self._logger = config, changed, logger
        self._wakeup = Wakeup()
        self._fresh = True
        self._seen_on_bus: object = None
        self._away: str | None = None
        self._away_since: float | None = None

    def look_soon(self, *, fresh: bool) -> None:
        """Look at the next opportunity; `fresh`: with the driver re-initialised."""
        self._fresh |= fresh
        self._wakeup.set()

    async def first(self) -> Inventory:
        """The first Inventory with a GPU in it.

        Raises DriverError if there is none and the config says to fail then; else tries again until there is one.
        """
        retry_seconds = FIRST_RETRY_SECONDS
        while not await self._look():
            if self._config().flags.fail_on_init_error:
                raise DriverError("discovery", self._away or "no GPU found")
            await self._wakeup.wait(retry_seconds)
            retry_seconds = min(retry_seconds * 2, LAST_RETRY_SECONDS)
        assert self.inventory is not None
        return self.inventory

    async def run(self) -> None:
        """Look again and again, for ever. Raises DriverAway after the time that the config allows."""
        loop = asyncio.get_running_loop()
        retry_seconds = FIRST_RETRY_SECONDS
        while True:
            interval = self._config().reconcile.rediscovery_interval
            await self._wakeup.wait(interval if self._away is None else min(retry_seconds, interval))
            if await self._look():
                retry_seconds, self._away_since = FIRST_RETRY_SECONDS, None
                continue
            retry_seconds = min(retry_seconds * 2, LAST_RETRY_SECONDS)
            self._away_since = loop.time() if self._away_since is None else self._away_since
            allowed = self._config().reconcile.exit_after_driver_loss
            if allowed and loop.time() - self._away_since >= allowed:
                raise DriverAway(f"the driver has been away for {allowed:.0f} s ({self._away}); ending, to start afresh")

    async def _look(self) -> bool:
        """One look. Whether there is a driver with at least one GPU."""
        on_bus = (self._host.nvidia_gpus(), self._host.driver_version())
        fresh = self._fresh or self._away is not None or on_bus != self._seen_on_bus or self._health.awaits_return
        self._fresh, self._seen_on_bus = False, on_bus
        try:
            inventory = await self._hardware.discover(fresh=fresh)
        except CallHangs as error:
            # One GPU's call that hangs is that GPU's cause, not the driver's end; the rest is read next time, without it.
            self._logger.warning("discovery.hung", reason=str(error))
            self._fresh = True
            if self.inventory is None:
                self._note_away(str(error))
            return self.inventory is not None
        except DriverError as error:
            self._note_away(str(error))
            return False
        if not inventory.gpus and not inventory.unreadable:
            self._note_away("the driver knows no GPU")
            self._take(inventory)
            return False
        if self._away is not None:
            self._logger.info("driver.returned", gpus=len(inventory.gpus))
            self._away = None
        self._health.note_inventory(inventory)
        self._take(inventory)
        return True

    def _take(self, inventory: Inventory) -> None:
        if inventory != self.inventory:
            self._logger.info(
                "hardware.discovered",
                gpus=len(inventory.gpus),
                unreadable=[f"{gpu.index}: {gpu.reason}" for gpu in inventory.unreadable],
                mig_devices=sum(len(gpu.mig_devices) for gpu in inventory.gpus),
                driver=inventory.driver_version,
                platform=inventory.platform.value,
                simulated=inventory.simulated,
            )
            self.inventory = inventory
            self._hardware.watch([gpu.uuid for gpu in inventory.gpus])
        self._changed()

    def _note_away(self, reason: str) -> None:
        if reason != self._away:
            self._logger.warning("driver.away", reason=reason)
        self._away = reason
        self._health.note_driver_lost(reason)
