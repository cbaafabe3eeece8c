"""A server of ours and a stand-in kubelet on real sockets."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import grpc
import pytest
import structlog

from device_plugin.allocation.model import Injection
from device_plugin.health.cause import Cause, CauseKind, ClearedBy
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import DevicePluginStub
from device_plugin.kubelet.presence import Presence
from device_plugin.kubelet.registration import Registration
from device_plugin.kubelet.server import ResourceServer
from device_plugin.kubelet.snapshot import Snapshot
from device_plugin.kubelet.sockets import target
from device_plugin.serving.served import ServedDevice, ServedResource
from device_plugin.sharing.offer import Device, PreferencePolicy
from device_plugin.simulation.kubelet import StandInKubelet

GPU = "nvidia.com/gpu"


def make_snapshot(ids, *, unhealthy=(), name=GPU, policy=PreferencePolicy.ALIGNED, injection=None, refuse=False, numa=None):
    """One resource with whole GPUs of these IDs; an ID `x::1` becomes a replica of `x`."""
    devices = []
    for number, device_id in enumerate(ids):
        hardware, _, replica = device_id.partition("::")
        cause = Cause(CauseKind.XID, hardware, "79", "XID 79: the GPU has fallen off the bus", 1.0, ClearedBy.RESET)
        devices.append(
            ServedDevice(
                Device(device_id, hardware, hardware, str(number), replica=int(replica) if replica else None, numa_node=numa),
                causes=(cause,) if device_id in unhealthy else (),
            )
        )
    return Snapshot(ServedResource(name, tuple(devices), policy), (), injection or Injection(), refuse_unhealthy_restart=refuse)


@pytest.fixture
def snapshot():
    return make_snapshot


@dataclass
class Log:
    """A logger that keeps what it is told."""

    entries: list = field(default_factory=list)

    def __post_init__(self):
        capture = structlog.testing.LogCapture()
        self.entries = capture.entries
        self.logger = structlog.wrap_logger(
            None, processors=[capture], wrapper_class=structlog.make_filtering_bound_logger(0), cache_logger_on_first_use=False
        )

    def of(self, event):
        return [entry for entry in self.entries if entry["event"] == event]


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def root():
    """A directory with a short path: pytest's own would leave no room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="gdp-") as path:
        yield Path(path)


@pytest.fixture
def directory(root):
    path = root / "device-plugins"
    path.mkdir(mode=0o750)
    return path


@pytest.fixture
def node():
    """What runs on the node of this test, for fixtures that must know of each other."""
    return {}


@pytest.fixture
async def kubelet(node, directory, root):
    """A running stand-in kubelet; a test that makes it crash must take note of that itself, by clearing `crash`."""
    stand_in = StandInKubelet(directory, pod_resources=root / "pod-resources" / "kubelet.sock")
    await stand_in.start()
    node["kubelet"] = stand_in
    yield stand_in
    await stand_in.stop()
    assert stand_in.crash is None, stand_in.crash


@dataclass
class Plugin:
    """Servers of ours with what keeps them registered."""

    directory: Path
    log: Log
    node: dict
    answered: list = field(default_factory=list)
    servers: dict = field(default_factory=dict)
    registrations: dict = field(default_factory=dict)
    tasks: dict = field(default_factory=dict)

    def __post_init__(self):
        self.presence = Presence(self.directory / "kubelet.sock", logger=self.log.logger)
        self.tasks["presence"] = asyncio.create_task(self.presence.run())

    async def serve(self, snapshot):
        """Serve a resource, unregistered."""
        name = snapshot.resource.name
        server = ResourceServer(name, self.directory, answered=self.answered.append, logger=self.log.logger)
        await server.start(snapshot)
        self.servers[name] = server
        return server

    def keep_registered(self, name=GPU):
        registration = Registration(self.servers[name], self.presence, logger=self.log.logger)
        self.registrations[name] = registration
        self.tasks[name] = asyncio.create_task(registration.run())
        return registration

    async def register(self, snapshot):
        """Serve a resource and wait until kubelet has its list."""
        server = await self.serve(snapshot)
        async with asyncio.timeout(10):
            await self.keep_registered(snapshot.resource.name).wait_registered()
            # We know that the list has been sent, not that kubelet has read it.
            kubelet, ids = self.node["kubelet"], [served.device.id for served in snapshot.resource.devices]
            await kubelet.record.wait_for(lambda: list(kubelet.listed(snapshot.resource.name)) == ids)
        return server

    async def close(self):
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)
        for server in self.servers.values():
            await server.stop(1.0)


@pytest.fixture
async def start_plugin(node, directory, log):
    """Makes the plugin of a process of its own: `start_plugin()`. One that ends before the test does is closed there."""
    made = []

    def start():
        made.append(Plugin(directory, log, node))
        return made[-1]

    yield start
    for plugin in made:
        await plugin.close()


@pytest.fixture
async def plugin(start_plugin):
    return start_plugin()


@pytest.fixture
async def dial(directory):
    """Dials a server of ours as kubelet does: `dial(server)` is a stub."""
    channels = []

    def dial_server(server):
        path = target(directory / server.endpoint)
        channel = grpc.aio.insecure_channel(path, options=[("grpc.default_authority", "localhost")])
        channels.append(channel)
        return DevicePluginStub(channel)

    yield dial_server
    for channel in channels:
        await channel.close()
