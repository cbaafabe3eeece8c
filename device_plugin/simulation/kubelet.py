"""A stand-in for kubelet's device manager: a real gRPC server and client on real sockets, with kubelet's habits and traps.

It does what kubelet 1.36 was seen to do, and is no kinder: it sweeps the directory at its start, dials back inside Register,
drops whatever client is registered when any stream of the resource ends, fails a pod for every error, and crashes when a device
leaves the list while it is being allocated.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any, Self

import grpc

from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import (
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from device_plugin.kubelet.api.podresources.v1.podresources_pb2_grpc import add_PodResourcesListerServicer_to_server
from device_plugin.simulation.kubelet_admission import Admission
from device_plugin.simulation.kubelet_devices import DeviceManager, KubeletCrashed, name_fault, version_fault
from device_plugin.simulation.kubelet_plugin import CallFailed, PluginClient
from device_plugin.simulation.kubelet_podresources import PodResourcesServicer
from device_plugin.simulation.kubelet_record import Happening, Record
from device_plugin.simulation.kubelet_socket import ListeningSocket, sweep

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from pathlib import Path

    from device_plugin.simulation.kubelet_devices import Pod, PodState


class StandInKubelet:
    """One node's kubelet, as far as device plugins can see. All methods belong to one event loop.

    `directory` is the device-plugin directory, `pod_resources` the path of the pod-resources socket (None: not served). Same
    `seed`, same choices.
    """

    def __init__(self, directory: Path, *, pod_resources: Path | None = None, seed: int = 0) -> None:
        self.directory = directory
        self.socket = directory / "kubelet.sock"
        self.pod_resources = pod_resources
        self.record = Record()
        self.crash: KubeletCrashed | None = None
        self._rng = random.Random(seed)  # noqa: S311 a repeatable order, no secret
        self.manager = DeviceManager(self._rng)
        self._clients: dict[str, PluginClient] = {}
        self._connections: set[PluginClient] = set()
        self._servers: list[tuple[grpc.aio.Server, ListeningSocket]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._admission = Admission(self.manager, self._clients, self.record, self._rng, self._fall)

    # -- life ---------------------------------------------------------------------------------------------------------------

    async def start(self, *, accept_after_seconds: float = 0.0) -> None:
        """Sweep the directory and listen; with a delay, the socket refuses connections until then.

        Of an earlier life the pods and their stored answers are left, but no device; 0.9 s later the containers that are not
        running are admitted anew (see `wait_readmitted`).
        """
        self.crash = None
        self.manager.forget_devices()
        sweep(self.directory)
        registration = grpc.aio.server()
        add_RegistrationServicer_to_server(_Registrations(self), registration)
        if self.pod_resources is not None:
            sweep(self.pod_resources.parent)
            lister = grpc.aio.server()
            add_PodResourcesListerServicer_to_server(PodResourcesServicer(self.manager), lister)
            await self._open(lister, self.pod_resources, 0.0)
        await self._open(registration, self.socket, accept_after_seconds)
        self.record.add(Happening.STARTED)
        self._spawn(self._admission.readmit(), "readmit")

    async def stop(self) -> None:
        """End as a stopped or crashed kubelet does: connections break, kubelet.sock stays and refuses."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        for server, listening in self._servers:
            await listening.close()
            await server.stop(None)
        self._servers.clear()
        for client in list(self._connections):
            await client.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._clients.clear()
        self._connections.clear()
        self.record.add(Happening.STOPPED)

    async def restart(self, *, down_seconds: float = 0.0, accept_after_seconds: float = 0.0) -> None:
        """Stop and start."""
        await self.stop()
        await asyncio.sleep(down_seconds)
        await self.start(accept_after_seconds=accept_after_seconds)

    async def wait_readmitted(self) -> None:
        """Wait until the admissions that follow a start are done."""
        await asyncio.gather(*(task for task in self._tasks if task.get_name() == "readmit"))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    # -- what the node would show ---------------------------------------------------------------------------------------------

    def capacity(self, resource: str) -> int:
        return self.manager.capacity(resource, asyncio.get_running_loop().time())

    def allocatable(self, resource: str) -> int:
        return self.manager.allocatable(resource)

    def healthy(self, resource: str) -> frozenset[str]:
        """The IDs that the last list called Healthy, while its stream lives."""
        state = self.manager.resources.get(resource)
        return frozenset(state.healthy) if state else frozenset()

    def listed(self, resource: str) -> dict[str, str]:
        """Each ID of the last list with its health."""
        state = self.manager.resources.get(resource)
        return {name: device.health for name, device in (state.devices or {}).items()} if state else {}

    def is_registered(self, resource: str) -> bool:
        return resource in self._clients

    async def wait_allocatable(self, resource: str, count: int, timeout_seconds: float = 30.0) -> None:
        """Wait until that many devices are healthy. Raises `TimeoutError`."""
        await self.record.wait_for(lambda: self.allocatable(resource) == count, timeout_seconds)

    # -- pods -----------------------------------------------------------------------------------------------------------------

    async def admit(self, pod: Pod) -> PodState:
        """Allocate for every container, then start them. Raises `PodRejected`, `StartRefused` or `KubeletCrashed`."""
        return await self._admission.admit(pod)

    async def start_container(self, pod: str, container: str) -> None:
        """Start, or start again, one container of an admitted pod. Raises `StartRefused`."""
        await self._admission.start_container(pod, container)

    def stop_container(self, pod: str, container: str) -> None:
        """The container has ended and is not started again yet; it keeps its devices."""
        self.manager.pods[pod].running.discard(container)

    def delete(self, pod: str) -> None:
        """The pod is gone and its devices are free."""
        del self.manager.pods[pod]

    def injected(self, pod: str, container: str = "main") -> pb.ContainerAllocateResponse:
        """What the container gets of all its resources together."""
        return self._admission.injected(pod, container)

    # -- inside ---------------------------------------------------------------------------------------------------------------

    async def register(self, request: pb.RegisterRequest, time_left_seconds: float | None) -> str | None:
        """One Register call: None, or the text of its refusal."""
        resource = request.resource_name
        fault = version_fault(request.version) or name_fault(resource)
        if fault is None:
            client = PluginClient(resource, self.directory / request.endpoint)
            self._connections.add(client)
            try:
                await client.dial(time_left_seconds)
            except CallFailed as failure:
                await self._drop(client)
                fault = str(failure)
        if fault is not None:
            self.record.add(Happening.REFUSED, resource, fault)
            return fault
        # The last registration wins; the one it replaces is told nothing, and its stream goes on.
        self._clients[resource] = client
        self.manager.mark_registered(resource, client.options)
        self.record.add(Happening.REGISTERED, resource, request.endpoint)
        self._spawn(self._follow(client), f"follow {resource}")
        if self._rng.random() < 0.5:
            await asyncio.sleep(0.001)  # the stream may be open before Register returns, or after
        return None

    async def _follow(self, client: PluginClient) -> None:
        resource = client.resource
        async for response in client.lists():
            self.manager.take_list(resource, response.devices)
            listed = frozenset(device.ID for device in response.devices)
            self.record.add(Happening.LIST, resource, healthy=self.healthy(resource), devices=listed)
        # Whatever client is registered by now is disconnected, not only the one whose stream has ended.
        current = self._clients.pop(resource, client)
        self.manager.mark_lost(resource, asyncio.get_running_loop().time())
        self.record.add(Happening.STREAM_ENDED, resource)
        await self._drop(client)
        await self._drop(current)

    async def _drop(self, client: PluginClient) -> None:
        self._connections.discard(client)
        await client.close()

    async def _fall(self, crash: KubeletCrashed) -> None:
        self.crash = crash
        self.record.add(Happening.CRASHED, detail=str(crash))
        await self.stop()

    async def _open(self, server: grpc.aio.Server, path: Path, accept_after_seconds: float) -> None:
        listening = ListeningSocket(path)
        self._servers.append((server, listening))
        await listening.open(server, accept_after_seconds)

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class _Registrations(RegistrationServicer):
    """Kubelet's Registration service."""

    def __init__(self, kubelet: StandInKubelet) -> None:
        self._kubelet = kubelet

    async def Register(self, request: pb.RegisterRequest, context: Any) -> pb.Empty:  # noqa: N802 the interface's name
        fault = await self._kubelet.register(request, context.time_remaining())
        if fault is not None:
            await context.abort(grpc.StatusCode.UNKNOWN, fault)
        return pb.Empty()
