"""Registering with kubelet: the order, the refusals, and what brings a registration back."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from device_plugin.errors import RegistrationFailed
from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.registration import call_register
from device_plugin.simulation.kubelet_plugin import PluginClient
from device_plugin.simulation.kubelet_record import Happening

GPU = "nvidia.com/gpu"
OPTIONS = pb.DevicePluginOptions(get_preferred_allocation_available=True)


async def test_a_resource_is_registered_and_listed(kubelet, plugin, snapshot):
    """Kubelet has every device, and the healthy ones are allocatable."""
    server = await plugin.register(snapshot(["a", "b", "c"], unhealthy=["b"]))
    assert (kubelet.capacity(GPU), kubelet.healthy(GPU)) == (3, {"a", "c"})
    assert [entry.detail for entry in kubelet.record.of(Happening.REGISTERED)] == [server.endpoint]
    assert [entry["event"] for entry in plugin.log.entries if entry["log_level"] == "warning"] == []


@pytest.mark.parametrize("refuse", [False, True])
async def test_kubelet_is_told_the_same_options_in_both_places(kubelet, plugin, dial, snapshot, monkeypatch, refuse):
    """Since 1.25 it asks for them while it registers a plugin, which then has to answer the call (kubernetes/kubernetes#109016);
    before, it took them from the request."""
    requests, register = [], kubelet.register

    async def keep(request, time_left_seconds):
        requests.append(request)
        return await register(request, time_left_seconds)

    monkeypatch.setattr(kubelet, "register", keep)
    server = await plugin.register(snapshot(["a"], refuse=refuse))
    [request] = requests
    assert request.options == await dial(server).GetDevicePluginOptions(pb.Empty())
    assert request.options == pb.DevicePluginOptions(pre_start_required=refuse, get_preferred_allocation_available=True)


async def test_each_resource_has_its_own_server(kubelet, plugin, snapshot):
    """One server for several resources leaves only one of them working (kubernetes/kubernetes#70350)."""
    names = [GPU, "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"]
    for name in names:
        await plugin.register(snapshot([f"{name}-device"], name=name))
    assert {name: kubelet.healthy(name) for name in names} == {name: {f"{name}-device"} for name in names}
    assert len({server.endpoint for server in plugin.servers.values()}) == 3


async def test_a_change_of_the_list_needs_no_registration(kubelet, plugin, snapshot):
    """Other devices of the same resource are a new list on the open stream."""
    server = await plugin.register(snapshot(["a"]))
    server.update(snapshot(["a", "b"]))
    await kubelet.wait_allocatable(GPU, 2)
    assert len(kubelet.record.of(Happening.REGISTERED)) == 1


async def test_registering_again_ends_the_old_stream_first(kubelet, plugin, snapshot):
    """When any stream of a resource ends, kubelet drops whatever client is registered, so an old one must not outlive its
    registration: that left 0 allocatable (kubernetes/kubernetes#62773). Here options that change ask for 20 registrations, each
    beside an open stream.
    """
    server = await plugin.register(snapshot(["a", "b"]))
    for round_number in range(20):
        server.update(snapshot(["a", "b"], refuse=round_number % 2 == 0))
        await kubelet.record.wait_for(lambda count=round_number: len(kubelet.record.of(Happening.REGISTERED)) == count + 2)
        async with asyncio.timeout(5):
            await plugin.registrations[GPU].wait_registered()
        await kubelet.wait_allocatable(GPU, 2)
    kinds = [entry.happening for entry in kubelet.record.entries if entry.happening is not Happening.LIST]
    assert kinds[1:] == [Happening.REGISTERED, *[Happening.STREAM_ENDED, Happening.REGISTERED] * 20]
    assert {entry["reason"] for entry in plugin.log.of("resource.registration_lost")} == {"options changed"}
    assert plugin.log.of("resource.registration_failed") == []


async def test_a_stream_that_ends_is_followed_by_a_registration_every_time(kubelet, plugin, snapshot):
    """Kubelet forgets the client with the stream and tells nobody; here 20 times over."""
    server = await plugin.register(snapshot(["a", "b"]))
    for round_number in range(20):
        await server.end_streams()
        await kubelet.record.wait_for(lambda count=round_number: len(kubelet.record.of(Happening.REGISTERED)) == count + 2)
        await kubelet.wait_allocatable(GPU, 2)
        async with asyncio.timeout(5):
            await plugin.registrations[GPU].wait_registered()
        plugin.registrations[GPU]._backoff.reset()
    kinds = [entry.happening for entry in kubelet.record.entries if entry.happening is not Happening.LIST]
    assert kinds[1:] == [Happening.REGISTERED, *[Happening.STREAM_ENDED, Happening.REGISTERED] * 20]


@pytest.mark.parametrize("late_seconds", [0.0, 0.05])
async def test_a_plugin_that_restarts_beside_kubelet_has_its_devices_back_each_time(
    kubelet, start_plugin, snapshot, monkeypatch, late_seconds
):
    """After a restart of the plugin alone allocatable stayed 0 (kubernetes/kubernetes#62773); here 20 restarts.

    A kubelet that sees the old stream's end only after the new registration drops the new one, which is then made again.
    """
    lists = PluginClient.lists

    async def lists_and_late_end(client):
        async for response in lists(client):
            yield response
        await asyncio.sleep(0 if client._is_closed else late_seconds)

    monkeypatch.setattr(PluginClient, "lists", lists_and_late_end)
    plugin = start_plugin()
    await plugin.register(snapshot(["a", "b"]))
    for _ in range(20):
        ended = len(kubelet.record.of(Happening.STREAM_ENDED))
        await plugin.close()
        plugin = start_plugin()
        await plugin.serve(snapshot(["a", "b"]))
        plugin.keep_registered()
        await kubelet.record.wait_for(lambda count=ended: len(kubelet.record.of(Happening.STREAM_ENDED)) > count)
        await kubelet.wait_allocatable(GPU, 2)
        assert (kubelet.healthy(GPU), kubelet.capacity(GPU), kubelet.is_registered(GPU)) == ({"a", "b"}, 2, True)


async def test_a_stream_that_ends_brings_back_that_resource_only(kubelet, plugin, snapshot):
    """Kubelet dropped one resource: it is registered again, the others are left alone."""
    await plugin.register(snapshot(["a"]))
    await plugin.register(snapshot(["m"], name="nvidia.com/mig-1g.10gb"))
    await kubelet._clients[GPU].close()
    await kubelet.record.wait_for(lambda: len(kubelet.record.of(Happening.REGISTERED, GPU)) == 2)
    await kubelet.wait_allocatable(GPU, 1)
    assert len(kubelet.record.of(Happening.REGISTERED, "nvidia.com/mig-1g.10gb")) == 1
    assert kubelet.healthy("nvidia.com/mig-1g.10gb") == {"m"}


async def test_other_options_are_made_known_by_registering_again(kubelet, plugin, snapshot):
    """Kubelet asks for the options at registration only, so switching `refuseUnhealthyRestart` on registers anew."""
    server = await plugin.register(snapshot(["a"]))
    server.update(snapshot(["a"], refuse=True))
    await kubelet.record.wait_for(lambda: len(kubelet.record.of(Happening.REGISTERED)) == 2)
    assert kubelet.manager.resources[GPU].pre_start_required


async def test_a_refused_name_is_told_once_and_tried_without_end(kubelet, plugin, snapshot):
    """Every reason comes as UNKNOWN with one text: it is logged once, other resources are served, and it is tried again."""
    bad = "nvidia.com/gpu_"
    await plugin.serve(snapshot(["x"], name=bad))
    registration = plugin.keep_registered(bad)
    await plugin.register(snapshot(["a"]))
    await kubelet.record.wait_for(lambda: len(kubelet.record.of(Happening.REFUSED)) >= 3)
    reason = f'kubelet refused to register {bad}: the ResourceName "{bad}" is invalid (UNKNOWN)'
    failures = plugin.log.of("resource.registration_failed")
    assert [entry["reason"] for entry in failures if entry["log_level"] == "warning"] == [reason]
    assert {entry["log_level"] for entry in failures[1:]} == {"debug"}
    assert (registration.failure, registration.is_registered) == (reason, False)
    assert kubelet.healthy(GPU) == {"a"}


async def test_a_registration_without_a_stream_is_no_registration(kubelet, plugin, snapshot, monkeypatch):
    """Kubelet said yes but opened no stream, or ended it at once: that is a failure, and it is tried again."""
    monkeypatch.setattr("device_plugin.kubelet.registration.STREAM_SECONDS", 0.05)
    follow, missed = kubelet._follow, []

    async def follow_later(client):
        if len(missed) < 2:
            missed.append(client)
            kubelet._clients.pop(client.resource)
            return
        await follow(client)

    monkeypatch.setattr(kubelet, "_follow", follow_later)
    await plugin.register(snapshot(["a"]))
    assert kubelet.healthy(GPU) == {"a"}
    assert len(kubelet.record.of(Happening.REGISTERED)) == 3
    assert "opened no ListAndWatch stream" in plugin.log.of("resource.registration_failed")[0]["reason"]


async def test_registering_waits_for_a_pending_allocation(kubelet, plugin, snapshot, dial, monkeypatch):
    """Ending the stream during Allocate fails the pod for good, so a registration waits for the answer to leave."""
    server = await plugin.register(snapshot(["a"]))
    server._servicer.pending += 1
    server._servicer.idle.clear()
    server.update(snapshot(["a"], refuse=True))
    await asyncio.sleep(0.1)
    assert len(kubelet.record.of(Happening.STREAM_ENDED)) == 0
    server._servicer._uncount(None)
    await kubelet.record.wait_for(lambda: len(kubelet.record.of(Happening.REGISTERED)) == 2)


async def test_a_kubelet_that_is_not_there_is_reported_with_the_path_that_was_tried(plugin, snapshot, directory):
    """The socket's path is in the message: the directory is a constant of kubelet and does not move with its root
    (kubernetes/kubernetes#120626)."""
    await plugin.serve(snapshot(["a"]))
    plugin.keep_registered()
    async with asyncio.timeout(5):
        while not plugin.log.of("kubelet.awaited"):  # noqa: ASYNC110 - a log has no event to wait for
            await asyncio.sleep(0.01)
    assert [(entry["socket"], entry["reason"]) for entry in plugin.log.of("kubelet.awaited")] == [
        (str(directory / "kubelet.sock"), "there is no such socket")
    ]
    with pytest.raises(RegistrationFailed, match="could not reach kubelet on") as failure:
        await call_register(directory / "kubelet.sock", "x.sock", GPU, OPTIONS)
    assert str(directory / "kubelet.sock") in str(failure.value)


@pytest.mark.parametrize(
    ("name", "is_valid"),
    [
        ("nvidia.com/gpu", True),
        ("nvidia.com/gpu.shared", True),
        ("nvidia.com/MIG-1g_10gb", True),
        ("gpu", False),
        ("a/b/c", False),
        ("kubernetes.io/gpu", False),
        ("x.kubernetes.io/gpu", False),
        ("requests.nvidia.com/gpu", False),
        ("NVIDIA.com/gpu", False),
        ("nvi_dia.com/gpu", False),
        ("nvidia.com/gpu-", False),
        ("nvidia.com/", False),
        (f"nvidia.com/{'g' * 63}", True),
        (f"nvidia.com/{'g' * 64}", False),
        (f"{'d' * 244}/gpu", True),
        (f"{'d' * 245}/gpu", False),
    ],
)
async def test_the_stand_in_checks_names_as_kubelet_does(kubelet, plugin, snapshot, name, is_valid):
    """Names at and over kubelet's limits, with kubelet's one text for all of them."""
    server = await plugin.serve(snapshot(["a"]))
    if is_valid:
        await call_register(kubelet.socket, server.endpoint, name, OPTIONS)
        return
    with pytest.raises(RegistrationFailed) as refusal:
        await call_register(kubelet.socket, server.endpoint, name, OPTIONS)
    assert str(refusal.value) == f'kubelet refused to register {name}: the ResourceName "{name}" is invalid (UNKNOWN)'


async def test_the_stand_in_refuses_another_version_and_an_absolute_endpoint(kubelet, plugin, snapshot, directory, monkeypatch):
    """The version must be v1beta1, and the endpoint is joined to kubelet's directory, so a path does not lead anywhere."""
    monkeypatch.setattr("device_plugin.simulation.kubelet_plugin.DIAL_SECONDS", 0.1)
    server = await plugin.serve(snapshot(["a"]))
    with pytest.raises(RegistrationFailed, match="failed to dial device plugin: context deadline exceeded"):
        await call_register(kubelet.socket, f"sub/{server.endpoint}", GPU, OPTIONS)
    monkeypatch.setattr("device_plugin.kubelet.registration.API_VERSION", "v1alpha")
    with pytest.raises(RegistrationFailed) as refusal:
        await call_register(kubelet.socket, server.endpoint, GPU, OPTIONS)
    assert 'requested API version "v1alpha" is not supported by kubelet. Supported version is ["v1beta1"]' in str(refusal.value)


async def test_a_plugin_that_fails_on_its_options_is_not_registered(kubelet, plugin, snapshot, monkeypatch):
    """Kubelet asks for the options inside Register and fails it if they do not come."""

    async def broken(_self, _request, context):
        await context.abort(grpc.StatusCode.INTERNAL, "no options")

    monkeypatch.setattr("device_plugin.kubelet.servicer.Servicer.GetDevicePluginOptions", broken)
    server = await plugin.serve(snapshot(["a"]))
    text = "failed to get device plugin options: rpc error: code = Internal desc = no options"
    with pytest.raises(RegistrationFailed, match=text):
        await call_register(kubelet.socket, server.endpoint, GPU, OPTIONS)
