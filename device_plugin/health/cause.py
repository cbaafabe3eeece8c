"""The Cause: one reason why a GPU, MIG device or device must not get new work. Healthy = no cause."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from device_plugin.records import ordered_record


class CauseKind(StrEnum):
    """What kind of evidence a cause rests on. One target has at most one cause of a kind and detail key."""

    XID = "xid"
    ECC = "ecc"  # uncorrectable errors counted since the last reset
    ROW_REMAP = "row-remap"  # a row remapping failed or waits for a reset
    RECOVERY_ACTION = "recovery-action"  # the driver asks for a reset or a reboot
    FABRIC = "fabric"  # the NVLink fabric registration did not complete
    GPU_LOST = "gpu-lost"
    PROBE_FAILED = "probe-failed"  # three probes in a row had errors
    NOT_ANSWERING = "not-answering"  # a driver call hangs
    EVENTS_LOST = "events-lost"  # nobody watches this GPU's events
    DRIVER = "driver"  # the driver as a whole is away
    HELD = "held"  # held under another resource: no double booking
    INJECTION = "injection"  # no way left to inject the device into a container


class ClearedBy(StrEnum):
    """What ends a cause."""

    RESET = "reset"  # recovery action none and clean probes for recoverAfter, or the GPU gone and back
    REBOOT = "reboot"  # another boot id
    PROBE = "probe"  # the very condition reads clean again
    RELEASE = "release"  # the holder is gone


class Target(Protocol):
    """What a cause can hit: a device, by its own ID and by the hardware behind it. Health knows devices no closer than this."""

    @property
    def id(self) -> str: ...

    @property
    def hardware_id(self) -> str: ...

    @property
    def gpu_uuid(self) -> str: ...


@ordered_record
class Cause:
    """One reason.

    `gpu_uuid` is the GPU hit; `hardware_id` narrows it to one MIG device, `device_id` to one device; None means everything that
    stands on the GPU. `key` tells apart causes of one kind (the XID's number, the property's name). `since` is Unix seconds.
    `detail` is for people; equality of causes ignores neither.
    """

    kind: CauseKind
    gpu_uuid: str
    key: str
    detail: str
    since: float
    cleared_by: ClearedBy
    hardware_id: str | None = None
    device_id: str | None = None

    def hits(self, device: Target) -> bool:
        """Whether this cause keeps new work off that device.

        A fault in one part of a GPU is a fault of the GPU as a whole, which is what is offered of a split one under `none`.
        """
        is_in_a_part = self.kind is CauseKind.XID and device.hardware_id == device.gpu_uuid
        return (
            self.gpu_uuid in (device.gpu_uuid, "*")
            and (self.hardware_id in (None, device.hardware_id) or is_in_a_part)
            and self.device_id in (None, device.id)
        )

    @property
    def place(self) -> tuple[str, str, str, str, str]:
        """What the cause is about. Two causes of one place are one cause seen twice; lists of causes are in this order."""
        return (self.gpu_uuid, self.hardware_id or "", self.device_id or "", self.kind, self.key)

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"
