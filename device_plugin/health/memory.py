"""Health in the state file: plain values for JSON, out and in.

A restart of the plugin must not declare a broken GPU healthy (NVIDIA/k8s-device-plugin#111). So causes are kept, and which GPUs are
known, so that one lost meanwhile is missed; calm periods are not: nobody looked while the plugin was away. What belongs to the
process (its events, its driver session, its injection) is found anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from device_plugin.health.cause import Cause, CauseKind, ClearedBy
from device_plugin.health.state import GpuEvidence, HealthState
from device_plugin.stored import stored_seconds, stored_text

VERSION = 1

_OF_THE_PROCESS = frozenset({CauseKind.NOT_ANSWERING, CauseKind.EVENTS_LOST, CauseKind.DRIVER, CauseKind.HELD, CauseKind.INJECTION})


def to_json(state: HealthState) -> dict[str, Any]:
    """What outlives the process, as plain values: version, boot id, known GPUs, causes, each list in its order."""
    return {
        "version": VERSION,
        "bootId": state.boot_id,
        "gpus": [
            {"uuid": gpu.uuid, "failedProbes": gpu.failed_probes, "asked": [list(asked) for asked in gpu.asked]}
            for gpu in state.gpus
        ],
        "causes": [_cause_to_json(cause) for cause in state.causes if cause.kind not in _OF_THE_PROCESS],
    }


def from_json(value: object) -> tuple[HealthState, tuple[str, ...]]:
    """The state that `to_json` wrote, and a sentence for each part that cannot be used.

    What can be read is kept: half the causes are better than none.
    """
    if not isinstance(value, Mapping):
        return HealthState(), (f"the stored health is {type(value).__name__}, not an object; starting without it",)
    if value.get("version") != VERSION:
        return HealthState(), (f"the stored health has version {value.get('version')!r}, expected {VERSION}; starting without it",)
    notes: list[str] = []
    boot_id = value.get("bootId")
    gpus = {gpu.uuid: gpu for gpu in _each(value.get("gpus"), "GPU", _gpu_from_json, notes)}
    causes = {cause.place: cause for cause in _each(value.get("causes"), "cause", _cause_from_json, notes)}
    state = HealthState(
        causes=tuple(causes[place] for place in sorted(causes)),
        gpus=tuple(gpus[uuid] for uuid in sorted(gpus)),
        boot_id=boot_id if isinstance(boot_id, str) else None,
    )
    return state, tuple(notes)


def _each(items: object, what: str, read: Any, notes: list[str]) -> list[Any]:
    if not isinstance(items, list):
        notes.append(f"the stored health has no list of {what}s; starting without them")
        return []
    found = []
    for item in items:
        try:
            found.append(read(item))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            notes.append(f"a {what} in the stored health cannot be read and is left out ({type(error).__name__}: {error})")
    return found


def _gpu_from_json(item: Mapping[str, Any]) -> GpuEvidence:
    asked = tuple((_count(xid), stored_seconds(at)) for xid, at in item["asked"])
    return GpuEvidence(stored_text(item["uuid"]), failed_probes=_count(item["failedProbes"]), asked=asked)


def _cause_to_json(cause: Cause) -> dict[str, Any]:
    return {
        "kind": cause.kind.value,
        "gpuUuid": cause.gpu_uuid,
        "key": cause.key,
        "detail": cause.detail,
        "since": cause.since,
        "clearedBy": cause.cleared_by.value,
        "hardwareId": cause.hardware_id,
        "deviceId": cause.device_id,
    }


def _cause_from_json(item: Mapping[str, Any]) -> Cause:
    kind, key = CauseKind(item["kind"]), stored_text(item["key"])
    if kind in _OF_THE_PROCESS:
        raise ValueError(f"causes of kind {kind} are not stored")
    if kind is CauseKind.XID:
        int(key)
    return Cause(
        kind=kind,
        gpu_uuid=stored_text(item["gpuUuid"]),
        key=key,
        detail=stored_text(item["detail"]),
        since=stored_seconds(item["since"]),
        cleared_by=ClearedBy(item["clearedBy"]),
        hardware_id=_text_or_none(item["hardwareId"]),
        device_id=_text_or_none(item["deviceId"]),
    )


def _text_or_none(value: object) -> str | None:
    return None if value is None else stored_text(value)


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise TypeError(f"expected a number from 0 up, not {value!r}")
    return value
