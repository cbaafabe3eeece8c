"""The node's health as it is known now: the one HealthState, moved on by events, probes and discovery, each step logged."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from device_plugin.health.cause import CauseKind, ClearedBy
from device_plugin.health.events import on_event, on_policy
from device_plugin.health.node import (
    on_boot,
    on_call_hanging,
    on_call_returned,
    on_driver_back,
    on_driver_lost,
    on_events_lost,
    on_events_restored,
    on_injection,
    on_inventory,
)
from device_plugin.health.policy import XidPolicy, policy_from
from device_plugin.health.probes import has_lost_access, on_probe, on_rules, on_tick
from device_plugin.health.state import EVERY_GPU, HealthState, RecoveryRules, TransitionKind, recovery_rules_from

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from device_plugin.config.model import Health
    from device_plugin.hardware.driver import Event, Probe
    from device_plugin.hardware.model import Inventory
    from device_plugin.health.cause import Cause
    from device_plugin.health.state import Change
    from device_plugin.logs import Logger
    from device_plugin.supervisor.clock import SteadyClock


UNPLACED_SECONDS = 60.0  # the hardware is read again within some seconds of an event


class HealthKeeper:
    """Holds the HealthState. `changed` is called after every transition, `probe_wanted` when GPUs should be looked at at once."""

    def __init__(
        self,
        state: HealthState,
        clock: SteadyClock,
        *,
        changed: Callable[[], None],
        probe_wanted: Callable[[Sequence[str]], None],
        logger: Logger,
    ) -> None:
        self.state = state
        self.xids_seen: Counter[int] = Counter()
        self._clock, self._changed, self._probe_wanted, self._logger = clock, changed, probe_wanted, logger
        self._policy, self._rules = XidPolicy(), RecoveryRules()
        self._settings: Health | None = None
        self._hanging: dict[str, str] = {}
        self._unplaced: dict[Event, float] = {}  # of MIG devices not known yet, and when they came

    @property
    def causes(self) -> tuple[Cause, ...]:
        return self.state.causes

    @property
    def has_lost_access(self) -> bool:
        """Whether this container was shut out of every GPU, which only a fresh container cures."""
        return has_lost_access(self.state)

    @property
    def awaits_return(self) -> bool:
        """Whether a GPU is missed or waits for a reset: then only a re-initialised driver shows that it is back."""
        return any(cause.cleared_by is ClearedBy.RESET or cause.kind is CauseKind.GPU_LOST for cause in self.state.causes)

    @property
    def driver_is_away(self) -> bool:
        return any(cause.kind is CauseKind.DRIVER for cause in self.state.causes)

    def use(self, settings: Health) -> None:
        """Follow these settings from now on."""
        if settings == self._settings:
            return
        self._settings = settings
        self._policy, self._rules = policy_from(settings), recovery_rules_from(settings)
        self._logger.info("health.policy_set", **self._policy.summary())
        self._take(on_policy(self.state, self._policy, self._clock.now()))
        self._take(on_rules(self.state, self._clock.now()))

    def note_boot(self, boot_id: str | None) -> None:
        self._take(on_boot(self.state, boot_id, self._clock.now()))

    def note_inventory(self, inventory: Inventory) -> None:
        """The hardware was read: the driver is there, and these GPUs are."""
        now = self._clock.now()
        self._take(on_driver_back(self.state, now))
        self._take(on_inventory(self.state, inventory, now))
        self._unplaced = {event: since for event, since in self._unplaced.items() if now - since < UNPLACED_SECONDS}
        for event in tuple(self._unplaced):
            change = on_event(self.state, event, inventory, self._policy, now)
            if not change.is_unplaced:
                del self._unplaced[event]
                self._take(change)

    def note_driver_lost(self, reason: str) -> None:
        self._take(on_driver_lost(self.state, reason, self._clock.now()))

    def note_events(self, events: Sequence[Event], inventory: Inventory) -> None:
        """A batch of XIDs. Equal ones are one: a burst of thousands costs one step."""
        for event, count in Counter(events).items():
            self.xids_seen[event.xid] += count
            change = on_event(self.state, event, inventory, self._policy, self._clock.now())
            if change.is_unplaced:
                self._unplaced[event] = self._clock.now()
            self._logger.warning(
                "xid.received",
                xid=event.xid,
                gpu=event.gpu_uuid,
                gpu_instance=event.gpu_instance_id,
                compute_instance=event.compute_instance_id,
                count=count,
                action=change.verdict.action.value if change.verdict else None,
                policy=change.verdict.reason if change.verdict else None,
                note=change.note,
            )
            self._take(change)

    def note_watch(self, unwatched: Mapping[str, str]) -> None:
        """What became of the watch for events: GPUs without one, with the reason; `*` means that nobody watches at all."""
        now = self._clock.now()
        if EVERY_GPU in unwatched:
            self._take(on_events_lost(self.state, unwatched[EVERY_GPU], now))
        else:
            self._take(on_events_restored(self.state, now, unwatched))

    def note_probe(self, probe: Probe) -> None:
        self._take(on_probe(self.state, probe, self._rules, self._clock.now()))

    def note_hanging(self, hanging: Mapping[str, str]) -> None:
        """Which driver calls hang now, by the GPU they are about."""
        now = self._clock.now()
        for gpu in sorted(self._hanging.keys() - hanging.keys()):
            self._take(on_call_returned(self.state, None if gpu == EVERY_GPU else gpu, now))
        for gpu in sorted(hanging.keys() - self._hanging.keys()):
            self._take(on_call_hanging(self.state, None if gpu == EVERY_GPU else gpu, hanging[gpu], now))
        self._hanging = dict(hanging)

    def note_injection(self, reasons: Mapping[tuple[str, str | None], str]) -> None:
        """GPUs and MIG devices that no container can be given now, with the reason."""
        self._take(on_injection(self.state, reasons, self._clock.now()))

    def tick(self) -> None:
        """Time has gone by."""
        self._take(on_tick(self.state, self._rules, self._clock.now()))

    def _take(self, change: Change) -> None:
        self.state = change.state
        for transition in change.transitions:
            cause = transition.cause
            is_new = transition.kind is TransitionKind.ADDED
            log = self._logger.warning if is_new else self._logger.info
            log(
                "cause.added" if is_new else "cause.cleared",
                cause=cause.kind.value,
                key=cause.key,
                gpu=cause.gpu_uuid,
                hardware=cause.hardware_id,
                detail=cause.detail,
                cleared_by=cause.cleared_by.value,
                reason=transition.reason,
            )
        if change.wants_probe:
            self._probe_wanted(change.wants_probe)
        if change.transitions:
            self._changed()
