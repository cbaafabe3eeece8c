"""What happens around the GPUs: hardware that goes and comes, the driver, its events, injection, a reboot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from device_plugin.health.cause import Cause, CauseKind, ClearedBy
from device_plugin.health.state import EVERY_GPU, Change, Edit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from device_plugin.hardware.model import Inventory
    from device_plugin.health.state import HealthState


_GONE, _UNREADABLE = _NOT_IN_INVENTORY = ("gone", "unreadable")
_LOST = "gpu is lost"  # NVML's text for NVML_ERROR_GPU_IS_LOST


def on_inventory(state: HealthState, inventory: Inventory, now: float) -> Change:
    """The node's hardware was read (an inventory that could not be read is no inventory: that is `on_driver_lost`).

    A GPU that is known but not there, or that the driver would not describe, is lost. One that was gone and is back has been
    reset in between: the next clean probe takes it for that. One that the driver merely failed to describe for a while has not.
    `wants_probe` names GPUs that are new or back.
    """
    edit = Edit(state, now)
    present = {gpu.uuid for gpu in inventory.gpus} - {gpu.uuid for gpu in inventory.unreadable}  # those are kept as last known
    wants_probe = present - {gpu.uuid for gpu in state.gpus}
    for uuid in sorted(wants_probe):
        edit.note(edit.gpu(uuid))
    for gpu in edit.gpus:
        is_lost = _where(CauseKind.GPU_LOST, gpu.uuid, *_NOT_IN_INVENTORY)
        if gpu.uuid not in present:
            key, detail = _absence(gpu.uuid, inventory)
            edit.add(Cause(CauseKind.GPU_LOST, gpu.uuid, key, detail, now, ClearedBy.PROBE), "inventory")
            edit.note(replace(gpu, clean_since=None, probed_at=None, failed_probes=0, denied=False))
        elif found := edit.causes(is_lost):
            edit.clear(is_lost, "the GPU is back")
            edit.note(replace(gpu, returned=gpu.returned or any(cause.key == _GONE for cause in found)))
            wants_probe.add(gpu.uuid)
    return edit.done(wants_probe=wants_probe)


def on_boot(state: HealthState, boot_id: str | None, now: float) -> Change:
    """The node's boot id, once after a start. Another one means a reboot.

    A reboot clears everything, and forgets the GPUs: what is still wrong is found anew, and cards are exchanged while the power is
    off. None (not readable) is taken for the same boot.
    """
    edit = Edit(state, now)
    if boot_id is not None and state.boot_id not in (None, boot_id):
        edit.clear(lambda _: True, "the node was rebooted")
        edit.forget_gpus()
    return edit.done(boot_id=boot_id)


def on_driver_lost(state: HealthState, reason: str, now: float) -> Change:
    """The driver as a whole cannot be used: no library, no GPU, versions differ."""
    edit = Edit(state, now)
    edit.add(Cause(CauseKind.DRIVER, EVERY_GPU, "driver", reason, now, ClearedBy.PROBE), "driver")
    return edit.done()


def on_driver_back(state: HealthState, now: float) -> Change:
    """The driver can be used again."""
    return _cleared(state, _where(CauseKind.DRIVER), "the driver is back", now)


def on_call_hanging(state: HealthState, gpu_uuid: str | None, detail: str, now: float) -> Change:
    """A driver call hangs that is about one GPU, or (None) about the driver as a whole."""
    edit = Edit(state, now)
    edit.add(Cause(CauseKind.NOT_ANSWERING, gpu_uuid or EVERY_GPU, "call", detail, now, ClearedBy.PROBE), "call hangs")
    return edit.done()


def on_call_returned(state: HealthState, gpu_uuid: str | None, now: float) -> Change:
    """The hanging call about that GPU, or about the driver as a whole (None), has returned."""
    return _cleared(state, _where(CauseKind.NOT_ANSWERING, gpu_uuid or EVERY_GPU, "call"), "the call has returned", now)


def on_events_lost(state: HealthState, reason: str, now: float, gpu_uuids: Collection[str] | None = None) -> Change:
    """Nobody watches the events of these GPUs, or of any (None)."""
    edit = Edit(state, now)
    for uuid in sorted(gpu_uuids) if gpu_uuids is not None else [EVERY_GPU]:
        edit.add(Cause(CauseKind.EVENTS_LOST, uuid, "events", reason, now, ClearedBy.PROBE), "events")
    return edit.done()


def on_events_restored(state: HealthState, now: float, unwatched: Mapping[str, str] | None = None) -> Change:
    """Events are watched again, but for those of the GPUs in `unwatched`, with the driver's text."""
    still = unwatched or {}
    edit = Edit(state, now)
    edit.clear(lambda cause: cause.kind is CauseKind.EVENTS_LOST and cause.gpu_uuid not in still, "events are watched again")
    for uuid, reason in sorted(still.items()):
        edit.add(Cause(CauseKind.EVENTS_LOST, uuid, "events", reason, now, ClearedBy.PROBE), "events")
    return edit.done()


def on_injection(state: HealthState, reasons: Mapping[tuple[str, str | None], str], now: float) -> Change:
    """Whether containers can be given their devices.

    `reasons` has why not, by GPU (`*`: every GPU) and MIG device (None: all that stands on the GPU). What it does not name, can.
    """
    edit = Edit(state, now)
    edit.clear(
        lambda cause: cause.kind is CauseKind.INJECTION and (cause.gpu_uuid, cause.hardware_id) not in reasons,
        "it can be injected again",
    )
    for (uuid, hardware_id), reason in sorted(reasons.items(), key=lambda item: (item[0][0], item[0][1] or "")):
        cause = Cause(CauseKind.INJECTION, uuid, "injection", reason, now, ClearedBy.PROBE, hardware_id=hardware_id)
        edit.add(cause, "injection")
    return edit.done()


def _absence(gpu_uuid: str, inventory: Inventory) -> tuple[str, str]:
    """Which kind of absence it is, and a sentence about it. A lost GPU often has no UUID any more, only its index."""
    own = [gpu.reason for gpu in inventory.unreadable if gpu.uuid == gpu_uuid]
    nameless = [gpu for gpu in inventory.unreadable if gpu.uuid is None]
    reasons = own or [gpu.reason for gpu in nameless]
    if not reasons:
        return _GONE, "the driver does not count the GPU any more"
    key = _GONE if all(_LOST in reason.lower() for reason in reasons) else _UNREADABLE
    listed = "; ".join(f"GPU {gpu.index}: {gpu.reason}" for gpu in nameless)
    return key, own[0] if own else f"the driver does not name the GPU any more ({listed})"


def _where(kind: CauseKind, gpu_uuid: str | None = None, *keys: str) -> Callable[[Cause], bool]:
    return lambda cause: cause.kind is kind and gpu_uuid in (None, cause.gpu_uuid) and (not keys or cause.key in keys)


def _cleared(state: HealthState, where: Callable[[Cause], bool], reason: str, now: float) -> Change:
    edit = Edit(state, now)
    edit.clear(where, reason)
    return edit.done()
