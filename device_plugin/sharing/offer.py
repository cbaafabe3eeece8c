"""The Offer: what the node should offer to kubelet."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from device_plugin.problems import Severity
from device_plugin.records import ordered_record, record

if TYPE_CHECKING:
    from device_plugin.problems import Problem, ProblemKind


class PreferencePolicy(StrEnum):
    """How GetPreferredAllocation chooses in one resource."""

    ALIGNED = "aligned"  # whole GPUs: by NVLink and PCIe
    DISTRIBUTED = "distributed"
    PACKED = "packed"
    DISTINCT = "distinct"


@record
class Device:
    """One schedulable unit.

    `id` is what kubelet sees: the hardware's UUID, or `<uuid>::<n>` for a replica. `hardware_id` is the UUID of the GPU or
    MIG device behind it (`all` under WSL), `gpu_uuid` the physical GPU it stands on. `index` is `0` for a GPU and `0:1` for a MIG
    device, the name given to runtimes under the index strategy. `device_nodes` are container paths.
    """

    id: str
    hardware_id: str
    gpu_uuid: str
    index: str
    replica: int | None = None
    numa_node: int | None = None
    device_nodes: tuple[str, ...] = ()
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None

    @property
    def is_mig(self) -> bool:
        return ":" in self.index

    @property
    def is_shared(self) -> bool:
        return self.replica is not None


@record
class Resource:
    """One extended resource. `devices` are ordered by GPU index, MIG index, replica number; IDs are unique in the whole Offer."""

    name: str
    devices: tuple[Device, ...]
    policy: PreferencePolicy
    fail_requests_greater_than_one: bool = False


@ordered_record
class Withheld:
    """Hardware that is there and not offered, with a `reason` of one clause.

    `gpu_index` is NVML's, `index` as in `Device` (`0`, `0:1`). The one device of WSL, `all`, has the GPU index -1.
    """

    gpu_index: int
    index: str
    hardware_id: str
    reason: str


@record
class Offer:
    """What the node should offer, resources ordered by name, and everything wrong with it.

    The Offer is always the best that can be served; whether its problems forbid serving it (at a start, at a reload)
    is the caller's decision, by their kind. `withheld` is what the node has and the Offer has not, in index order.
    """

    resources: tuple[Resource, ...] = ()
    problems: tuple[Problem, ...] = ()
    withheld: tuple[Withheld, ...] = ()

    def resource(self, name: str) -> Resource | None:
        return next((resource for resource in self.resources if resource.name == name), None)

    def errors(self, *kinds: ProblemKind) -> tuple[Problem, ...]:
        """The problems of severity `ERROR`, of these kinds if any are named."""
        return tuple(p for p in self.problems if p.severity is Severity.ERROR and (not kinds or p.kind in kinds))
