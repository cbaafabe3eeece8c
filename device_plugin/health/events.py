"""XIDs: what an event of the driver does to the health of a GPU, and what a new policy does to XIDs that came before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from device_plugin.config.values import XidAction
from device_plugin.health.catalogue import describe
from device_plugin.health.cause import Cause, CauseKind, ClearedBy
from device_plugin.health.state import Change, Edit, SeenXid

if TYPE_CHECKING:
    from device_plugin.hardware.driver import Event
    from device_plugin.hardware.model import Gpu, Inventory
    from device_plugin.health.policy import XidPolicy, XidVerdict
    from device_plugin.health.state import GpuEvidence, HealthState

OVERRIDE_SECONDS = 30.0
"""How far back XID 154 overrides another XID of its GPU (NVIDIA's Xid Catalog: "some 30 s")."""

RECOVERY_CHANGED = 154
"""The XID by which the driver says that its recovery action for the GPU has changed."""

_CLEARED_BY = {XidAction.UNTIL_RESET: ClearedBy.RESET, XidAction.UNTIL_REBOOT: ClearedBy.REBOOT}


def on_event(state: HealthState, event: Event, inventory: Inventory, policy: XidPolicy, now: float) -> Change:
    """An XID.

    It hits everything on its GPU, or the MIG devices that it names: a GPU or compute instance id alone narrows it too. An event
    whose GPU the driver cannot name hits every GPU, each with a cause of its own, so that each recovers by its own evidence. An
    event of a GPU that is not ours hits nothing. Nor does one that names a MIG device which the inventory does not have
    (`is_unplaced`): that may have been made since, so the event should be tried on the next inventory. A cause that is there
    already keeps its time, so a burst is one transition.

    `wants_probe` names the GPUs to look at next: the driver's recovery action says more than the XID (as NVIDIA's DRA driver does,
    kubernetes-sigs/dra-driver-nvidia-gpu#1441), and with `askDriver` it alone decides.
    """
    verdict = policy.verdict(event.xid)
    edit = Edit(state, now)
    if verdict.action is XidAction.IGNORE:
        return edit.done(verdict=verdict, note=f"{describe(event.xid)} is ignored ({verdict.reason})")
    known = {gpu.uuid: gpu for gpu in inventory.gpus}
    ours = {gpu.uuid for gpu in state.gpus} | known.keys()
    if event.gpu_uuid is None:
        targets: dict[str, tuple[str | None, ...]] = dict.fromkeys(sorted(ours), (None,))
    elif event.gpu_uuid in ours:
        targets = {event.gpu_uuid: _targets(known.get(event.gpu_uuid), event)}
    else:
        return edit.done(verdict=verdict, note=f"{describe(event.xid)} came from {event.gpu_uuid}, which is no GPU of this node")
    if not all(targets.values()):
        instance = f"GPU instance {event.gpu_instance_id}, compute instance {event.compute_instance_id}"
        note = f"{describe(event.xid)} names no MIG device that is known of {event.gpu_uuid} ({instance})"
        return edit.done(verdict=verdict, note=note, is_unplaced=True)
    for uuid, hit in targets.items():
        gpu = replace(edit.gpu(uuid), clean_since=None)
        if verdict.action is XidAction.ASK_DRIVER:
            others = tuple(asked for asked in gpu.asked if asked[0] != event.xid)
            edit.note(replace(gpu, asked=tuple(sorted((*others, (event.xid, now))))))
            continue
        edit.note(_with_xid(edit, gpu, event.xid))
        for hardware_id in hit:
            cause = xid_cause(uuid, event.xid, verdict.action, now, hardware_id=hardware_id, said_by=verdict.reason)
            edit.add(cause, verdict.reason)
    return edit.done(wants_probe=targets, verdict=verdict)


def on_policy(state: HealthState, policy: XidPolicy, now: float) -> Change:
    """Another policy: XIDs that it ignores are causes no more, others last as long as it says."""
    edit = Edit(state, now)
    for gpu in edit.gpus:
        asked = tuple((xid, at) for xid, at in gpu.asked if policy.verdict(xid).action is XidAction.ASK_DRIVER)
        edit.note(replace(gpu, asked=asked))
    for cause in edit.causes(lambda cause: cause.kind is CauseKind.XID):
        verdict = policy.verdict(int(cause.key))
        if verdict.action is XidAction.IGNORE:
            edit.remove(cause, verdict.reason)
        elif verdict.action in _CLEARED_BY:
            edit.add(_retold(cause, verdict), verdict.reason)
    return edit.done()


def xid_cause(gpu_uuid: str, xid: int, action: XidAction, now: float, *, hardware_id: str | None = None, said_by: str) -> Cause:
    """The cause that an XID leaves behind; its detail names the XID, who decided, and what clears it."""
    return Cause(
        kind=CauseKind.XID,
        gpu_uuid=gpu_uuid,
        key=str(xid),
        detail=_detail(xid, action, said_by),
        since=now,
        cleared_by=_CLEARED_BY[action],
        hardware_id=hardware_id,
    )


def _detail(xid: int, action: XidAction, said_by: str) -> str:
    until = "until the GPU is reset" if action is XidAction.UNTIL_RESET else "until the node is rebooted"
    return f"{describe(xid)}, {until} ({said_by})"


def _retold(cause: Cause, verdict: XidVerdict) -> Cause:
    detail = _detail(int(cause.key), verdict.action, verdict.reason)
    return replace(cause, detail=detail, cleared_by=_CLEARED_BY[verdict.action])


def _targets(gpu: Gpu | None, event: Event) -> tuple[str | None, ...]:
    """The MIG devices that an event hits; (None,) for the whole GPU.

    A MIG device whose ids the driver did not tell may be the one that is meant. One without a UUID is not offered, and its cause
    could not find it once it has one.
    """
    if gpu is None or not gpu.mig_enabled or (event.gpu_instance_id is None and event.compute_instance_id is None):
        return (None,)
    return tuple(
        mig.uuid
        for mig in gpu.mig_devices
        if mig.uuid
        and _may_be(event.gpu_instance_id, mig.gpu_instance_id)
        and _may_be(event.compute_instance_id, mig.compute_instance_id)
    )


def _may_be(named: int | None, own: int | None) -> bool:
    return named is None or own is None or named == own


def _with_xid(edit: Edit, gpu: GpuEvidence, xid: int) -> GpuEvidence:
    """The evidence with that XID seen now. XIDs are forgotten once they have no cause and are too old to be overridden."""
    alive = {cause.key for cause in edit.causes(lambda cause: cause.kind is CauseKind.XID and cause.gpu_uuid == gpu.uuid)}
    others = (
        seen for seen in gpu.xids if seen.xid != xid and (str(seen.xid) in alive or edit.now - seen.last_at <= OVERRIDE_SECONDS)
    )
    return replace(gpu, xids=tuple(sorted((*others, SeenXid(xid, edit.now)), key=lambda seen: seen.xid)))
