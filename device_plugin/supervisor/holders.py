"""Who holds what: kubelet's last word on its pod-resources socket, and what it has been given since.

Kubelet is asked in the background, so that no decision waits for its answer. An answer grows old: a device that was named in an
answer of ours after kubelet was last asked counts as held until kubelet says otherwise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.kubelet.podresources import Unreadable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from device_plugin.kubelet.podresources import PodResources
    from device_plugin.logs import Logger
    from device_plugin.supervisor.clock import SteadyClock

BOOKED_WITHIN_SECONDS = 5.0  # how long after our answer kubelet may take to book it; it takes some 10 ms


class Holders:
    """The last known holders."""

    def __init__(self, pod_resources: PodResources, clock: SteadyClock, logger: Logger) -> None:
        self._pod_resources, self._clock, self._logger = pod_resources, clock, logger
        self._told_by_kubelet: Mapping[str, frozenset[str]] | None = None
        self._given: dict[tuple[str, str], float] = {}
        self._told: str | None = None
        self.are_silent = False
        """Whether kubelet can be asked but has never answered yet: then a pod may hold whatever has left, for however long."""

    @property
    def held(self) -> Mapping[str, frozenset[str]] | None:
        """Device IDs that pods hold or may hold, by resource; None where kubelet cannot be asked, or has never answered yet."""
        if self._told_by_kubelet is None:
            return None
        held = {resource: set(ids) for resource, ids in self._told_by_kubelet.items()}
        for resource, device_id in self._given:
            held.setdefault(resource, set()).add(device_id)
        return {resource: frozenset(held[resource]) for resource in sorted(held)}

    def note_given(self, resource: str, ids: Sequence[str]) -> None:
        """An answer that names these IDs is about to go to kubelet."""
        self._given.update(dict.fromkeys(((resource, device_id) for device_id in ids), self._clock.now()))

    async def refresh(self) -> bool:
        """Ask kubelet; whether something changed. After an error the last answer holds on: it is the best there is."""
        before, asked_at = (self.held, self.are_silent), self._clock.now()
        answer = await self._pod_resources.held()
        self.are_silent = isinstance(answer, Unreadable) and self._told_by_kubelet is None
        if isinstance(answer, Unreadable):
            cost = "; until it does, a device that has left counts as held" if self.are_silent else ""
            self._tell("pod_resources.failed", answer.reason + cost)
            return (self.held, self.are_silent) != before
        if answer is None and self._told_by_kubelet is None:
            self._tell(
                "pod_resources.missing",
                f'there is no "{self._pod_resources.socket}": which pod holds which device cannot be known, so a device that left '
                "counts as free once its grace time is over",
            )
            self._given.clear()
            return (self.held, self.are_silent) != before
        if answer is not None:
            self._told, self._told_by_kubelet = None, answer
            self._given = {key: at for key, at in self._given.items() if at > asked_at - BOOKED_WITHIN_SECONDS}
        return (self.held, self.are_silent) != before

    def _tell(self, event: str, reason: str) -> None:
        if reason != self._told:
            self._told = reason
            self._logger.warning(event, reason=reason)
