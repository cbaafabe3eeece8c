"""A process's life when nothing happens: its start, its memory, what it does while idle."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bench.figures import Budget, Row, percentile
from bench.scene import Scene, shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.process import Usage

GROUP = "start and idle (dgx-a100, 10 replicas)"
REPLICAS = 10
DEVICES = 8 * REPLICAS
START_BUDGET = Budget(ratio=1.4)
RSS_BUDGET = Budget(ratio=1.2, limit=64)
IDLE_SECONDS = 10.0
STARTS_PER_ROUND = 12


@dataclass(slots=True)
class Lives:
    """What several lives of one kind of process have shown."""

    rounds: list[list[float]] = field(default_factory=list)  # the starts of each round, in milliseconds
    usages: list[Usage] = field(default_factory=list)
    cpu_percents: list[float] = field(default_factory=list)
    wakeups: list[float] = field(default_factory=list)


async def measure_life(rounds: int) -> list[Row]:
    """Start to Register, memory after 10 s of idleness, CPU and wake-ups meanwhile; plugin and floor in turn."""
    async with Scene("dgx-a100", shared(REPLICAS), DEVICES) as first:  # not counted: it writes the byte-code
        answers = {"list": await first.read_list()}
    kinds: list[tuple[Lives, Mapping[str, bytes] | None]] = [(Lives(), None), (Lives(), answers)]
    async with Scene("dgx-a100", shared(REPLICAS), DEVICES, answers=answers):
        pass
    for _ in range(rounds):
        for lives, _ in kinds:
            lives.rounds.append([])
        for number in range(STARTS_PER_ROUND):
            for lives, given in kinds:
                async with Scene("dgx-a100", shared(REPLICAS), DEVICES, answers=given) as scene:
                    lives.rounds[-1].append(scene.start_seconds * 1000)
                    if number == 0:
                        await _idle(scene, lives)
    plugin, floor = (lives for lives, _ in kinds)
    return [
        Row(GROUP, "process start to Register, p50", "ms", _median_start(plugin), _median_start(floor), START_BUDGET),
        Row(GROUP, "process start to Register, fastest", "ms", _fastest_start(plugin), _fastest_start(floor)),
        Row(GROUP, "RSS", "MiB", _least(plugin, "rss_mib"), _least(floor, "rss_mib"), RSS_BUDGET),
        Row(GROUP, "PSS", "MiB", _least(plugin, "pss_mib"), _least(floor, "pss_mib")),
        Row(GROUP, "idle CPU", "%", min(plugin.cpu_percents), min(floor.cpu_percents)),
        Row(GROUP, "idle wake-ups a second", "1/s", min(plugin.wakeups), min(floor.wakeups)),
        Row(GROUP, "threads", "", _least(plugin, "threads"), _least(floor, "threads")),
    ]


async def _idle(scene: Scene, lives: Lives) -> None:
    before = scene.usage()
    await asyncio.sleep(IDLE_SECONDS)
    after = scene.usage()
    lives.usages.append(after)
    lives.cpu_percents.append((after.cpu_seconds - before.cpu_seconds) / IDLE_SECONDS * 100)
    lives.wakeups.append((after.wakeups - before.wakeups) / IDLE_SECONDS)


def _median_start(lives: Lives) -> float:
    """Of the best round. The fastest start of all would favour the floor: the shorter one fits sooner into a quiet moment."""
    return min(percentile(starts, 50) for starts in lives.rounds)


def _fastest_start(lives: Lives) -> float:
    return min(min(starts) for starts in lives.rounds)


def _least(lives: Lives, name: str) -> float:
    return min(float(getattr(usage, name)) for usage in lives.usages)
