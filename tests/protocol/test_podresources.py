"""Asking kubelet which pod holds what."""

from __future__ import annotations

import asyncio
import socket

import grpc
import pytest

from device_plugin.kubelet.api.podresources.v1 import podresources_pb2 as pb
from device_plugin.kubelet.api.podresources.v1.podresources_pb2_grpc import PodResourcesListerStub
from device_plugin.kubelet.podresources import PodResources, Unreadable
from device_plugin.kubelet.sockets import target
from device_plugin.simulation.kubelet_devices import Container, Pod

GPU = "nvidia.com/gpu"
MIG = "nvidia.com/mig-1g.10gb"


@pytest.fixture
async def pod_resources(root):
    client = PodResources(root / "pod-resources" / "kubelet.sock", timeout_seconds=1.0)
    yield client
    await client.close()


async def test_held_devices_come_by_resource(kubelet, plugin, snapshot, pod_resources):
    """Every container's devices, joined over pods; nothing is held before the first pod and after the last."""
    await plugin.register(snapshot(["a", "b", "c"]))
    await plugin.register(snapshot(["m"], name=MIG))
    assert await pod_resources.held() == {}
    one = await kubelet.admit(Pod.of("one", gpu=2))
    await kubelet.admit(Pod("two", (Container("main", {GPU: 1, MIG: 1}),)))
    assert await pod_resources.held() == {GPU: {"a", "b", "c"}, MIG: {"m"}}
    kubelet.delete("two")
    assert await pod_resources.held() == {GPU: set(one.devices("main", GPU))}


async def test_a_held_device_that_has_left_the_list_is_still_named(kubelet, plugin, snapshot, pod_resources):
    """That is what tells when a leaving device is free."""
    server = await plugin.register(snapshot(["a"]))
    await kubelet.admit(Pod.of("pod", gpu=1))
    server.update(snapshot([]))
    await kubelet.wait_allocatable(GPU, 0)
    assert await pod_resources.held() == {GPU: {"a"}}


async def test_allocatable_devices_are_the_healthy_ones_of_every_plugin(kubelet, plugin, snapshot, pod_resources):
    """IDs among them that we do not list are another plugin's (kubernetes/kubernetes#127803)."""
    await plugin.register(snapshot(["a", "b", "c"], unhealthy=["b"]))
    assert await pod_resources.allocatable() == {GPU: {"a", "c"}}


async def test_without_the_socket_nothing_is_known_and_nothing_is_wrong(root):
    """Not mounted: None, which is neither an error nor "nothing is held"."""
    client = PodResources(root / "not" / "there.sock")
    assert (await client.held(), await client.allocatable()) == (None, None)
    await client.close()


async def test_an_error_is_a_value(root):
    """A socket nobody serves is an `Unreadable` with kubelet's path and the reason, within the deadline."""
    path = root / "kubelet.sock"
    bound = socket.socket(socket.AF_UNIX)
    bound.bind(str(path))
    client = PodResources(path, timeout_seconds=0.5)
    answer = await client.held()
    assert isinstance(answer, Unreadable)
    assert f'kubelet did not tell on "{path}" who holds what' in answer.reason
    await client.close()
    bound.close()


async def test_a_silent_kubelet_costs_the_deadline_only(root):
    """A server that accepts and never answers: DEADLINE_EXCEEDED as a value."""
    path = root / "kubelet.sock"
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(path))
        silent.listen()
        client = PodResources(path, timeout_seconds=0.2)
        answer = await client.held()
        await client.close()
    assert isinstance(answer, Unreadable)
    assert "DEADLINE_EXCEEDED" in answer.reason


async def test_the_client_survives_a_restart_of_kubelet(kubelet, plugin, snapshot, pod_resources):
    """One channel for the whole life: it finds the new kubelet."""
    await plugin.register(snapshot(["a"]))
    await kubelet.admit(Pod.of("pod", gpu=1))
    assert await pod_resources.held() == {GPU: {"a"}}
    await kubelet.restart()
    async with asyncio.timeout(5):
        while await pod_resources.held() != {GPU: {"a"}}:  # noqa: ASYNC110 the channel reconnects when it likes
            await asyncio.sleep(0.05)


async def test_one_pod_can_be_asked_for(kubelet, plugin, snapshot):
    """The stand-in serves `Get` too, with an error for a pod it does not know."""
    await plugin.register(snapshot(["a"]))
    await kubelet.admit(Pod.of("pod", gpu=1))
    async with grpc.aio.insecure_channel(target(kubelet.pod_resources)) as channel:
        stub = PodResourcesListerStub(channel)
        answer = await stub.Get(pb.GetPodResourcesRequest(pod_name="pod", pod_namespace="default"))
        assert list(answer.pod_resources.containers[0].devices[0].device_ids) == ["a"]
        with pytest.raises(grpc.aio.AioRpcError, match="not found"):
            await stub.Get(pb.GetPodResourcesRequest(pod_name="pod", pod_namespace="elsewhere"))
