"""The demo: a simulated node and a stand-in kubelet, from discovery to what a container gets, and what happens when things change.

Everything between the simulated driver and the stand-in kubelet is the plugin itself, over real sockets.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.errors import PluginError
from device_plugin.simulation.kubelet import StandInKubelet
from device_plugin.simulation.kubelet_devices import KubeletCrashed, Pod, PodRejected, StartRefused
from device_plugin.simulation.kubelet_record import Happening
from device_plugin.simulation.node import SimulatedNode
from device_plugin.simulation.plugin import SimulatedPlugin
from device_plugin.simulation.story import Story
from device_plugin.supervisor.holders import BOOKED_WITHIN_SECONDS
from device_plugin.supervisor.supervisor import HOLDERS_POLL_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2 import ContainerAllocateResponse

GPU = "nvidia.com/gpu"
STEP_SECONDS = 8.0  # a step that takes longer has failed; all of them together take about five
_PROFILE = "dgx-a100"
_TIMES = """\
flags: {migStrategy: mixed}
health: {probeInterval: 250ms, recoverAfter: 1s}
reconcile: {rediscoveryInterval: 500ms, leavingGrace: 1s}
"""
_SHARED = """\
sharing:
  timeSlicing:
    resources:
      - {name: nvidia.com/gpu, replicas: 4}
"""


class DemoFailed(PluginError):
    """A step of the demo did not come to its end."""


async def play(write: Callable[[str], object], *, program: str, colour: bool) -> None:
    """Run the whole demo, printing through `write`. `program` is what to type for more of it.

    Raises DemoFailed if a step does not come to its end.
    """
    try:
        await _play(write, program=program, colour=colour)
    except TimeoutError as error:
        raise DemoFailed("the last step did not come to its end in time") from error
    except (PodRejected, StartRefused, KubeletCrashed) as error:
        raise DemoFailed(f"the stand-in kubelet says: {error}") from error


async def _play(write: Callable[[str], object], *, program: str, colour: bool) -> None:
    async with AsyncExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gpu-demo-")))
        node = stack.enter_context(SimulatedNode(_PROFILE))
        plugins, pod_resources = directory / "device-plugins", directory / "pod-resources"
        plugins.mkdir()
        pod_resources.mkdir()
        config = directory / "config.yaml"
        config.write_text(_TIMES)
        kubelet = await stack.enter_async_context(StandInKubelet(plugins, pod_resources=pod_resources / "kubelet.sock"))
        story = Story(write, colour=colour)
        story.title(
            f"A simulated node: {node.name}, {len(node.gpus)} x {node.gpus[0].name}. No GPU, no kubelet, no cluster needed."
        )
        story.text("The driver is simulated and kubelet is a stand-in; all that lies between is the plugin, over real sockets.")
        demo = Demo(node, kubelet, config, story)
        started = time.monotonic()
        await stack.enter_async_context(
            SimulatedPlugin(node, plugins, config_file=config, pod_resources=pod_resources / "kubelet.sock")
        )
        await demo.start(started)
        await demo.place_pods()
        await demo.share()
        await demo.break_and_recover()
        await demo.restart_kubelet()
        await demo.end_pod()
        await demo.repartition()
        story.title(f"Done in {time.monotonic() - started:.1f} s. Next: {program} plan --simulate {_PROFILE}")


class Demo:
    """The steps, each with what is before, what is after, and how long it took."""

    def __init__(self, node: SimulatedNode, kubelet: StandInKubelet, config: Path, story: Story) -> None:
        self._node, self._kubelet, self._config, self._story = node, kubelet, config, story
        self._index = {gpu.uuid: index for index, gpu in enumerate(node.gpus)}

    async def start(self, started: float) -> None:
        self._story.step("The plugin starts: discovery, plan, registration, list")
        await self._until(lambda: self._kubelet.allocatable(GPU) == len(self._node.gpus))
        self._story.took("from the plugin's start to its list at kubelet", time.monotonic() - started)
        self._show_capacity()

    async def place_pods(self) -> None:
        self._story.step("Two pods ask for GPUs; the plugin says which fit together, kubelet asks what the containers get")
        for name, count in (("train", 2), ("serve", 1)):
            await self._place(name, GPU, count)

    async def share(self) -> None:
        self._story.step("The ConfigMap is edited: four replicas of each GPU")
        self._story.code(_SHARED)
        registrations = len(self._kubelet.record.of(Happening.REGISTERED))
        before = self._capacity(GPU)
        began = time.monotonic()
        self._swap_config(_TIMES + _SHARED)
        await self._until(lambda: any("::" in name for name in self._kubelet.listed(GPU)))
        self._story.took("from the edit to the new list", time.monotonic() - began)
        self._story.change(GPU, before, self._capacity(GPU))
        self._story.text(
            "Listed are all 32 replicas and, for a while, the 8 whole GPUs that they replace. Of the three GPUs that pods"
        )
        self._story.text("hold, the replicas wait, Unhealthy, until those pods end: no double booking.")
        again = len(self._kubelet.record.of(Happening.REGISTERED)) - registrations
        self._story.text(f"New registrations: {again}.")

    async def end_pod(self) -> None:
        self._story.step("Pod train ends; its two GPUs are shared as well")
        before = self._capacity(GPU)
        began = time.monotonic()
        self._kubelet.delete("train")
        await self._until(lambda: self._kubelet.allocatable(GPU) == before[1] + 8)
        self._story.took("from the end of the pod to the new list", time.monotonic() - began)
        self._story.text(
            f"Kubelet does not say when a pod ends: while replicas wait it is asked every {HOLDERS_POLL_SECONDS:.0f} s, and what"
        )
        self._story.text(f"was given to a pod counts as held for {BOOKED_WITHIN_SECONDS:.0f} s: it may take that long to know.")
        self._story.change(GPU, before, self._capacity(GPU))

    async def break_and_recover(self) -> None:
        self._story.step("XID 119 on GPU 5: the GSP stopped answering, the GPU wants a reset")
        before = self._capacity(GPU)
        self._node.set(5, recovery_action="reset")
        began = time.monotonic()
        self._node.xid(5, 119)
        await self._until(lambda: self._kubelet.allocatable(GPU) == before[1] - 4)
        self._story.took("from the XID to Unhealthy at kubelet, all four replicas", time.monotonic() - began)
        self._story.change(GPU, before, self._capacity(GPU))
        self._node.set(5, recovery_action="none")
        began = time.monotonic()
        await self._until(lambda: self._kubelet.allocatable(GPU) == before[1])
        self._story.took("from the reset to healthy again, by itself, after a second of calm", time.monotonic() - began)

    async def restart_kubelet(self) -> None:
        self._story.step("Kubelet restarts and forgets every device")
        await self._kubelet.restart(down_seconds=0.3)
        began = time.monotonic()
        await self._until(lambda: self._kubelet.allocatable(GPU) > 0)
        self._story.took("from kubelet's new socket to the list", time.monotonic() - began)
        self._show_capacity()
        self._story.text("The five whole GPUs that nobody held have left the list; three are still held.")

    async def repartition(self) -> None:
        self._story.step("GPU 7 is split into MIG devices while the node runs")
        before = self._capacity(GPU)
        self._node.repartition(7, ["3g.20gb", "2g.10gb", "1g.5gb", "1g.5gb"])
        began = time.monotonic()
        wanted = {"nvidia.com/mig-3g.20gb": 1, "nvidia.com/mig-2g.10gb": 1, "nvidia.com/mig-1g.5gb": 2}
        await self._until(lambda: all(self._kubelet.allocatable(name) == count for name, count in wanted.items()))
        self._story.took(
            "from the split to the new resources' lists (the node is looked at every 0.5 s here)", time.monotonic() - began
        )
        self._story.change(GPU, before, self._capacity(GPU))
        self._show_capacity()
        await self._place("notebook", "nvidia.com/mig-3g.20gb", 1)

    async def _place(self, name: str, resource: str, count: int) -> None:
        state = await self._kubelet.admit(Pod.of(name, **{resource: count}))
        ids = sorted(state.devices("main", resource))
        where = ", ".join(f"GPU {self._index[id_]}" if id_ in self._index else id_ for id_ in ids)
        self._story.pod(f"{name}: {count} x {resource} -> {where}", _injected(self._kubelet.injected(name)))

    def _swap_config(self, text: str) -> None:
        """As kubelet swaps a ConfigMap: all at once, under the same name."""
        fresh = self._config.with_suffix(".new")
        fresh.write_text(text)
        fresh.replace(self._config)

    def _capacity(self, resource: str) -> tuple[int, int]:
        return self._kubelet.capacity(resource), self._kubelet.allocatable(resource)

    def _show_capacity(self) -> None:
        for resource in sorted(self._kubelet.manager.resources):
            self._story.capacity(resource, self._capacity(resource))

    async def _until(self, condition: Callable[[], bool]) -> None:
        await self._kubelet.record.wait_for(condition, STEP_SECONDS)
        await asyncio.sleep(0)


def _injected(response: ContainerAllocateResponse) -> Mapping[str, str]:
    """What reaches the container, by kind."""
    found = {f"env {key}": value for key, value in sorted(response.envs.items())}
    found |= {f"mount {mount.container_path}": mount.host_path for mount in response.mounts}
    found |= {f"device {device.container_path}": device.permissions for device in response.devices}
    return found
