"""The HealthState: all causes on a node and the evidence about them. A frozen value, changed only by the functions of this package.

Each of them takes a state, what happened, and the time (Unix seconds), and returns a Change.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from device_plugin.config.model import Health
    from device_plugin.health.cause import Cause
    from device_plugin.health.policy import XidVerdict

EVERY_GPU = "*"
"""The `gpu_uuid` of a cause that hits every GPU there is and will be."""


@record
class RecoveryRules:
    """When a cause may be cleared and a verdict counts as stale; seconds.

    `recover_without_evidence`: where the driver has no recovery action, clean probes alone are evidence.
    """

    recover_after_seconds: float = 300.0
    recover_without_evidence: bool = False
    verdict_lasts_seconds: float = 150.0


def recovery_rules_from(health: Health) -> RecoveryRules:
    """The rules that the config's block `health` asks for. A verdict lasts for five probe intervals, and two minutes at least."""
    return RecoveryRules(health.recover_after, health.recover_without_evidence, max(5 * health.probe_interval, 120.0))


@record
class SeenXid:
    """An XID that made a cause, and when it came last."""

    xid: int
    last_at: float


@record
class GpuEvidence:
    """What is known of one GPU beside its causes. Times are Unix seconds.

    `failed_probes` counts those in a row. `clean_since` is the first of an unbroken row of clean probes since the last XID that
    counts, None without one. `probed_at` is the last probe that answered at all. `returned` is set when the GPU was gone and is
    back, until a clean probe. `asked` holds the XIDs on which the driver has yet to say its recovery action, with their times.
    `denied` says that the driver refused the last probe everything that it asked for.
    """

    uuid: str
    failed_probes: int = 0
    clean_since: float | None = None
    probed_at: float | None = None
    returned: bool = False
    asked: tuple[tuple[int, float], ...] = ()
    xids: tuple[SeenXid, ...] = ()
    denied: bool = False


@record
class HealthState:
    """All causes, in the order of their places, and the evidence, by UUID. `boot_id` is the boot that they belong to."""

    causes: tuple[Cause, ...] = ()
    gpus: tuple[GpuEvidence, ...] = ()
    boot_id: str | None = None

    def gpu(self, uuid: str) -> GpuEvidence | None:
        """The evidence about that GPU, if it is known."""
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    def causes_of(self, gpu_uuid: str) -> tuple[Cause, ...]:
        """The causes on that GPU, those on one of its MIG devices and those on every GPU included."""
        return tuple(cause for cause in self.causes if cause.gpu_uuid in (gpu_uuid, EVERY_GPU))


class TransitionKind(StrEnum):
    """What became of a cause."""

    ADDED = "added"
    CLEARED = "cleared"


@record
class Transition:
    """One cause added or cleared, why, and when (Unix seconds): for the log and the metrics."""

    kind: TransitionKind
    cause: Cause
    reason: str
    at: float


@record
class Change:
    """What a function of this package made of a state.

    `wants_probe` names GPUs whose condition should be read at once, ascending. `verdict` is what the policy said about an event.
    `note` says why an event hit nothing; `is_unplaced` that it named a MIG device which the inventory does not have.
    """

    state: HealthState
    transitions: tuple[Transition, ...] = ()
    wants_probe: tuple[str, ...] = ()
    verdict: XidVerdict | None = None
    note: str | None = None
    is_unplaced: bool = False


class Edit:
    """A state being changed within one of this package's functions; it never leaves that function."""

    def __init__(self, before: HealthState, now: float) -> None:
        self.before, self.now = before, now
        self._causes = {cause.place: cause for cause in before.causes}
        self._gpus = {gpu.uuid: gpu for gpu in before.gpus}
        self._transitions: list[Transition] = []

    @property
    def gpus(self) -> tuple[GpuEvidence, ...]:
        return tuple(self._gpus.values())

    def gpu(self, uuid: str) -> GpuEvidence:
        """The evidence about that GPU, empty for one not yet known."""
        return self._gpus.get(uuid) or GpuEvidence(uuid)

    def note(self, gpu: GpuEvidence) -> None:
        """Put the evidence about one GPU in place of what was known."""
        self._gpus[gpu.uuid] = gpu

    def causes(self, where: Callable[[Cause], bool]) -> tuple[Cause, ...]:
        return tuple(cause for cause in self._causes.values() if where(cause))

    def add(self, cause: Cause, reason: str) -> None:
        """Add a cause. One that is there already keeps its `since` and takes the new detail: seen twice is no transition."""
        known = self._causes.get(cause.place)
        if known is None:
            self._transitions.append(Transition(TransitionKind.ADDED, cause, reason, self.now))
        self._causes[cause.place] = cause if known is None else replace(cause, since=known.since)

    def forget_gpus(self) -> None:
        self._gpus.clear()

    def remove(self, cause: Cause, reason: str) -> None:
        """Clear one cause."""
        del self._causes[cause.place]
        self._transitions.append(Transition(TransitionKind.CLEARED, cause, reason, self.now))

    def clear(self, where: Callable[[Cause], bool], reason: str) -> None:
        """Clear every cause that meets a condition."""
        for cause in self.causes(where):
            self.remove(cause, reason)

    def done(
        self,
        *,
        wants_probe: Iterable[str] = (),
        verdict: XidVerdict | None = None,
        note: str | None = None,
        is_unplaced: bool = False,
        boot_id: str | None = None,
    ) -> Change:
        """The new state and what came of it. Where nothing changed, the state is the very one from before."""
        state = HealthState(
            causes=tuple(self._causes[place] for place in sorted(self._causes)),
            gpus=tuple(self._gpus[uuid] for uuid in sorted(self._gpus)),
            boot_id=boot_id or self.before.boot_id,
        )
        return Change(
            state=self.before if state == self.before else state,
            transitions=tuple(self._transitions),
            wants_probe=tuple(sorted(wants_probe)),
            verdict=verdict,
            note=note,
            is_unplaced=is_unplaced,
        )
