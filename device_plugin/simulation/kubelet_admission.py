"""How the stand-in kubelet admits pods and starts containers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.simulation.kubelet_devices import Grant, KubeletCrashed, PodRejected, PodState, StartRefused
from device_plugin.simulation.kubelet_plugin import CallFailed
from device_plugin.simulation.kubelet_record import Happening

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable

    from device_plugin.simulation.kubelet_devices import Container, DeviceManager, Pod
    from device_plugin.simulation.kubelet_plugin import PluginClient
    from device_plugin.simulation.kubelet_record import Record

READMIT_SECONDS = 0.9  # seen between the opening of the socket and the first admission of a container that was not running


class Admission:
    """Allocates for pods, one after the other: a hanging Allocate stops them all. `fall` is how kubelet dies of a panic."""

    def __init__(
        self,
        manager: DeviceManager,
        clients: dict[str, PluginClient],
        record: Record,
        rng: random.Random,
        fall: Callable[[KubeletCrashed], Awaitable[None]],
    ) -> None:
        self._manager = manager
        self._clients = clients
        self._record = record
        self._rng = rng
        self._fall = fall
        self._main_loop = asyncio.Lock()

    async def admit(self, pod: Pod) -> PodState:
        """Allocate for every container, then start them. Raises `PodRejected`, `StartRefused` or `KubeletCrashed`."""
        async with self._main_loop:
            state = self._manager.pods[pod.name] = PodState(pod)
            await self._allocate_all(state)
        for container in pod.containers:
            if not container.is_init:
                await self.start_container(pod.name, container.name)
        return state

    async def readmit(self) -> None:
        """After kubelet's start: admit anew the pods that have a container which is not running."""
        await asyncio.sleep(READMIT_SECONDS)
        for state in list(self._manager.pods.values()):
            waiting = [c.name for c in state.pod.containers if not c.is_init and c.name not in state.running]
            if state.failure is not None or not waiting:
                continue
            try:
                async with self._main_loop:
                    await self._allocate_all(state)
                for container in waiting:
                    if self._manager.pods.get(state.pod.name) is state:  # it may be deleted meanwhile
                        await self.start_container(state.pod.name, container)
            except (PodRejected, StartRefused):
                continue  # both are in the record, and a rejection in the pod's state

    async def start_container(self, pod: str, container: str) -> None:
        """Start, or start again, one container: no health check, no Allocate, only PreStartContainer where it was asked for.

        Raises `StartRefused`; the container is then not running and may be started again.
        """
        state = self._manager.pods[pod]
        state.running.discard(container)
        for resource, grant in sorted(state.granted.get(container, {}).items()):
            if self._manager.resources[resource].pre_start_required:
                await self._pre_start(resource, list(grant.devices))
        state.running.add(container)
        self._record.add(Happening.CONTAINER_STARTED, detail=f"{pod}/{container}")

    def injected(self, pod: str, container: str) -> pb.ContainerAllocateResponse:
        """What the container gets of all its resources together. Where two set one variable, either may win."""
        grants = sorted(self._manager.pods[pod].granted.get(container, {}).items())
        self._rng.shuffle(grants)
        merged = pb.ContainerAllocateResponse()
        for _, grant in grants:
            merged.MergeFrom(grant.response)
        return merged

    async def _allocate_all(self, state: PodState) -> None:
        try:
            for container in state.pod.containers:
                for resource in sorted(container.requests):
                    await self._allocate(state, container, resource)
        except PodRejected as rejection:
            state.failure = f"Pod was rejected: Allocate failed due to {rejection}, which is unexpected"
            self._record.add(Happening.REJECTED, detail=f"{state.pod.name}: {state.failure}")
            raise PodRejected(state.failure) from rejection
        self._record.add(Happening.ADMITTED, detail=state.pod.name)

    async def _allocate(self, state: PodState, container: Container, resource: str) -> None:
        manager = self._manager
        if resource not in manager.resources:
            return  # a resource kubelet does not know is skipped: the container runs without any device
        if manager.check_kept(state, container, resource):
            return
        client = self._clients[resource]
        size = container.requests[resource]
        chosen = manager.reusable(state, container, resource)
        if needed := size - len(chosen):
            offered = manager.free(resource, needed)
            preferred: list[str] = []
            if client.options.get_preferred_allocation_available:
                preferred = await self._prefer(client, [*offered, *chosen], chosen, size)
            chosen = manager.settle_choice(preferred, offered, chosen, size)
        self._rng.shuffle(chosen)
        grants = state.granted.setdefault(container.name, {})
        grants[resource] = Grant(tuple(chosen), pb.ContainerAllocateResponse())
        try:
            response = await self._ask(client, chosen)
        except PodRejected:
            del grants[resource]
            raise
        try:
            manager.check_listed(resource, chosen)
        except KubeletCrashed as crash:
            await self._fall(crash)
            raise
        grants[resource] = Grant(tuple(chosen), response)

    async def _prefer(self, client: PluginClient, available: list[str], must_include: list[str], size: int) -> list[str]:
        self._rng.shuffle(available)
        try:
            preferred = await client.prefer(available, must_include, size)
        except CallFailed as failure:
            raise PodRejected(f"device plugin GetPreferredAllocation rpc failed with err: {failure}") from failure
        self._record.add(Happening.PREFERRED, client.resource, ",".join(preferred))
        return preferred

    async def _ask(self, client: PluginClient, devices: list[str]) -> pb.ContainerAllocateResponse:
        try:
            answer = await client.allocate(devices)
        except CallFailed as failure:
            raise PodRejected(str(failure)) from failure
        self._record.add(Happening.ALLOCATED, client.resource, ",".join(devices))
        if not answer.container_responses:
            self._manager.lose(client.resource, devices)
            raise PodRejected(f"no containers return in allocation response {answer}")
        return answer.container_responses[0]

    async def _pre_start(self, resource: str, devices: list[str]) -> None:
        client = self._clients.get(resource)
        failure = "endpoint has been stopped"
        if client is not None:
            try:
                await client.pre_start(devices)
            except CallFailed as refusal:
                failure = str(refusal)
            else:
                return
        self._record.add(Happening.START_REFUSED, resource, failure)
        raise StartRefused(f"PreStartContainer rpc failed with err: {failure}")
