"""One idea: compute what should be served, compare it with what is, change only the difference.

Start-up, a config edit, a repartitioned GPU, a lost GPU and time gone by are this one path with different triggers.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from device_plugin.allocation.model import Injection
from device_plugin.errors import ConfigError
from device_plugin.health.cause import CauseKind
from device_plugin.kubelet.snapshot import Snapshot
from device_plugin.logs import log_problem
from device_plugin.serving.serve import next_change_at, serve, was_emptied
from device_plugin.sharing.plan import kept_shape, plan
from device_plugin.supervisor.decisions import delays_start, fit, forbids_reload, forbids_start
from device_plugin.supervisor.discovery import without_kept
from device_plugin.supervisor.injection import Prepared, give_up_cdi, prepare
from device_plugin.supervisor.report import log_changes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from device_plugin.config.load import Loaded
    from device_plugin.config.model import Config
    from device_plugin.hardware.model import Inventory
    from device_plugin.logs import Logger
    from device_plugin.problems import Problem
    from device_plugin.serving.served import Served
    from device_plugin.sharing.offer import Offer
    from device_plugin.supervisor.clock import SteadyClock
    from device_plugin.supervisor.decisions import Fit
    from device_plugin.supervisor.endpoints import Endpoints
    from device_plugin.supervisor.health_keeper import HealthKeeper
    from device_plugin.supervisor.holders import Holders
    from device_plugin.supervisor.settings import Settings
    from device_plugin.supervisor.threads import WorkThread

PREPARE_SECONDS = 10.0  # reading a driver root and writing small files takes some 10 ms
ANSWERS_KEPT_SECONDS = 600.0
OWED_POLL_SECONDS = 0.1


class Reconciler:
    """Brings what kubelet is shown to what the config, the hardware and its health ask for."""

    def __init__(
        self,
        settings: Settings,
        endpoints: Endpoints,
        holders: Holders,
        health: HealthKeeper,
        files: WorkThread[None],
        clock: SteadyClock,
        *,
        logger: Logger,
    ) -> None:
        self.served: Served | None = None  # or what an earlier process showed
        self.offer: Offer | None = None
        self._settings, self._endpoints, self._holders, self._health = settings, endpoints, holders, health
        self._files, self._clock, self._logger = files, clock, logger
        self._shown: tuple[Loaded, Inventory] | None = None  # what `offer` was made from
        self._answered: dict[tuple[str, str], float] = {}
        self._leaving: frozenset[tuple[str, str]] = frozenset()  # resource and ID of what is shown as leaving
        self._prepared = Prepared(Injection())
        self._prepared_for: object = None
        self._told: set[Problem] = set()
        self._intended: Offer | None = None  # what the config in force makes of the node, served or not yet

    @property
    def has_started(self) -> bool:
        """Whether anything has been served by this process."""
        return self.offer is not None

    def note_answered(self, resource: str, ids: Sequence[str]) -> bool:
        """An answer that names these IDs is about to go to kubelet, which will look them up in its list.

        Kubelet may have chosen a leaving device a moment ago, before it had the list that shows it leaving. What stands on the same
        hardware by now must then not be given away beside it, so the new list goes out before this answer does. Returns
        whether that was so.
        """
        named = [(resource, device_id) for device_id in ids]
        self._answered.update(dict.fromkeys(named, self._clock.now()))
        if self._shown is None or self._leaving.isdisjoint(named):
            return False
        loaded, inventory = self._shown
        self._endpoints.show(self._serve(loaded, inventory))
        return True

    def forbids(self, loaded: Loaded, inventory: Inventory | None, *, again: bool) -> Sequence[Problem]:
        """Why an edit, perhaps one refused before, cannot come into force on this node. Nothing forbids one before it is known."""
        if inventory is None or self._intended is None:
            return ()
        return forbids_reload(self._plan(inventory, loaded.config), None if again else self._intended)

    def fit(self, loaded: Loaded, inventory: Inventory) -> Fit:
        """How well a config fits this node."""
        return fit(self._plan(inventory, loaded.config))

    async def reconcile(self, loaded: Loaded, inventory: Inventory) -> None:
        """Serve what should be served, at the start once nothing is `awaited`. Raises ConfigError where only an edit helps."""
        config = loaded.config
        offer = self._intended = self._plan(inventory, config)
        if not self.has_started and (forbidden := forbids_start(offer)):
            raise ConfigError(forbidden)
        if self.awaited:
            return
        await self._prepare(offer, inventory, config)
        self._report_problems((*offer.problems, *self._prepared.problems))
        self.offer, self._shown = offer, (loaded, inventory)
        await self._endpoints.apply(self._serve(loaded, inventory))
        now = self._clock.now()
        self._answered = {key: at for key, at in self._answered.items() if now - at < ANSWERS_KEPT_SECONDS}

    @property
    def awaited(self) -> tuple[Problem, ...]:
        """What about the node keeps the start waiting."""
        return () if self.has_started or self._intended is None else delays_start(self._intended)

    def next_change_in(self, grace_seconds: float) -> float | None:
        """Seconds until time alone changes what is served, or a socket that could not be made is to be tried; None if neither."""
        if self.served is None or not self.has_started:
            return None
        now = self._clock.now()
        holders = self._holders
        owed = self._owed()
        at = next_change_at(self.served, self._answered, holders.held, now, grace_seconds, silent=holders.are_silent, owed=owed)
        waits = (
            None if at is None else max(0.0, at - now),
            self._endpoints.retry_after_seconds,
            OWED_POLL_SECONDS if owed else None,
        )
        return min((wait for wait in waits if wait is not None), default=None)

    @property
    def awaits_release(self) -> bool:
        """Whether something changes once a pod lets go of a device."""
        return self.served is not None and any(
            device.leaving_since is not None or any(cause.kind is CauseKind.HELD for cause in device.causes)
            for resource in self.served.resources
            for device in resource.devices
        )

    def _serve(self, loaded: Loaded, inventory: Inventory) -> dict[str, Snapshot]:
        """Work out what is served now, from the Offer in force; what each resource answers from."""
        assert self.offer is not None, "nothing is offered yet"
        before = self.served
        self.served = serve(
            self.offer,
            before,
            self._health.causes,
            inventory=inventory,
            held=self._holders.held,
            answered=self._answered,
            now=self._clock.now(),
            grace_seconds=loaded.config.reconcile.leaving_grace,
            silent=self._holders.are_silent,
            owed=self._owed(),
        )
        self._leaving = frozenset(
            (resource.name, device.device.id)
            for resource in self.served.resources
            for device in resource.devices
            if device.leaving_since is not None
        )
        log_changes(self._logger, before, self.served, config_hash=loaded.hash[:12])
        refuse = loaded.config.health.refuse_unhealthy_restart
        return {
            resource.name: Snapshot(resource, inventory.links, self._prepared.injection, refuse_unhealthy_restart=refuse)
            for resource in self.served.resources
        }

    def _owed(self) -> frozenset[str]:
        """The resources that close and whose last, empty list kubelet has yet to be given."""
        resources = self.served.resources if self.served is not None else ()
        return frozenset(resource.name for resource in resources if was_emptied(resource) and self._endpoints.owes(resource.name))

    def _plan(self, inventory: Inventory, config: Config) -> Offer:
        if self.offer is None or self._shown is None:
            return plan(without_kept(inventory), config)
        loaded, shown_inventory = self._shown
        if config is loaded.config and inventory is shown_inventory:
            return self.offer
        return plan(without_kept(inventory), config, keep_shape=kept_shape(shown_inventory, self.offer))

    def _report_problems(self, problems: Sequence[Problem]) -> None:
        for problem in problems:
            if problem not in self._told:
                log_problem(self._logger, problem)
        self._told = set(problems)

    async def _prepare(self, offer: Offer, inventory: Inventory, config: Config) -> None:
        """Have the node ready for the answers before kubelet hears of the devices: it may replay an answer at once."""
        lost = {cause.gpu_uuid for cause in self._health.causes if cause.kind is CauseKind.GPU_LOST}
        devices = {device for resource in offer.resources for device in resource.devices if device.gpu_uuid not in lost}
        if self.served is not None:
            devices |= {served.device for resource in self.served.resources for served in resource.devices if served.present}
        held = self._holders.held
        wanted = (inventory, config, frozenset(devices), held)
        if wanted == self._prepared_for:
            return
        in_order = sorted(devices, key=lambda device: device.id)
        work = self._files.submit(lambda _: prepare(inventory, config, self._settings, in_order, held))
        try:
            async with asyncio.timeout(PREPARE_SECONDS):  # not `wait_for`: before Python 3.12 it forgets a cancellation
                self._prepared = await work
        except Exception as error:
            self._logger.exception("injection.failed")
            self._prepared = give_up_cdi(inventory, config, repr(error))
        self._prepared_for = None if self._prepared.impossible else wanted  # a failure is tried again each time
        self._health.note_injection(self._prepared.impossible)
