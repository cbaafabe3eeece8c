"""The calls of kubelet, asked of the plugin and of the floor in turn."""

from __future__ import annotations

import random
import time
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING

from bench.figures import Budget, Row, best_percentile, percentile
from bench.scene import GPU, WHOLE, Scene, shared
from device_plugin.allocation.model import Injection
from device_plugin.allocation.table import build_table
from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.listing import list_from_resource
from device_plugin.serving.served import ServedDevice, ServedResource
from device_plugin.sharing.offer import Device, PreferencePolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import DevicePluginAsyncStub

Round = tuple[list[float], list[float]]  # milliseconds of the plugin's calls and of the floor's
Request = pb.AllocateRequest | pb.PreferredAllocationRequest

ALLOCATE_BUDGET = Budget(ratio=1.3)
PREFER_BUDGET = Budget(over=5.0)
PREFER_MANY_BUDGET = Budget(over=20.0)
WARM_UP_CALLS = 20
CALLS_IN_TURN = 10
CALL_SECONDS = 30
MANY = 8000


@dataclass(frozen=True, slots=True)
class Question:
    """One kind of call. `key` names the answer for the floor; the requests differ in order only, as kubelet's do."""

    key: str
    name: str
    requests: tuple[Request, ...]
    calls: int
    judged_percent: int
    budget: Budget

    async def ask(self, stub: DevicePluginAsyncStub, calls: int) -> list[float]:
        """Ask so many times, one call after the other; milliseconds for each."""
        times = []
        for request in islice(cycle(self.requests), calls):
            started = time.perf_counter()
            await _call(stub, request)
            times.append((time.perf_counter() - started) * 1000)
        return times

    async def answer(self, stub: DevicePluginAsyncStub) -> bytes:
        """The answer to the first request, for the floor to give."""
        return (await _call(stub, self.requests[0])).SerializeToString()


async def _call(stub: DevicePluginAsyncStub, request: Request) -> pb.AllocateResponse | pb.PreferredAllocationResponse:
    if isinstance(request, pb.AllocateRequest):
        return await stub.Allocate(request, timeout=CALL_SECONDS)
    return await stub.GetPreferredAllocation(request, timeout=CALL_SECONDS)


def allocate_question(ids: Sequence[str], size: int, calls: int) -> Question:
    """One container that gets the first devices."""
    request = pb.AllocateRequest()
    request.container_requests.add(devices_ids=ids[:size])
    return Question(f"allocate/{size}", f"Allocate, {size} device{'s' if size > 1 else ''}", (request,), calls, 50, ALLOCATE_BUDGET)


def prefer_question(ids: Sequence[str], size: int, calls: int) -> Question:
    """One container, every device free, in orders drawn at random."""
    rng = random.Random(size)  # a repeatable order
    requests = []
    for _ in range(5):
        request = pb.PreferredAllocationRequest()
        request.container_requests.add(available_deviceIDs=rng.sample(ids, len(ids)), allocation_size=size)
        requests.append(request)
    name = f"GetPreferredAllocation, {size} of {len(ids)}"
    return Question(f"prefer/{size}", name, tuple(requests), calls, 95, PREFER_MANY_BUDGET if len(ids) == MANY else PREFER_BUDGET)


@dataclass(frozen=True, slots=True)
class Subject:
    """A node with its config, as the table names it."""

    group: str
    profile: str
    config: str
    devices: int

    def scene(self, answers: Mapping[str, bytes] | None = None) -> Scene:
        """The plugin, or with answers the floor."""
        return Scene(self.profile, self.config, self.devices, answers=answers)


EIGHT = Subject("8 GPUs (dgx1-v100)", "dgx1-v100", WHOLE, 8)
SIXTEEN = Subject("16 GPUs (v100x16)", "v100x16", WHOLE, 16)
THOUSANDS = Subject(f"{MANY:,} devices (dgx-a100, 1,000 replicas)", "dgx-a100", shared(MANY // 8), MANY)


async def measure_calls(rounds: int) -> list[Row]:
    """Allocate and GetPreferredAllocation on 8 and on 16 whole GPUs."""
    async with _side_by_side(
        EIGHT,
        lambda ids: [
            *(allocate_question(ids, size, 1000) for size in (1, 8)),
            *(prefer_question(ids, size, 200) for size in range(1, 9)),
        ],
    ) as (plugin, floor, questions):
        rows = await _rows(EIGHT.group, questions, plugin, floor, rounds)
    async with _side_by_side(SIXTEEN, lambda ids: [prefer_question(ids, size, 200) for size in range(1, 17)]) as (
        plugin,
        floor,
        questions,
    ):
        return rows + await _rows(SIXTEEN.group, questions, plugin, floor, rounds)


async def measure_many(rounds: int) -> list[Row]:
    """8 GPUs of which each is 1,000 devices: preferences, and the list."""
    async with _side_by_side(THOUSANDS, lambda ids: [prefer_question(ids, size, 60) for size in (1, 2, 8, 100, 4000)]) as (
        plugin,
        floor,
        questions,
    ):
        rows = await _rows(THOUSANDS.group, questions, plugin, floor, rounds)
        rows += await _list_rows(THOUSANDS.group, plugin, floor, rounds)
    built = [_build_seconds() * 1000 for _ in range(3 * rounds)]
    return [*rows, Row(THOUSANDS.group, "list and look-up table built anew, best", "ms", min(built))]


@asynccontextmanager
async def _side_by_side(
    subject: Subject, questions_of: Callable[[Sequence[str]], list[Question]]
) -> AsyncIterator[tuple[Scene, Scene, list[Question]]]:
    """The plugin and, beside it, a floor that knows its answers."""
    async with subject.scene() as plugin:
        questions = questions_of(sorted(plugin.kubelet.listed(GPU)))
        answers = {question.key: await question.answer(plugin.stub) for question in questions}
        answers["list"] = await plugin.read_list()
        async with subject.scene(answers) as floor:
            yield plugin, floor, questions


async def _ask_in_turn(question: Question, plugin: Scene, floor: Scene) -> Round:
    """One round: a few calls here, a few there, so that whatever else the machine does hits both."""
    times: Round = ([], [])
    for scene in (plugin, floor):
        await question.ask(scene.stub, WARM_UP_CALLS)
    for _ in range(question.calls // CALLS_IN_TURN):
        for scene, into in zip((plugin, floor), times, strict=True):
            into.extend(await question.ask(scene.stub, CALLS_IN_TURN))
    return times


async def _rows(group: str, questions: Sequence[Question], plugin: Scene, floor: Scene, rounds: int) -> list[Row]:
    rows = []
    for question in questions:
        asked = [await _ask_in_turn(question, plugin, floor) for _ in range(rounds)]
        for percent in (50, 95):
            best, best_of_floor = (best_percentile([times[which] for times in asked], percent) for which in (0, 1))
            name = f"{question.name}, p{percent}"
            rows.append(
                Row(group, name, "ms", best, best_of_floor, question.budget if percent == question.judged_percent else None)
            )
    return rows


async def _list_rows(group: str, plugin: Scene, floor: Scene, rounds: int) -> list[Row]:
    sent: Round = ([], [])
    for _ in range(10 * rounds):
        for scene, times in zip((plugin, floor), sent, strict=True):
            started = time.perf_counter()
            await scene.read_list()
            times.append((time.perf_counter() - started) * 1000)
    return [
        Row(group, "list sent to a new stream, p50", "ms", percentile(sent[0], 50), percentile(sent[1], 50)),
        Row(group, "process start to list", "ms", plugin.list_seconds * 1000, floor.list_seconds * 1000),
    ]


def _build_seconds() -> float:
    """How long a change of the list takes before it can be sent: this is the work, in this process."""
    devices = [
        ServedDevice(
            Device(
                f"GPU-{gpu:036d}::{replica}", f"GPU-{gpu:036d}", f"GPU-{gpu:036d}", str(gpu), replica=replica, numa_node=gpu // 4
            )
        )
        for gpu in range(8)
        for replica in range(MANY // 8)
    ]
    resource = ServedResource(GPU, tuple(devices), PreferencePolicy.DISTRIBUTED)
    started = time.perf_counter()
    list_from_resource(resource)
    build_table(resource, (), Injection())
    return time.perf_counter() - started
