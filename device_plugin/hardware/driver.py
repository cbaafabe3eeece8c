"""The seam to the NVIDIA driver: what the project asks of it, and nothing else. No implementation lives here.

Every method may block for as long as the driver likes, raises only `DriverError` and its kin, and is called from the two hardware
threads, never from the event loop. `hardware.nvml` implements it over pynvml, for the real and the simulated library alike.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from device_plugin.hardware.model import Gpu, Link


class RecoveryAction(IntEnum):
    """What the driver wants done to a GPU (`nvmlDeviceGpuRecoveryAction_t`)."""

    NONE = 0
    RESET = 1
    REBOOT = 2
    DRAIN_P2P = 3
    DRAIN_AND_RESET = 4
    RECOVER_IMEX_DOMAIN = 5
    BUS_RESET = 6
    SYSTEM_REBOOT = 7


@record
class Call:
    """The driver call under way: NVML's function, what it is about (a UUID or an index as text), and its start (monotonic s)."""

    name: str
    subject: str | None
    since: float


@record
class Event:
    """One event of the driver. XIDs are the only kind that carries a verdict.

    `gpu_uuid` is None if the driver could not say which GPU it was. Instance ids are None where the event names none.
    """

    xid: int
    gpu_uuid: str | None
    gpu_instance_id: int | None = None
    compute_instance_id: int | None = None


@record
class Probe:
    """One look at a GPU's condition. None = this GPU or driver has no such property.

    `unknown` names the properties that the driver would not answer this time (errors other than "not supported"), with its text.
    `lost` is set when the handle itself is gone.
    """

    gpu_uuid: str
    ecc_uncorrectable: int | None = None
    remap_pending: bool | None = None
    remap_failed: bool | None = None
    recovery_action: RecoveryAction | None = None
    fabric_state: int | None = None
    fabric_status: int | None = None
    unknown: tuple[str, ...] = ()
    lost: str | None = None


@record
class DriverFacts:
    """What the driver says of itself."""

    driver_version: str | None
    cuda_version: tuple[int, int] | None
    gpu_count: int


class EventSource(Protocol):
    """A registered set of events. Dies when the driver is closed."""

    @property
    def unwatched(self) -> dict[str, str]:
        """GPUs (UUID) whose events could not be subscribed to because of an error, with the driver's text.

        A GPU that does not support events is not among them: that is knowledge, not a fault.
        """
        ...

    def wait(self, timeout_seconds: float) -> Event | None:
        """The next XID event, or None when none came within the time (other kinds of event count as none)."""
        ...

    def close(self) -> None: ...


class Driver(Protocol):
    """One opened driver. `open` must come first; `close` ends every handle and event source."""

    @property
    def current_call(self) -> Call | None:
        """The call under way in the thread that uses this driver, for whoever watches over its time."""
        ...

    def open(self) -> DriverFacts: ...

    def close(self) -> None: ...

    def read_gpu(self, index: int) -> Gpu:
        """The GPU at that index with its MIG devices, without what only files tell (NUMA node, device nodes).

        Raises `NotSupported` for a device that is to be skipped (a DGX Display), `GpuLost` or another `DriverError` if it cannot be
        described at all. Optional properties never raise.
        """
        ...

    def read_links(self, gpus: Sequence[Gpu]) -> tuple[Link, ...]:
        """Every ordered pair of `gpus`. Never raises: what cannot be read is a link without ancestor or NVLinks."""
        ...

    def probe(self, gpu_uuid: str) -> Probe:
        """The GPU's condition now. Never raises `DriverError`: what fails is in the Probe."""
        ...

    def watch(self, gpu_uuids: Sequence[str]) -> EventSource:
        """Subscribe to the XIDs of these GPUs."""
        ...
