"""Looks at each GPU's condition, at an interval and at once when an event asks for it, and at driver calls that hang."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from device_plugin.errors import CallHangs, DriverError, PluginError
from device_plugin.supervisor.discovery import readable_gpus
from device_plugin.supervisor.wakeup import Wakeup

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from device_plugin.hardware.model import Inventory
    from device_plugin.logs import Logger
    from device_plugin.supervisor.hardware import Hardware
    from device_plugin.supervisor.health_keeper import HealthKeeper

HANGING_POLL_SECONDS = 1.0


class AccessLost(PluginError):
    """The driver refuses us every GPU: this container's device permissions are gone, and only a fresh one gets them back."""


class Prober:
    """Probes GPUs and hands what is found to the HealthKeeper."""

    def __init__(
        self,
        hardware: Hardware,
        health: HealthKeeper,
        *,
        inventory: Callable[[], Inventory | None],
        interval_seconds: Callable[[], float],
        driver_failed: Callable[[], None],
        call_returned: Callable[[], None],
        logger: Logger,
    ) -> None:
        self._hardware, self._health, self._logger = hardware, health, logger
        self._inventory, self._interval_seconds = inventory, interval_seconds
        self._driver_failed, self._call_returned = driver_failed, call_returned
        self._told: dict[str, str] = {}
        self._wanted: set[str] = set()
        self._wakeup = Wakeup()

    def want(self, gpu_uuids: Sequence[str]) -> None:
        """Look at these GPUs at once; with none of them, no more than reckon anew when the next round is due."""
        self._wanted.update(gpu_uuids)
        self._wakeup.set()

    async def look(self, gpu_uuids: Iterable[str]) -> bool:
        """Probe these GPUs, in order. False if the driver was away."""
        for uuid in sorted(gpu_uuids):
            try:
                probe = await self._hardware.probe(uuid)
            except CallHangs as error:
                self._tell("probe.hung", uuid, str(error))
                self._health.note_hanging(self._hardware.hanging())
                continue
            except DriverError as error:
                self._tell("probe.failed", uuid, str(error))
                self._driver_failed()
                return False
            self._told.pop(uuid, None)
            self._health.note_probe(probe)
        return True

    async def look_at_all(self) -> bool:
        """Probe every GPU that the driver described, whoever wants it. False if the driver was away."""
        self._wanted.clear()
        inventory = self._inventory()
        return await self.look(gpu.uuid for gpu in readable_gpus(inventory)) if inventory else False

    async def run(self) -> None:
        """Probe, for ever. Raises AccessLost."""
        loop = asyncio.get_running_loop()
        last_round = loop.time()
        while True:
            await self._wakeup.wait(max(0.0, last_round + self._interval_seconds() - loop.time()))
            if loop.time() >= last_round + self._interval_seconds():
                await self.look_at_all()
                last_round = loop.time()
            else:
                wanted, self._wanted = self._wanted, set()
                await self.look(wanted)
            self._health.tick()
            if self._health.has_lost_access:
                raise AccessLost(
                    "the driver refuses access to every GPU: the container's device permissions are gone, as after `systemctl "
                    "daemon-reload`; ending, since a fresh container gets them back"
                )

    async def run_hanging(self) -> None:
        """Notice driver calls that hang and those that return, for ever."""
        before: Mapping[str, str] = {}
        while True:
            await asyncio.sleep(HANGING_POLL_SECONDS)
            now = self._hardware.hanging()
            self._health.note_hanging(now)
            self._health.tick()
            if before.keys() - now.keys():
                self._call_returned()
            before = now

    def _tell(self, event: str, gpu_uuid: str, reason: str) -> None:
        """Say once what is the same probe after probe."""
        if self._told.get(gpu_uuid) != reason:
            self._told[gpu_uuid] = reason
            self._logger.warning(event, gpu=gpu_uuid, reason=reason)
