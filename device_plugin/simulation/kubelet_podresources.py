"""The stand-in kubelet's pod-resources service."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc

from device_plugin.kubelet.api.podresources.v1 import podresources_pb2 as pb
from device_plugin.kubelet.api.podresources.v1.podresources_pb2_grpc import PodResourcesListerServicer

if TYPE_CHECKING:
    from device_plugin.simulation.kubelet_devices import DeviceManager, PodState


class PodResourcesServicer(PodResourcesListerServicer):
    """Tells who holds what. A held ID that has left the list is still named; a failed pod holds nothing."""

    def __init__(self, manager: DeviceManager) -> None:
        self._manager = manager

    async def List(self, request: pb.ListPodResourcesRequest, context: Any) -> pb.ListPodResourcesResponse:  # noqa: ARG002, N802 the interface's name
        answer = pb.ListPodResourcesResponse()
        for state in self._manager.pods.values():
            if state.failure is None:
                _write_pod(state, answer.pod_resources.add())
        return answer

    async def GetAllocatableResources(  # noqa: N802 the interface's name
        self,
        request: pb.AllocatableResourcesRequest,  # noqa: ARG002 empty
        context: Any,  # noqa: ARG002 the interface's
    ) -> pb.AllocatableResourcesResponse:
        answer = pb.AllocatableResourcesResponse()
        for name, resource in sorted(self._manager.resources.items()):
            for device in sorted(resource.healthy):
                answer.devices.add(resource_name=name, device_ids=[device])
        return answer

    async def Get(self, request: pb.GetPodResourcesRequest, context: Any) -> pb.GetPodResourcesResponse:  # noqa: N802 the interface's name
        answer = pb.GetPodResourcesResponse()
        state = self._manager.pods.get(request.pod_name)
        if state is None or state.pod.namespace != request.pod_namespace:
            await context.abort(grpc.StatusCode.UNKNOWN, f"pod {request.pod_name} in namespace {request.pod_namespace} not found")
        else:
            _write_pod(state, answer.pod_resources)
        return answer


def _write_pod(state: PodState, entry: pb.PodResources) -> None:
    entry.name, entry.namespace = state.pod.name, state.pod.namespace
    for container in state.pod.containers:
        if container.is_init:
            continue  # kubelet names running containers; init containers have ended by then
        resources = entry.containers.add(name=container.name)
        for resource, grant in sorted(state.granted.get(container.name, {}).items()):
            resources.devices.add(resource_name=resource, device_ids=grant.devices)
