"""The five RPCs that kubelet calls: translate, call a pure function, translate back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from device_plugin.allocation.preferred import prefer
from device_plugin.allocation.refusal import name_first, name_ids
from device_plugin.allocation.response import allocate
from device_plugin.errors import AllocationRefused
from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import DevicePluginServicer
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from structlog.typing import FilteringBoundLogger

    from device_plugin.allocation.model import Allocation
    from device_plugin.allocation.table import AllocationTable
    from device_plugin.kubelet.listing import Feed
    from device_plugin.kubelet.snapshot import Snapshot

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"


@record
class Answers:
    """What the RPCs answer from: one snapshot and the table worked out from it, replaced together."""

    snapshot: Snapshot
    table: AllocationTable


class Servicer(DevicePluginServicer):
    """Kubelet's calls for one resource. `answers` is replaced as a whole; no call waits for anything."""

    def __init__(
        self, feed: Feed, answers: Answers, answered: Callable[[Sequence[str]], None], logger: FilteringBoundLogger
    ) -> None:
        self.answers = answers
        self.pending = 0
        self.idle = asyncio.Event()  # set while no call is pending
        self.idle.set()
        self._feed = feed
        self._answered = answered
        self._logger = logger

    async def GetDevicePluginOptions(self, request: pb.Empty, context: Context) -> pb.DevicePluginOptions:  # noqa: ARG002, N802 the interface's name
        """What kubelet should call; the same as in the RegisterRequest (kubernetes/kubernetes#109016)."""
        return options_from_snapshot(self.answers.snapshot)

    async def ListAndWatch(self, request: pb.Empty, context: Context) -> None:  # type: ignore[override]  # noqa: ARG002, N802 the interface's name
        """The current list, and each later one, until the stream is ended by us or by kubelet.

        A coroutine that writes, not a generator: it learns of a cancellation where it waits, and its end is noticed at once.
        """
        feed = self._feed
        stream = feed.open()
        try:
            while True:
                if stream.sent != feed.version:
                    version = feed.version
                    await context.write(feed.message)
                    feed.mark_sent(stream, version)
                elif feed.is_ended(stream):
                    return
                else:
                    await feed.changes.next()
        finally:
            feed.close(stream)

    async def GetPreferredAllocation(  # noqa: N802 the interface's name
        self, request: pb.PreferredAllocationRequest, context: Context
    ) -> pb.PreferredAllocationResponse:
        """The devices that suit best. An error here would fail the pod for good, so any trouble ends in a plain valid choice."""
        self._count(context)
        response = pb.PreferredAllocationResponse()
        for wanted in request.container_requests:
            chosen = self._prefer(wanted.available_deviceIDs, wanted.must_include_deviceIDs, wanted.allocation_size)
            response.container_responses.add().deviceIDs.extend(chosen)
            self._answered(chosen)
        return response

    def _prefer(self, available: Sequence[str], must_include: Sequence[str], size: int) -> Sequence[str]:
        try:
            return prefer(self.answers.table, tuple(available), tuple(must_include), size)
        except Exception:  # an RPC boundary: a pod must not fail for advice (NVIDIA/k8s-device-plugin#2038)
            self._logger.exception("preference.failed", size=size, available=len(available))
            return tuple(dict.fromkeys([*must_include, *available]))[: max(size, 0)]

    async def Allocate(  # noqa: N802 the interface's name
        self, request: pb.AllocateRequest, context: Context
    ) -> pb.AllocateResponse:
        """One response for each container request, in order. A refusal names the IDs; its text is all the pod's owner sees."""
        self._count(context)
        response = pb.AllocateResponse()
        for wanted in request.container_requests:
            ids = tuple(wanted.devices_ids)
            try:
                allocation = allocate(self.answers.table, ids)
            except AllocationRefused as refusal:
                self._logger.warning("allocation.refused", devices=len(ids), reason=str(refusal))
                # The code of NVIDIA's plugin, which kubelet puts into the pod's message: what people search and match for stays.
                await context.abort(grpc.StatusCode.UNKNOWN, str(refusal))
            except Exception as error:  # an RPC boundary: the pod fails, the plugin does not, and both say why
                self._logger.exception("allocation.failed", devices=name_ids(ids))
                await context.abort(grpc.StatusCode.INTERNAL, f"the device plugin failed on {name_ids(ids)}: {error}")
            write_allocation(allocation, response.container_responses.add())
            self._answered(ids)
        return response

    async def PreStartContainer(  # noqa: N802 the interface's name
        self, request: pb.PreStartContainerRequest, context: Context
    ) -> pb.PreStartContainerResponse:
        """Refuses a container start on a device that has a cause, where that was asked for; the one place kubelet lets us.

        Kubelet gives it 30 s and tries again, so the container starts once the causes are gone.
        """
        self._count(context)
        snapshot = self.answers.snapshot
        if snapshot.refuse_unhealthy_restart:
            devices = {served.device.id: served for served in snapshot.resource.devices}
            broken = [devices[name] for name in request.devices_ids if name in devices and devices[name].causes]
            if broken:
                reasons = [f"{served.device.id}: {name_first([str(cause) for cause in served.causes], ', ')}" for served in broken]
                reason = name_first(reasons, "; ")
                self._logger.warning("start.refused", devices=len(broken), reason=reason)
                await context.abort(
                    grpc.StatusCode.FAILED_PRECONDITION,
                    f"the container is not started on unhealthy devices of {snapshot.resource.name} "
                    f"(health.refuseUnhealthyRestart is on): {reason}",
                )
        return pb.PreStartContainerResponse()

    def _count(self, context: Context) -> None:
        """Count the call as pending until its answer has left, not only until it has been worked out."""
        self.pending += 1
        self.idle.clear()
        context.add_done_callback(self._uncount)  # type: ignore[arg-type]  # typeshed wants an instance of a class that is not there

    def _uncount(self, context: Context) -> None:  # noqa: ARG002 gRPC calls it with the context
        self.pending -= 1
        if not self.pending:
            self.idle.set()


def options_from_snapshot(snapshot: Snapshot) -> pb.DevicePluginOptions:
    """The options, for both places where kubelet can see them."""
    return pb.DevicePluginOptions(
        pre_start_required=snapshot.refuse_unhealthy_restart,
        get_preferred_allocation_available=True,
    )


def write_allocation(allocation: Allocation, response: pb.ContainerAllocateResponse) -> None:
    """Put an Allocation into kubelet's form."""
    response.envs.update(allocation.envs)
    response.annotations.update(allocation.annotations)
    for mount in allocation.mounts:
        entry = response.mounts.add()
        entry.container_path, entry.host_path, entry.read_only = mount.container_path, mount.host_path, mount.read_only
    for node in allocation.devices:
        spec = response.devices.add()
        spec.container_path, spec.host_path, spec.permissions = node.container_path, node.host_path, node.permissions
    for name in allocation.cdi_devices:
        response.cdi_devices.add().name = name
