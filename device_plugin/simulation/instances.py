"""Where MIG devices go on a GPU: instance ids, indexes and UUIDs, given as drivers give them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.records import record
from device_plugin.simulation.machine import MigInstance, MigShape, generated_uuid

if TYPE_CHECKING:
    from collections.abc import Sequence


@record
class WantedInstance:
    """A MIG device that is to be there; what is None is chosen."""

    profile: str
    uuid: str | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    memory_mib: int | None = None
    unsupported: frozenset[str] = frozenset()


def place_instances(
    gpu_uuid: str, memory_bytes: int | None, wanted: Sequence[WantedInstance], present: Sequence[MigInstance]
) -> tuple[MigInstance, ...]:
    """The MIG devices of a GPU that is to have `wanted`. Those `present` that fit stay as they are, UUID and all.

    Large instances have the low numbers. A UUID is made from the place, so an instance that is destroyed and made again at the
    same place is the same one. Raises `ValueError` for what is no MIG profile.
    """
    left = list(present)
    placed: list[MigInstance] = []
    new: list[WantedInstance] = []
    for want in wanted:
        fitting = next((each for each in left if each.profile == want.profile and want.uuid in (None, each.uuid)), None)
        if fitting is None:
            new.append(want)
        else:
            left.remove(fitting)
            placed.append(fitting)
    for want in new:
        gpu_instance, compute_instance = _free_place(want, placed)
        placed.append(
            MigInstance(
                index=_first_free(0, {each.index for each in placed}),
                profile=want.profile,
                uuid=want.uuid or generated_uuid("MIG", gpu_uuid, gpu_instance, compute_instance, want.profile),
                gpu_instance=gpu_instance,
                compute_instance=compute_instance,
                memory_mib=want.memory_mib or MigShape.parse(want.profile).memory_mib(memory_bytes),
                unsupported=want.unsupported,
            )
        )
    return tuple(sorted(placed, key=lambda instance: instance.index))


def _free_place(want: WantedInstance, placed: Sequence[MigInstance]) -> tuple[int, int]:
    """GPU instance id and compute instance id. Partial compute instances (1c.3g.20gb) fill up one GPU instance before the next."""
    shape = MigShape.parse(want.profile)
    if want.gpu_instance is not None:
        used = {each.compute_instance for each in placed if each.gpu_instance == want.gpu_instance}
        return want.gpu_instance, _first_free(0, used) if want.compute_instance is None else want.compute_instance
    if shape.compute_slices < shape.slices:
        for gpu_instance in sorted({each.gpu_instance for each in placed}):
            siblings = [each for each in placed if each.gpu_instance == gpu_instance]
            shapes = [MigShape.parse(each.profile) for each in siblings]
            used_slices = sum(each.compute_slices for each in shapes)
            if shapes[0].instance_profile == shape.instance_profile and used_slices + shape.compute_slices <= shape.slices:
                return gpu_instance, _first_free(0, {each.compute_instance for each in siblings})
    return _first_free(_first_id(shape.slices), {each.gpu_instance for each in placed}), 0


def _first_id(slices: int) -> int:
    """The lowest id that drivers give an instance of so many slices: 0 for a whole GPU, then halves, quarters, slices."""
    return {1: 7, 2: 3, 3: 1, 4: 1}.get(slices, 0)


def _first_free(first: int, taken: set[int]) -> int:
    number = first
    while number in taken:
        number += 1
    return number
