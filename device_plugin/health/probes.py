"""Probes: what a look at a GPU's condition does to its health, and how it recovers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from device_plugin.config.values import XidAction
from device_plugin.hardware.driver import RecoveryAction
from device_plugin.health.cause import Cause, CauseKind, ClearedBy
from device_plugin.health.events import OVERRIDE_SECONDS, RECOVERY_CHANGED, xid_cause
from device_plugin.health.state import Change, Edit

if TYPE_CHECKING:
    from collections.abc import Iterator

    from device_plugin.hardware.driver import Probe
    from device_plugin.health.state import GpuEvidence, HealthState, RecoveryRules

FAILURES_IN_A_ROW = 3
"""A probe that fails once says nothing; this many in a row say that something is wrong."""

_REBOOTS = (RecoveryAction.REBOOT, RecoveryAction.SYSTEM_REBOOT)
_FABRIC_NOT_SUPPORTED, _FABRIC_COMPLETED = 0, 3  # nvmlGpuFabricState_t
_FABRIC_STATES = {1: "has not started", 2: "is in progress"}
_DENIED = "insufficient permissions"  # NVML's text for NVML_ERROR_NO_PERMISSION
_CONDITIONS = (CauseKind.ECC, CauseKind.ROW_REMAP, CauseKind.RECOVERY_ACTION, CauseKind.FABRIC)


def on_probe(state: HealthState, probe: Probe, rules: RecoveryRules, now: float) -> Change:
    """One look at a GPU.

    A condition (ECC, rows to remap, recovery action, fabric) is a cause for as long as it reads bad, and its reading clean is the
    evidence that ends it; but a reboot that the driver asks for ends only by a reboot. What could not be read this time keeps its
    verdict, and three such probes in a row are a cause themselves. The rest clears as `_recover` says.
    """
    edit = Edit(state, now)
    uuid = probe.gpu_uuid
    if probe.lost is not None:
        edit.note(replace(edit.gpu(uuid), clean_since=None, probed_at=now, failed_probes=0, denied=False))
        edit.add(Cause(CauseKind.GPU_LOST, uuid, "handle", probe.lost, now, ClearedBy.PROBE), "probe")
        return edit.done()
    gpu = edit.gpu(uuid)
    if edit.causes(lambda cause: _is(cause, uuid, CauseKind.GPU_LOST, "handle")):
        edit.clear(lambda cause: _is(cause, uuid, CauseKind.GPU_LOST, "handle"), "the GPU answers again")
        gpu = replace(gpu, returned=True)
    edit.clear(lambda cause: _is(cause, uuid, CauseKind.NOT_ANSWERING, "age"), "probed again")
    gpu = _count_failures(edit, gpu, probe)
    _compare_conditions(edit, probe)
    gpu = _answer_asked(edit, gpu, probe)
    is_clean = not probe.unknown and not edit.causes(lambda cause: cause.gpu_uuid == uuid and cause.kind in _CONDITIONS)
    clean_since = (now if gpu.clean_since is None else min(gpu.clean_since, now)) if is_clean else None
    gpu = replace(gpu, clean_since=clean_since, probed_at=now)
    edit.note(_recover(edit, gpu, probe, rules) if is_clean else gpu)
    return edit.done()


def on_tick(state: HealthState, rules: RecoveryRules, now: float) -> Change:
    """Time goes by: a GPU that was probed but not within `verdict_lasts_seconds` has no verdict any more, and that is a cause."""
    edit = Edit(state, now)
    for gpu in state.gpus:
        if gpu.probed_at is None:
            continue
        if gpu.probed_at > now:  # the clock was set back
            edit.note(replace(gpu, probed_at=now))
        elif now - gpu.probed_at > rules.verdict_lasts_seconds:
            detail = f"no probe has answered for more than {rules.verdict_lasts_seconds:.0f} s"
            edit.add(Cause(CauseKind.NOT_ANSWERING, gpu.uuid, "age", detail, now, ClearedBy.PROBE), "verdict too old")
    return edit.done()


def on_rules(state: HealthState, now: float) -> Change:
    """Other rules from now on. A verdict's age counts anew: it has outlived no limit that was not there."""
    edit = Edit(state, now)
    for gpu in state.gpus:
        if gpu.probed_at is not None:
            edit.note(replace(gpu, probed_at=now))
    return edit.done()


def has_lost_access(state: HealthState) -> bool:
    """Whether the driver refuses access to every GPU at once, probe after probe.

    That is a fault of this container, not of the GPUs (its device permissions are gone, as after `systemctl daemon-reload`:
    NVIDIA/k8s-device-plugin#426), and only a fresh container cures it.
    """
    lost = {cause.gpu_uuid for cause in state.causes if cause.kind is CauseKind.GPU_LOST}
    present = [gpu for gpu in state.gpus if gpu.uuid not in lost]
    return bool(present) and all(gpu.denied and gpu.failed_probes >= FAILURES_IN_A_ROW for gpu in present)


def _is(cause: Cause, gpu_uuid: str, kind: CauseKind, key: str | None = None) -> bool:
    return cause.gpu_uuid == gpu_uuid and cause.kind is kind and key in (None, cause.key)


def _count_failures(edit: Edit, gpu: GpuEvidence, probe: Probe) -> GpuEvidence:
    uuid = probe.gpu_uuid
    if not probe.unknown:
        edit.clear(lambda cause: _is(cause, uuid, CauseKind.PROBE_FAILED), "probed without an error")
        return replace(gpu, failed_probes=0, denied=False)
    told = (probe.ecc_uncorrectable, probe.remap_pending, probe.remap_failed, probe.recovery_action, probe.fabric_state)
    denied = all(_DENIED in text.lower() for text in probe.unknown) and all(value is None for value in told)
    gpu = replace(gpu, failed_probes=gpu.failed_probes + 1, denied=denied)
    if gpu.failed_probes >= FAILURES_IN_A_ROW:
        what = "the driver refuses access" if gpu.denied else "the driver does not answer for"
        detail = f"{FAILURES_IN_A_ROW} probes in a row failed: {what}: {'; '.join(probe.unknown)}"
        edit.add(Cause(CauseKind.PROBE_FAILED, uuid, "probe", detail, edit.now, ClearedBy.PROBE), "probe")
    return gpu


def _compare_conditions(edit: Edit, probe: Probe) -> None:
    """Add what reads bad, clear what reads clean. In a probe with errors None may mean "could not be read" and clears nothing."""
    bad = {cause.place: cause for cause in _bad_conditions(probe, edit.now)}
    read = {
        CauseKind.ECC: probe.ecc_uncorrectable is not None,
        CauseKind.ROW_REMAP: probe.remap_pending is not None or probe.remap_failed is not None,
        CauseKind.RECOVERY_ACTION: probe.recovery_action is not None,
        CauseKind.FABRIC: probe.fabric_state is not None,
    }
    edit.clear(
        lambda cause: (
            cause.gpu_uuid == probe.gpu_uuid
            and cause.kind in _CONDITIONS
            and cause.cleared_by is ClearedBy.PROBE
            and cause.place not in bad
            and (read[cause.kind] or not probe.unknown)
        ),
        "reads clean",
    )
    for cause in bad.values():
        edit.add(cause, "probe")


def _bad_conditions(probe: Probe, now: float) -> Iterator[Cause]:
    uuid = probe.gpu_uuid
    if probe.ecc_uncorrectable:
        detail = f"{probe.ecc_uncorrectable} uncorrectable ECC errors since the last reset"
        yield Cause(CauseKind.ECC, uuid, "uncorrectable", detail, now, ClearedBy.PROBE)
    if probe.remap_failed:
        yield Cause(CauseKind.ROW_REMAP, uuid, "failed", "the remapping of a memory row failed", now, ClearedBy.PROBE)
    if probe.remap_pending:
        detail = "the remapping of a memory row waits for a reset of the GPU"
        yield Cause(CauseKind.ROW_REMAP, uuid, "pending", detail, now, ClearedBy.PROBE)
    action = probe.recovery_action
    if action is not None and action is not RecoveryAction.NONE:
        wish = action.name.lower().replace("_", " ")
        cleared_by = ClearedBy.REBOOT if action in _REBOOTS else ClearedBy.PROBE
        key = "reboot" if action in _REBOOTS else "reset"
        yield Cause(CauseKind.RECOVERY_ACTION, uuid, key, f"the driver asks for: {wish}", now, cleared_by)
    state, status = probe.fabric_state, probe.fabric_status
    if state not in (None, _FABRIC_NOT_SUPPORTED, _FABRIC_COMPLETED):
        detail = f"the registration with the NVLink fabric {_FABRIC_STATES.get(state, f'is in state {state}')}"
        yield Cause(CauseKind.FABRIC, uuid, "registration", detail, now, ClearedBy.PROBE)
    elif state == _FABRIC_COMPLETED and status:
        detail = f"the registration with the NVLink fabric ended with NVML's error {status}"
        yield Cause(CauseKind.FABRIC, uuid, "registration", detail, now, ClearedBy.PROBE)


def _answer_asked(edit: Edit, gpu: GpuEvidence, probe: Probe) -> GpuEvidence:
    """Decide the XIDs that wait for the driver's recovery action.

    The action itself is a condition and has its cause by now. XID 154 overrides an XID that came up to 30 s before it. A driver
    without such a field leaves the XID to be taken like one that wants a reset; one that fails to answer is asked again.
    """
    if not gpu.asked or (probe.recovery_action is None and probe.unknown):
        return gpu
    for xid, at in gpu.asked:
        if probe.recovery_action is None:
            said_by = "the driver has no recovery action to ask for"
            edit.add(xid_cause(gpu.uuid, xid, XidAction.UNTIL_RESET, edit.now, said_by=said_by), said_by)
        elif xid == RECOVERY_CHANGED:
            last_at = {str(seen.xid): seen.last_at for seen in gpu.xids}
            for cause in edit.causes(lambda cause: _is(cause, gpu.uuid, CauseKind.XID)):
                if last_at.get(cause.key, cause.since) >= at - OVERRIDE_SECONDS:
                    edit.remove(cause, f"XID {xid}: the driver's recovery action, {probe.recovery_action.name}, stands for it")
    return replace(gpu, asked=())


def _recover(edit: Edit, gpu: GpuEvidence, probe: Probe, rules: RecoveryRules) -> GpuEvidence:
    """After a clean probe: clear what a reset clears, on evidence.

    Evidence is that the GPU was gone and is back, or a recovery action that reads none and probes that have been clean for
    the calm period. Where the driver has no recovery action, clean probes are none, unless the operator takes them for it.
    """
    assert gpu.clean_since is not None

    def needs_reset(cause: Cause) -> bool:
        return cause.gpu_uuid == gpu.uuid and cause.cleared_by is ClearedBy.RESET

    if gpu.returned:
        edit.clear(needs_reset, "the GPU was gone and is back")
    elif edit.now - gpu.clean_since >= rules.recover_after_seconds:
        if probe.recovery_action is not None:
            edit.clear(needs_reset, f"recovery action none and probes clean for {rules.recover_after_seconds:.0f} s")
        elif rules.recover_without_evidence:
            edit.clear(needs_reset, f"probes clean for {rules.recover_after_seconds:.0f} s (health.recoverWithoutEvidence)")
    alive = {cause.key for cause in edit.causes(lambda cause: _is(cause, gpu.uuid, CauseKind.XID))}
    kept = tuple(seen for seen in gpu.xids if str(seen.xid) in alive or edit.now - seen.last_at <= OVERRIDE_SECONDS)
    return replace(gpu, returned=False, xids=kept)
