"""All resources that have a socket: what is shown of them, and when they are ready."""

from __future__ import annotations

import asyncio

import pytest

from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.presence import Presence
from device_plugin.kubelet.server import ResourceServer
from device_plugin.kubelet.sockets import socket_name
from device_plugin.supervisor.endpoints import Endpoints
from device_plugin.supervisor.tasks import Tasks

GPU = "nvidia.com/gpu"


OLD = "nvidia.com/old"


@pytest.fixture
async def endpoints(directory, log):
    """Those of a plugin that tells no kubelet."""
    tasks = Tasks(log.logger)
    made = Endpoints(directory, None, tasks, answered=lambda _name, _ids: None, logger=log.logger)
    yield made
    await made.close()
    await tasks.cancel()


async def test_what_is_shown_is_shown_at_once(endpoints, dial, snapshot):
    """An answer that takes a GPU goes out after the list that shows it taken, so nobody waits for the next `apply`."""
    await endpoints.apply({GPU: snapshot(["a"])})
    endpoints.show({GPU: snapshot(["a"], unhealthy=["a"])})
    first = await dial(endpoints._endpoints[GPU].server).ListAndWatch(pb.Empty()).read()
    assert [(device.ID, device.health) for device in first.devices] == [("a", "Unhealthy")]


async def test_what_changed_while_a_socket_was_opened_is_shown_too(endpoints, dial, snapshot, monkeypatch):
    """An answer may take a GPU while another resource's socket is being made."""

    async def start(self, first, start=ResourceServer.start):
        await start(self, first)
        endpoints.show({GPU: snapshot(["a"], unhealthy=["a"])})

    monkeypatch.setattr(ResourceServer, "start", start)
    await endpoints.apply({GPU: snapshot(["a"])})
    first = await dial(endpoints._endpoints[GPU].server).ListAndWatch(pb.Empty()).read()
    assert [device.health for device in first.devices] == ["Unhealthy"]


async def test_ready_is_to_serve_something_and_all_of_it(endpoints, directory, snapshot):
    """Nothing to serve is not ready, nor is a node that lacks one of its resources."""
    assert not endpoints.is_ready
    await endpoints.apply({GPU: snapshot(["a"])})
    assert endpoints.is_ready
    other = "nvidia.com/other"
    (directory / socket_name(other, directory)).mkdir()
    await endpoints.apply({GPU: snapshot(["a"]), other: snapshot(["b"], name=other)})
    assert (list(endpoints.failures), endpoints.is_ready) == ([other], False)
    await endpoints.apply({})
    assert not endpoints.is_ready


async def test_a_list_that_waits_for_another_one_is_owed_until_it_is_out(kubelet, directory, log, snapshot, monkeypatch):
    """The last, empty list of a resource waits for those that take devices away. An answer that changed what is served in that
    moment had the resource closed without it, and its capacity stayed at the node for five minutes."""
    tasks = Tasks(log.logger)
    presence = Presence(kubelet.socket, logger=log.logger)
    tasks.start("presence", presence.run())
    endpoints = Endpoints(directory, presence, tasks, answered=lambda _name, _ids: None, logger=log.logger)
    await endpoints.apply({GPU: snapshot(["a"]), OLD: snapshot(["b"], name=OLD, unhealthy=["b"])})
    await kubelet.record.wait_for(lambda: bool(kubelet.listed(OLD)))
    waits, goes_on = asyncio.Event(), asyncio.Event()

    async def wait_listed(*_):
        waits.set()
        await goes_on.wait()
        return True

    monkeypatch.setattr(ResourceServer, "wait_listed", wait_listed)
    applying = asyncio.create_task(
        endpoints.apply({GPU: snapshot(["a"], unhealthy=["a"]), OLD: snapshot([], name=OLD)}),
    )
    await waits.wait()
    assert endpoints.owes(OLD)
    goes_on.set()
    await applying
    await kubelet.record.wait_for(lambda: not kubelet.listed(OLD))
    async with asyncio.timeout(5):
        while endpoints.owes(OLD):  # noqa: ASYNC110 - it is asked for, not told
            await asyncio.sleep(0.01)
    await endpoints.close()
    await tasks.cancel()
