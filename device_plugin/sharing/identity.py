"""Which GPUs can be told apart, and what the driver would not say of them.

A device's ID is its UUID: it must be there, be nobody else's, and survive in an ID (`<uuid>::<n>`) and in a comma-separated list.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from device_plugin.hardware.model import ComputeMode
from device_plugin.problems import ProblemKind
from device_plugin.sharing.phrases import list_gpus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from device_plugin.hardware.model import Gpu
    from device_plugin.sharing.report import Report
    from device_plugin.sharing.selection import Selection

_UUID = r"[A-Za-z0-9][-A-Za-z0-9._/]*"
_WORDS_OF_THE_RUNTIME = ("all", "none", "void")  # what NVIDIA_VISIBLE_DEVICES takes besides devices


def explain_bad_uuid(uuid: str) -> str | None:
    """Why a UUID cannot name a device, or None if it can."""
    if not uuid:
        return "the driver gives it no UUID"
    if not re.fullmatch(_UUID, uuid) or uuid in _WORDS_OF_THE_RUNTIME:
        return f"its UUID {uuid!r} cannot name a device"
    return None


def identify_gpus(gpus: Iterable[Gpu], report: Report) -> tuple[Gpu, ...]:
    """The GPUs that can be named. Of several with one UUID the first keeps it: the others are withheld, with an error each."""
    owners: dict[str, Gpu] = {}
    for gpu in gpus:
        trouble = explain_bad_uuid(gpu.uuid)
        if trouble is None and gpu.uuid in owners:
            trouble = f"its UUID {gpu.uuid} is also that of GPU {owners[gpu.uuid].index}"
        if trouble is None:
            owners[gpu.uuid] = gpu
            continue
        report.error(ProblemKind.HARDWARE, f"GPU {gpu.index} ({gpu.name}): {trouble}; it is withheld")
        report.withhold(gpu.index, gpu.uuid, trouble)
    return tuple(owners.values())


def report_faults(selection: Selection, report: Report) -> None:
    """Say what the driver would not tell, and which GPUs let no program in."""
    gpus = selection.gpus
    for lost in selection.unreadable:
        name = f"GPU {lost.index}" + (f" ({lost.uuid})" if lost.uuid else "")
        report.error(ProblemKind.HARDWARE, f"{name} cannot be read and is withheld, the others are not: {lost.reason}")
        report.withhold(lost.index, lost.uuid or "", f"unreadable: {lost.reason}")
    for gpu in gpus:
        for fault in gpu.faults:
            report.warn(ProblemKind.HARDWARE, f"GPU {gpu.index} ({gpu.uuid}): {fault}")
    closed = [gpu.index for gpu in gpus if gpu.compute_mode is ComputeMode.PROHIBITED]
    if closed:
        report.warn(
            ProblemKind.HARDWARE,
            f"{list_gpus(closed)}: the compute mode PROHIBITED lets no program in; set it back with nvidia-smi -c DEFAULT",
        )
    if not gpus and not selection.unreadable and not selection.hides:
        report.warn(ProblemKind.HARDWARE, "the driver shows no GPU")
