"""Keeps the Inventory current: looks again at an interval and for a reason, and lives through a driver that is away."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from device_plugin.errors import CallHangs, DriverError, NotServedHere, PluginError, VersionMismatch
from device_plugin.supervisor.discovery import keep_last_known, readable_gpus
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
SPACING_SECONDS = 1.0  # between two looks: a storm of events is not to become a storm of driver calls


class DriverAway(PluginError):
    """The driver has been away for too long; a fresh container may find it where this one does not."""


class Discoverer:
    """Reads the hardware. `changed` is called after each look that found the driver; that it is away is a cause."""

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
        self._looked_at = 0.0
        self._seen_on_bus: object = None
        self._away: str | None = None
        self._hung: str | None = None
        self._has_wrong_library = False
        self._is_unsupported = False
        self._away_since: float | None = None

    def look_soon(self, *, fresh: bool) -> None:
        """Look at the next opportunity; `fresh`: with the driver re-initialised."""
        self._fresh |= fresh
        self._wakeup.set()

    async def first(self) -> Inventory:
        """The first Inventory with a GPU in it.

        Raises DriverError if there is none and the config says to fail then; else tries again until there is one, or raises
        DriverAway where that is of no use: a library that does not go with the driver stays loaded as long as the process lives.
        On a platform that is not supported it waits whatever the config says: a fresh start would find the same.
        """
        loop = asyncio.get_running_loop()
        retry_seconds, began = FIRST_RETRY_SECONDS, loop.time()
        while not await self._look(due=True):
            if self._config().flags.fail_on_init_error and not self._is_unsupported:
                reason = self._away or "no GPU found"
                raise DriverError("discovery", f"{reason} (flags.failOnInitError: false waits for it instead)")
            if self._has_wrong_library:
                self._end_after(began)
            await self._wakeup.wait(retry_seconds)
            retry_seconds = min(retry_seconds * 2, LAST_RETRY_SECONDS)
        assert self.inventory is not None
        return self.inventory

    async def run(self) -> None:
        """Look again and again, for ever. Raises DriverAway after the time that the config allows."""
        loop = asyncio.get_running_loop()
        retry_seconds, looked_at = FIRST_RETRY_SECONDS, loop.time()
        while True:
            interval = self._config().reconcile.rediscovery_interval
            due_at = looked_at + (interval if self._away is None else min(retry_seconds, interval))
            if await self._wakeup.wait(max(0.0, due_at - loop.time())):
                await asyncio.sleep(max(0.0, self._looked_at + SPACING_SECONDS - loop.time()))
            is_due = loop.time() >= due_at
            looked_at = loop.time() if is_due else looked_at
            if await self._look(due=is_due):
                retry_seconds, self._away_since = FIRST_RETRY_SECONDS, None
                continue
            retry_seconds = min(retry_seconds * 2, LAST_RETRY_SECONDS)
            self._away_since = loop.time() if self._away_since is None else self._away_since
            self._end_after(self._away_since)

    def _end_after(self, away_since: float) -> None:
        allowed = self._config().reconcile.exit_after_driver_loss
        if allowed and asyncio.get_running_loop().time() - away_since >= allowed:
            raise DriverAway(f"the driver has been away for {allowed:.0f} s ({self._away}); ending, to start afresh")

    async def _look(self, *, due: bool) -> bool:
        """One look, because one is due or because of a hint. Whether there is a driver with at least one GPU.

        Re-initialising interrupts the watch for events, so a mere hint, which an XID gives, is no reason for it.
        """
        self._looked_at = asyncio.get_running_loop().time()
        on_bus = (self._host.nvidia_gpus(), self._host.driver_version())
        misses = self._health.awaits_return or (self.inventory is not None and len(on_bus[0]) > _counted(self.inventory))
        fresh = self._fresh or self._away is not None or on_bus != self._seen_on_bus or (due and misses)
        self._fresh, self._seen_on_bus = False, on_bus
        try:
            inventory = await self._hardware.discover(fresh=fresh)
            if not fresh and _unreadable(inventory) - _unreadable(self.inventory):
                # It may be this session with the driver that is broken, not the GPU (NVIDIA/k8s-device-plugin#403).
                inventory = await self._hardware.discover(fresh=True)
        except CallHangs as error:
            # No single GPU's call, so nothing is known to be gone; whatever hangs is a cause already.
            if str(error) != self._hung:
                self._logger.warning("discovery.hung", reason=str(error))
            self._fresh, self._hung = True, str(error)
            if self.inventory is None:
                self._note_away(str(error))
            return self.inventory is not None
        except DriverError as error:
            self._has_wrong_library = isinstance(error, VersionMismatch)
            self._is_unsupported = isinstance(error, NotServedHere)
            self._note_away(str(error))
            return False
        self._hung = None
        if not inventory.gpus and not inventory.unreadable:
            self._note_away("the driver knows no GPU")
            return False
        if self._away is not None:
            self._logger.info("driver.returned", gpus=len(inventory.gpus))
            self._away = None
        inventory = keep_last_known(inventory, self.inventory)
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
            self._hardware.watch([gpu.uuid for gpu in readable_gpus(inventory)])
        self._changed()

    def _note_away(self, reason: str) -> None:
        if reason != self._away:
            self._logger.warning("driver.away", reason=reason)
        self._away = reason
        self._health.note_driver_lost(reason)


def _unreadable(inventory: Inventory | None) -> set[int]:
    return {gpu.index for gpu in inventory.unreadable} if inventory else set()


def _counted(inventory: Inventory) -> int:
    """How many GPUs the driver counts; one on the bus that it does not count may be bound to it later."""
    return len({gpu.index for gpu in inventory.gpus} | _unreadable(inventory) | set(inventory.skipped))
