"""The whole plugin on a simulated node beside a stand-in kubelet, over real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import tempfile
from pathlib import Path

import pytest
import structlog

from device_plugin.serving import leaving
from device_plugin.simulation.kubelet import StandInKubelet
from device_plugin.simulation.kubelet_devices import Pod
from device_plugin.simulation.kubelet_record import Happening
from device_plugin.simulation.node import SimulatedNode
from device_plugin.simulation.plugin import SimulatedPlugin
from device_plugin.supervisor import discoverer, holders, prober, supervisor
from device_plugin.supervisor.threads import EventThread

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"


class Rig:
    """One node: hardware, directory, config file, log. Kubelet and the plugin come and go."""

    def __init__(self, node, directory):
        self.node, self.directory = node, directory
        self.sockets = directory / "dp"
        self.pod_resources = directory / "pr" / "kubelet.sock"
        self.config_file = directory / "config" / "config.yaml"
        self.config_file.parent.mkdir()
        capture = structlog.testing.LogCapture()
        self.log = capture.entries
        self.logger = structlog.wrap_logger(
            None, processors=[capture], wrapper_class=structlog.make_filtering_bound_logger(0), cache_logger_on_first_use=False
        )
        self.kubelet = StandInKubelet(self.sockets, pod_resources=self.pod_resources)

    # config

    def write(self, text):
        self.config_file.write_text(text)

    # life

    @contextlib.asynccontextmanager
    async def running(self, *, kubelet=True, ready=True, **options):
        """The plugin, and kubelet unless it runs already; waits until the plugin is ready and kubelet has read its lists."""
        async with contextlib.AsyncExitStack() as stack:
            if kubelet:
                await stack.enter_async_context(self.kubelet)
            ready_before = len(self.of("plugin.became_ready"))
            plugin = await stack.enter_async_context(self.plugin(**options))
            if ready:
                await self.wait_log("plugin.became_ready", ready_before + 1)
            yield plugin
            if kubelet:
                assert self.kubelet.crash is None, self.kubelet.crash

    def _has_every_list(self):
        awaited = set()
        for entry in self.kubelet.record.entries:
            if entry.happening is Happening.REGISTERED:
                awaited.add(entry.resource)
            elif entry.happening is Happening.LIST:
                awaited.discard(entry.resource)
        return not awaited

    def plugin(self, *, pod_resources=True, **options):
        options.setdefault("config_file", self.config_file if self.config_file.exists() else None)
        options.setdefault("config_poll_seconds", 0.2)
        return SimulatedPlugin(
            self.node,
            self.sockets,
            pod_resources=self.pod_resources if pod_resources else None,
            logger=self.logger,
            **options,
        )

    async def admit(self, name, **requests):
        return await self.kubelet.admit(Pod.of(name, **requests))

    # what is seen

    def of(self, event):
        return [entry for entry in self.log if entry["event"] == event]

    async def wait_log(self, event, count=1, timeout_seconds=30.0):
        await self.wait(lambda: len(self.of(event)) >= count, timeout_seconds)
        if event == "plugin.became_ready":  # said when the last list is sent
            await self.wait(self._has_every_list)

    async def wait(self, condition, timeout_seconds=30.0):
        try:
            async with asyncio.timeout(timeout_seconds):
                while not condition():  # noqa: ASYNC110 - a condition of the node has no event to wait for
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"not within {timeout_seconds} s; the log: {self.log[-15:]}") from None

    def registrations(self, resource=GPU):
        return len(self.kubelet.record.of(Happening.REGISTERED, resource))

    def lists(self, resource=GPU):
        return self.kubelet.record.of(Happening.LIST, resource)

    def healthy(self, resource=GPU):
        return self.kubelet.healthy(resource)

    def uuid(self, index):
        return self.node.gpus[index].uuid

    def uuids(self, *indexes):
        return {self.uuid(index) for index in indexes}


@pytest.fixture
def rig():
    """Makes a Rig on a profile; all are closed at the end."""
    with contextlib.ExitStack() as stack:

        def make(profile="dgx-a100", config=None):
            # A short path: pytest's own directory would leave no room for a socket's name.
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gdp-")))
            made = Rig(stack.enter_context(SimulatedNode(profile)), directory)
            if config is not None:
                made.write(config)
            return made

        yield make


SETTLES_SECONDS = 0.5  # how long an answer counts as under way, in these tests


@pytest.fixture(autouse=True)
def _hasten(monkeypatch):
    """Run the waits that no config shortens at a tenth of their length."""
    monkeypatch.setattr(leaving, "ANSWER_SETTLES_SECONDS", SETTLES_SECONDS)
    monkeypatch.setattr(holders, "BOOKED_WITHIN_SECONDS", SETTLES_SECONDS)
    monkeypatch.setattr(supervisor, "HOLDERS_POLL_SECONDS", 0.2)
    monkeypatch.setattr(supervisor, "READY_POLL_SECONDS", 0.02)
    monkeypatch.setattr(supervisor, "UNREADY_POLL_SECONDS", 0.02)
    monkeypatch.setattr(prober, "HANGING_POLL_SECONDS", 0.1)
    monkeypatch.setattr(discoverer, "FIRST_RETRY_SECONDS", 0.1)
    monkeypatch.setattr(discoverer, "SPACING_SECONDS", 0.2)
    monkeypatch.setattr(EventThread, "SLICE_SECONDS", 0.05)


FAST = """\
version: v1
health: {probeInterval: 100ms, recoverAfter: 500ms}
reconcile: {leavingGrace: 200ms, rediscoveryInterval: 150ms, driverCallTimeout: 1s}
"""


@pytest.fixture
def fast():
    """A config in which everything that takes time takes little, with more text after it."""

    def make(more=""):
        return FAST + more

    return make
