"""How fast the plugin follows: config edits, kubelet restarts, XIDs."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from bench.figures import Budget, Row, percentile
from bench.process import BenchFailed
from bench.scene import GPU, WHOLE, Scene, TimedKubelet, shared
from device_plugin.logs import configure, get_logger
from device_plugin.simulation.kubelet_record import Happening
from device_plugin.simulation.node import SimulatedNode
from device_plugin.simulation.plugin import SimulatedPlugin
from device_plugin.simulation.profile_file import profile_path

if TYPE_CHECKING:
    from collections.abc import Callable

SWAPS = 20
POLL_SECONDS = 2
RESTARTS = 50
RETURN_BUDGETS = Budget(limit=60), Budget(limit=300)
POLLED_RETURN_BUDGET = Budget(limit=500)
SLOW_SECONDS = 2
FAULTS_AT_SECONDS = 6.0
ACCEPTS_AFTER_SECONDS = 0.3
STORM_XIDS = 10_000
FATAL_XID, HARMLESS_XID = 79, 13  # NVIDIA's catalogue: the GPU has fallen off the bus; an application's own fault


async def measure_swaps(rounds: int) -> list[Row]:
    """From the rename of a ConfigMap's `..data` to the new list at the stand-in kubelet."""
    group = "config edit to new list (dgx-a100, 4 <-> 10 replicas)"
    rows = []
    for name, flags, count, limit in (
        ("with notifications", (), SWAPS * rounds, 1000.0),
        (
            f"polled every {POLL_SECONDS} s",
            ("--file-notifications=false", f"--config-poll-interval={POLL_SECONDS}s"),
            4 * rounds,
            POLL_SECONDS * 1000.0 + 300,
        ),
    ):
        async with Scene("dgx-a100", shared(10), 80, flags=flags) as scene:
            times = [await _swap(scene, 4 if number % 2 == 0 else 10, number) for number in range(count)]
            if len(scene.kubelet.asked_at) != 1:
                raise BenchFailed(
                    f"{len(scene.kubelet.asked_at)} registrations of a resource that stayed\n{scene.process.log_tail()}"
                )
        rows += _middle_and_worst(group, f"{name}, {count} edits", times, (None, Budget(limit=limit)))
    return rows


async def _swap(scene: Scene, replicas: int, number: int) -> float:
    await asyncio.sleep(0.05 * (number % 7))
    swapped_at = asyncio.get_running_loop().time()
    scene.config_map.swap(shared(replicas))
    return (await scene.wait_healthy(8 * replicas) - swapped_at) * 1000


async def measure_restarts(rounds: int) -> list[Row]:
    """From kubelet's socket accepting to the Register call, over 50 restarts each; `rounds` does not matter here."""
    del rounds
    with TemporaryDirectory(prefix="gdp-bench-") as path:
        slow = _profile_with(Path(path), f"  - {{ atSeconds: {FAULTS_AT_SECONDS}, do: slow, seconds: {SLOW_SECONDS} }}\n")
        rows = []
        for name, profile, flags, accepts_after in (
            ("as it is", "dgx-a100", (), 0.0),
            (f"every NVML call takes {SLOW_SECONDS} s", slow, (), 0.0),
            ("socket bound before it accepts", "dgx-a100", (), ACCEPTS_AFTER_SECONDS),
            ("no notifications", "dgx-a100", ("--file-notifications=false",), 0.0),
        ):
            async with Scene(profile, WHOLE, 8, flags=flags) as scene:
                if profile is slow:
                    await scene.process.wait_logged("fault.played")
                gaps = await _restart(scene, accepts_after)
            budgets = (None, POLLED_RETURN_BUDGET) if flags else RETURN_BUDGETS
            rows += _middle_and_worst("kubelet accepts to Register", f"{name}, {RESTARTS} restarts", gaps, budgets)
    return rows


async def _restart(scene: Scene, accepts_after_seconds: float, restarts: int = RESTARTS) -> list[float]:
    """Milliseconds for each restart. Kubelet is away for up to 0.4 s, so that polls are met at any phase."""
    rng = random.Random(restarts)  # a repeatable order
    gaps = []
    for _ in range(restarts):
        asked = len(scene.kubelet.asked_at)
        await scene.kubelet.restart(down_seconds=rng.uniform(0, 0.4), accept_after_seconds=accepts_after_seconds)
        accepted_at = scene.kubelet.record.of(Happening.STARTED)[-1].time
        await scene.wait_healthy(8)
        gaps.append((scene.kubelet.asked_at[asked] - accepted_at) * 1000)
    return gaps


async def measure_xids(rounds: int) -> list[Row]:
    """From the driver's event to the Unhealthy device at the stand-in kubelet; and a storm of XIDs, after which SIGTERM comes."""
    group = "XIDs"
    times = [time for _ in range(rounds) for time in await _xid_times()]
    rows = _middle_and_worst(group, f"XID to Unhealthy, {len(times)} GPUs", times, (None, Budget(limit=200)))
    settled, ended = await _storm()
    rows.append(Row(group, f"{STORM_XIDS:,} XIDs at once to the final state", "ms", settled * 1000))
    rows.append(
        Row(
            group,
            f"SIGTERM right after {STORM_XIDS:,} XIDs to the end of the process",
            "ms",
            ended * 1000,
            budget=Budget(limit=5000),
        )
    )
    return rows


async def _xid_times() -> list[float]:
    """The plugin in this process, for the moment of an event to be known; it shares the processor with the stand-in kubelet."""
    times = []
    with TemporaryDirectory(prefix="gdp-bench-") as path, (Path(path) / "log").open("w") as log:
        configure("info", "json", log)
        kubelet = TimedKubelet(Path(path) / "plugins", pod_resources=Path(path) / "pod-resources" / "kubelet.sock")
        with SimulatedNode("v100x16") as node:
            async with kubelet, SimulatedPlugin(node, kubelet.directory, pod_resources=kubelet.pod_resources, logger=get_logger()):
                await kubelet.wait_allocatable(GPU, 16)
                await asyncio.sleep(1)  # the event thread watches
                for number, gpu in enumerate(node.gpus):
                    asked_at = asyncio.get_running_loop().time()
                    node.xid(number, FATAL_XID)
                    await kubelet.record.wait_for(_is_unhealthy(kubelet, gpu.uuid))
                    times.append((kubelet.record.of(Happening.LIST, GPU)[-1].time - asked_at) * 1000)
                    await asyncio.sleep(0.1)
    return times


async def _storm() -> tuple[float, float]:
    """Ten thousand XIDs in one go, the fatal ones of the first four GPUs among them; seconds to the final state, and to the end."""
    fatal_at = {STORM_XIDS // 8 * (gpu + 1): gpu for gpu in range(4)}
    steps = "".join(
        f"  - {{ atSeconds: {FAULTS_AT_SECONDS}, do: xid, gpu: {fatal_at.get(number, number % 8)}, "
        f"xid: {FATAL_XID if number in fatal_at else HARMLESS_XID} }}\n"
        for number in range(STORM_XIDS)
    )
    with TemporaryDirectory(prefix="gdp-bench-") as path:
        profile = _profile_with(Path(path), steps)
        async with Scene(profile, WHOLE, 8) as scene:
            loop = asyncio.get_running_loop()
            await scene.process.wait_logged("fault.played")
            started_at = loop.time()
            await scene.wait_healthy(4)
            settled = loop.time() - started_at
            await scene.process.wait_logged("fault.played", STORM_XIDS)
            await asyncio.sleep(0.5)
            if scene.kubelet.allocatable(GPU) != 4:
                raise BenchFailed(f"{scene.kubelet.allocatable(GPU)} healthy GPUs after the storm, not 4")
        async with Scene(profile, WHOLE, 8) as scene:
            await scene.process.wait_logged("fault.played")
            return settled, await scene.process.end()


def _is_unhealthy(kubelet: TimedKubelet, gpu_uuid: str) -> Callable[[], bool]:
    return lambda: kubelet.listed(GPU).get(gpu_uuid) == "Unhealthy"


def _profile_with(directory: Path, faults: str) -> str:
    """A copy of the DGX A100's profile with a script of faults; its path."""
    path = directory / f"profile-{len(faults)}.yaml"
    path.write_text(f"{profile_path('dgx-a100').read_text()}faults:\n{faults}")
    return str(path)


def _middle_and_worst(group: str, name: str, times: list[float], budgets: tuple[Budget | None, Budget | None]) -> list[Row]:
    return [
        Row(group, f"{name}, median", "ms", percentile(times, 50), budget=budgets[0]),
        Row(group, f"{name}, worst", "ms", max(times), budget=budgets[1]),
    ]
