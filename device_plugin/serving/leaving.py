"""When a device that left the Offer may leave kubelet's list, and when nobody can hold it any more.

Kubelet looks an ID up in its list after Allocate has answered and dies if it is not there; an ID that has left the list reads
`Healthy` in the status of the pod that holds it. So an ID goes late, and in two steps: Unhealthy first, gone later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.health.cause import CauseKind
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from device_plugin.serving.served import ServedDevice

ANSWER_SETTLES_SECONDS = 5.0
"""How long after an answer that named an ID kubelet may still look that ID up; it takes some 10 ms, seen on kubelet 1.36."""


@record
class Use:
    """What is known of who uses what.

    `held` maps a resource's name to the IDs that pods hold, from kubelet's pod-resources API; None where that cannot be asked.
    `answered` maps a resource's name and an ID, since one ID may be listed under two names, to the time (Unix seconds) of the last
    answer that named it. `now` is Unix seconds. `silent`: it can be asked, but has not answered yet, so that a pod may hold
    whatever has left, for however long.
    """

    held: Mapping[str, frozenset[str]] | None
    answered: Mapping[tuple[str, str], float]
    now: float
    grace_seconds: float
    silent: bool = False

    def holds(self, resource: str, device_id: str) -> bool:
        """Whether a pod is known to hold that device."""
        return self.held is not None and device_id in self.held.get(resource, ())

    def may_hold(self, resource: str, device_id: str) -> bool:
        """Whether a pod holds that device, or may do so for a time that nobody knows."""
        return self.silent or self.holds(resource, device_id)

    def left_at(self, served: ServedDevice) -> float:
        """Since when the device leaves: a time in the future (the clock was set back) counts as now."""
        assert served.leaving_since is not None
        return min(served.leaving_since, self.now)

    def settled_at(self, resource: str, device_id: str) -> float:
        """From when on no answer that named the ID is under way in kubelet."""
        answered = self.answered.get((resource, device_id))
        return float("-inf") if answered is None else min(answered, self.now) + ANSWER_SETTLES_SECONDS

    def droppable_at(self, resource: str, served: ServedDevice) -> float | None:
        """When the leaving device may go from the list; None: once its holder is gone, whenever that is."""
        if self.may_hold(resource, served.device.id):
            return None
        return max(self.left_at(served) + self.grace_seconds, self.settled_at(resource, served.device.id))

    def free_at(self, resource: str, served: ServedDevice) -> float | None:
        """From when on nobody can hold the leaving device; None: once its holder is gone, whenever that is.

        Without pod-resources there is nothing but time to go by, and the grace has to do.
        """
        if self.held is None:
            return self.droppable_at(resource, served)
        return None if self.may_hold(resource, served.device.id) else self.settled_at(resource, served.device.id)


def outlives_grace(served: ServedDevice, *, closing: bool) -> bool:
    """Whether a leaving device stays listed for as long as it is in this state.

    A lost GPU stays in the capacity of the resource it was offered as, Unhealthy, so that the node says what it lacks; not in a
    resource that is closing, which would never end.
    """
    return not closing and any(cause.kind is CauseKind.GPU_LOST for cause in served.causes)
