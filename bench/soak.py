"""`python -m bench.soak`: storms on one process, which must end in the right state and without having grown.

First 1,000 config swaps among five configs, one of them broken, some closer together than the plugin can follow; then 200 kubelet
restarts. Memory, descriptors and threads are counted after the first hundred swaps, and at the end of each storm.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.process import BenchFailed
from bench.scene import GPU, Scene

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.process import Usage

SWAPS, SWAPS_BEFORE_COUNTING = 1000, 100
RESTARTS, RESTARTS_BEFORE_COUNTING = 200, 20
SWAP_PAUSES_SECONDS = 0.02, 0.3
MAX_GROWTH_MIB = 2.0
MAX_MORE_DESCRIPTORS = 4  # connections to kubelet come and go; a leak would be one for each of hundreds
SETTLE_SECONDS = 30.0
QUIET_SECONDS = 2.5  # the grace below, and a look at pod-resources

# A short grace, so that what left with one config is gone before the count, and not only a minute later.
_HEAD = "version: v1\nreconcile: { leavingGrace: 1s, rediscoveryInterval: 5s }\n"
_SHARED = _HEAD + "sharing: { timeSlicing: { resources: [{ name: nvidia.com/gpu, %s }] } }\n"


@dataclass(frozen=True, slots=True)
class Variant:
    """One config of the five, with the healthy devices that it gives on 8 GPUs; None: it is broken."""

    text: str
    healthy: dict[str, int] | None


VARIANTS = (
    Variant(_HEAD, {GPU: 8}),
    Variant(_SHARED % "replicas: 4", {GPU: 32}),
    Variant(_SHARED % "replicas: 10", {GPU: 80}),
    Variant(_SHARED % "replicas: 3, rename: nvidia.com/gpu.shared", {"nvidia.com/gpu.shared": 24}),
    Variant(_SHARED % "replicas: many", None),
)


@dataclass(frozen=True, slots=True)
class Storm:
    """What one storm has done to the process."""

    name: str
    rss_before_mib: float
    rss_after_mib: float
    descriptors_before: int
    descriptors_after: int
    threads_before: int
    threads_after: int

    @classmethod
    def between(cls, name: str, before: Usage, after: Usage) -> Storm:
        return cls(name, before.rss_mib, after.rss_mib, before.descriptors, after.descriptors, before.threads, after.threads)

    @property
    def faults(self) -> list[str]:
        """What grew, in words."""
        faults = []
        if self.rss_after_mib - self.rss_before_mib > MAX_GROWTH_MIB:
            faults.append(f"memory grew by more than {MAX_GROWTH_MIB:g} MiB")
        if self.descriptors_after - self.descriptors_before > MAX_MORE_DESCRIPTORS:
            faults.append("descriptors were leaked")
        if self.threads_after > self.threads_before:
            faults.append("threads were leaked")
        return faults

    def __str__(self) -> str:
        return (
            f"{self.name}: RSS {self.rss_before_mib:.1f} -> {self.rss_after_mib:.1f} MiB, descriptors {self.descriptors_before} -> "
            f"{self.descriptors_after}, threads {self.threads_before} -> {self.threads_after}: {'; '.join(self.faults) or 'pass'}"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0 if the state was right and nothing grew, 1 if not, 2 if it could not be tried."""
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--output", type=Path, default=Path("build/soak.json"), help="where the JSON goes; default: build/soak.json"
    )
    parser.add_argument(
        "--swaps", type=int, default=SWAPS, help=f"config swaps, at least {SWAPS_BEFORE_COUNTING}; default: {SWAPS}"
    )
    parser.add_argument("--restarts", type=int, default=RESTARTS, help=f"kubelet restarts; default: {RESTARTS}")
    arguments = parser.parse_args(argv)
    try:
        storms = asyncio.run(soak(arguments.swaps, arguments.restarts))
    except BenchFailed as failure:
        print(failure, file=sys.stderr)
        return 2
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    arguments.output.write_text(json.dumps([asdict(storm) | {"faults": storm.faults} for storm in storms], indent=2) + "\n")
    return 1 if any(storm.faults for storm in storms) else 0


async def soak(swaps: int, restarts: int) -> list[Storm]:
    """Both storms on one process. Raises `BenchFailed` where the state at the end is wrong."""
    async with Scene("dgx-a100", VARIANTS[0].text, 8) as scene:
        storms = [await _swap_storm(scene, swaps), await _restart_storm(scene, restarts)]
        ended_after = await scene.process.end()
        print(f"SIGTERM to the end: {ended_after:.2f} s")
        return storms


async def _swap_storm(scene: Scene, swaps: int) -> Storm:
    rng = random.Random(swaps)  # a repeatable order
    counts = []
    for number in range(1, swaps + 1):
        scene.config_map.swap(rng.choice(VARIANTS).text)
        await asyncio.sleep(rng.uniform(*SWAP_PAUSES_SECONDS))
        if number % SWAPS_BEFORE_COUNTING == 0 or number == swaps:
            await _check_last_good(scene, rng.choice(VARIANTS[1:-1]))
            await _show(scene, VARIANTS[0])  # always counted in this state
            counts.append(scene.usage())
            print(f"{number} swaps: RSS {counts[-1].rss_mib:.1f} MiB", flush=True)
    storm = Storm.between(f"{swaps} config swaps", counts[0], counts[-1])
    print(storm, flush=True)
    return storm


async def _check_last_good(scene: Scene, good: Variant) -> None:
    """A good config, then a broken one: what holds in the end is the good one. Raises `BenchFailed` if not."""
    await _show(scene, good)
    scene.config_map.swap(VARIANTS[-1].text)
    await scene.process.wait_logged("config.refused")
    await asyncio.sleep(1)
    await _settle(scene, good)


async def _restart_storm(scene: Scene, restarts: int) -> Storm:
    rng = random.Random(restarts)  # a repeatable order
    before = scene.usage()
    for number in range(1, restarts + 1):
        await scene.kubelet.restart(down_seconds=rng.uniform(0, 0.3))
        await scene.wait_healthy(8)
        if number == RESTARTS_BEFORE_COUNTING:
            await asyncio.sleep(QUIET_SECONDS)
            before = scene.usage()
    await asyncio.sleep(QUIET_SECONDS)
    storm = Storm.between(f"{restarts} kubelet restarts", before, scene.usage())
    print(storm, flush=True)
    return storm


async def _show(scene: Scene, variant: Variant) -> None:
    """Swap to a good config, wait for its state and for quiet."""
    scene.config_map.swap(variant.text)
    await _settle(scene, variant)
    await asyncio.sleep(QUIET_SECONDS)


async def _settle(scene: Scene, variant: Variant) -> None:
    """Wait until kubelet's healthy devices are exactly what the config gives. Raises `BenchFailed`."""
    kubelet = scene.kubelet

    def healthy() -> dict[str, int]:
        counts = {name: kubelet.allocatable(name) for name in (GPU, "nvidia.com/gpu.shared")}
        return {name: count for name, count in counts.items() if count}

    try:
        await kubelet.record.wait_for(lambda: healthy() == variant.healthy, SETTLE_SECONDS)
    except TimeoutError:
        raise BenchFailed(f"kubelet has {healthy()} healthy devices, not {variant.healthy}\n{scene.process.log_tail()}") from None


if __name__ == "__main__":
    sys.exit(main())
