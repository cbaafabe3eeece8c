"""MIG strategies: which pieces of hardware are offered, as whole GPUs or as MIG devices."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, TypeAlias

from device_plugin.config.values import MigStrategy
from device_plugin.hardware.model import MigAttributes
from device_plugin.problems import ProblemKind
from device_plugin.sharing.identity import explain_bad_uuid
from device_plugin.sharing.phrases import join_words, list_gpus

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from device_plugin.hardware.model import Gpu, MigDevice
    from device_plugin.sharing.report import Report

Hardware: TypeAlias = "tuple[Gpu, MigDevice | None]"
"""One piece that can be offered: a whole GPU, or a MIG device of it."""

Shape: TypeAlias = MigAttributes | str
"""What must be alike under `single`: a MIG device's attributes, its profile where the driver gives none, or `WHOLE_GPU`."""

WHOLE_GPU: Final = "whole GPU"


def arrange_hardware(gpus: Sequence[Gpu], strategy: MigStrategy, keep_shape: Shape | None, report: Report) -> list[Hardware]:
    """What is offered under a strategy, in index order. `gpus` are identified and in index order.

    none: every GPU whole, as NVIDIA's plugin does. mixed: MIG devices where a GPU is split, whole GPUs elsewhere. single: as mixed,
    if all of it is of one shape; otherwise only what has `keep_shape`, which is nothing if that is None.
    """
    if strategy is MigStrategy.NONE:
        _warn_of_split(gpus, report)
        return [(gpu, None) for gpu in gpus]
    hardware: list[Hardware] = []
    uuids = {gpu.uuid for gpu in gpus}
    for gpu in gpus:
        if gpu.mig_enabled:
            hardware.extend((gpu, mig) for mig in _sound_devices(gpu, uuids, report))
        else:
            hardware.append((gpu, None))
    return _uniform(hardware, keep_shape, report) if strategy is MigStrategy.SINGLE else hardware


def find_shapes(hardware: Sequence[Hardware]) -> list[Shape | None]:
    """What `single` compares, piece by piece; None where the driver tells nothing to compare.

    A MIG device without attributes is taken to be like its namesakes, if there are any.
    """
    namesakes = {mig.profile: mig.attributes for _, mig in hardware if mig is not None and mig.attributes is not None}
    shapes: list[Shape | None] = []
    for _, mig in hardware:
        if mig is None:
            shapes.append(WHOLE_GPU)
        else:
            shapes.append(mig.attributes or (namesakes.get(mig.profile, mig.profile) if mig.profile is not None else None))
    return shapes


def shape_served(gpus: Iterable[Gpu], hardware_ids: Iterable[str]) -> Shape | None:
    """The shape of the devices served under `single`, to be given to `plan` as `keep_shape` when the hardware changes.

    `gpus` and `hardware_ids` are those of the Inventory and the Offer served. None if they are of several shapes, or of none.
    """
    ids = frozenset(hardware_ids)
    hardware: list[Hardware] = []
    for gpu in gpus:
        hardware += [(gpu, None)] if gpu.uuid in ids else []
        hardware += [(gpu, mig) for mig in gpu.mig_devices if mig.uuid in ids]
    shapes = set(find_shapes(hardware))
    return shapes.pop() if len(shapes) == 1 else None


def _warn_of_split(gpus: Sequence[Gpu], report: Report) -> None:
    split = [gpu.index for gpu in gpus if gpu.mig_enabled]
    if split:
        report.warn(
            ProblemKind.MIG,
            f"{list_gpus(split)}: in MIG mode but offered whole, since the MIG strategy is none; CUDA programs cannot use a GPU in "
            "MIG mode as a whole, so choose the MIG strategy single or mixed, or switch MIG mode off",
            "flags.migStrategy",
        )


def _sound_devices(gpu: Gpu, uuids: set[str], report: Report) -> list[MigDevice]:
    """The MIG devices that can be offered. One that cannot is withheld alone. Adds their UUIDs to `uuids`."""
    if not gpu.mig_devices:
        report.warn(
            ProblemKind.MIG,
            f"GPU {gpu.index} ({gpu.uuid}): MIG enabled, no instances, so it offers nothing; a reboot keeps MIG mode and loses the "
            "instances: create them anew, or switch MIG mode off",
        )
        report.withhold(gpu.index, gpu.uuid, "MIG enabled, no instances")
    sound = []
    for mig in sorted(gpu.mig_devices, key=lambda mig: (mig.index, mig.uuid)):
        trouble = mig.fault or explain_bad_uuid(mig.uuid)
        if trouble is None and mig.uuid in uuids:
            trouble = f"its UUID {mig.uuid} is also that of another device"
        if trouble is None:
            uuids.add(mig.uuid)
            sound.append(mig)
        else:
            report_withheld(gpu, mig, trouble, report)
    return sound


def report_withheld(gpu: Gpu, mig: MigDevice, trouble: str, report: Report) -> None:
    """One broken MIG device takes out one MIG device."""
    name = f"MIG device {gpu.index}:{mig.index}" + (f" ({mig.uuid})" if mig.uuid else "")
    report.error(ProblemKind.MIG, f"{name} is withheld, the others are not: {trouble}")
    report.withhold(gpu.index, mig.uuid, trouble, mig_index=mig.index)


def _uniform(hardware: list[Hardware], keep_shape: Shape | None, report: Report) -> list[Hardware]:
    """What may be offered under one name: all of it if it is of one shape, else what has `keep_shape`."""
    known: list[tuple[Shape, Hardware]] = []
    for shape, (gpu, mig) in zip(find_shapes(hardware), hardware, strict=True):
        if shape is not None:
            known.append((shape, (gpu, mig)))
        else:
            assert mig is not None, "a whole GPU always has a shape"
            report_withheld(gpu, mig, "the driver tells neither its attributes nor its profile, so its shape is not known", report)
    shapes = {shape for shape, _ in known}
    if len(shapes) < 2:
        return [piece for _, piece in known]
    kept = [piece for shape, piece in known if shape == keep_shape]
    outcome = f"only what has the shape served before stays ({_label(keep_shape, shapes, known)})" if kept else "nothing is offered"
    report.error(
        ProblemKind.MIG_SINGLE,
        f"the MIG strategy single needs all GPUs split alike, or none, but {_describe_layout(known, shapes)}; {outcome}. "
        "Split them alike, hide some with devices.exclude, or choose the MIG strategy mixed",
        "flags.migStrategy",
    )
    for shape, (gpu, mig) in known:
        if not kept or shape != keep_shape:
            hardware_id, mig_index = (gpu.uuid, None) if mig is None else (mig.uuid, mig.index)
            report.withhold(gpu.index, hardware_id, "does not fit the MIG strategy single", mig_index=mig_index)
    return kept


def _describe_layout(known: Sequence[tuple[Shape, Hardware]], shapes: set[Shape]) -> str:
    """`GPUs 0-3 have 7 x 1g.5gb; GPUs 4-7 are not in MIG mode`."""
    layouts: dict[int, Counter[str]] = {}
    for shape, (gpu, _) in known:
        layouts.setdefault(gpu.index, Counter())[_label(shape, shapes, known)] += 1
    alike: dict[str, list[int]] = {}
    for index, counts in layouts.items():
        words = ["no MIG mode" if label == WHOLE_GPU else f"{count} x {label}" for label, count in sorted(counts.items())]
        alike.setdefault(join_words(words), []).append(index)
    return "; ".join(f"{list_gpus(indexes)}: {layout}" for layout, indexes in alike.items())


def _label(shape: Shape | None, shapes: set[Shape], known: Sequence[tuple[Shape, Hardware]]) -> str:
    """A shape's profile; with its size where two shapes share the profile's name, as two models of one family do."""
    if not isinstance(shape, MigAttributes):
        return str(shape)
    profiles: dict[Shape, str] = {other: mig.profile or "unnamed" for other, (_, mig) in known if mig is not None}
    profile = profiles.get(shape, "unnamed")
    if sum(profiles.get(other) == profile for other in shapes) < 2:
        return profile
    return f"{profile} of {shape.memory_size_mib} MiB and {shape.multiprocessor_count} SMs"
