"""A driver played by the test, and a logger that keeps what it is told."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
import structlog

from device_plugin.errors import DriverError
from device_plugin.hardware.driver import Call, DriverFacts, Event, Probe
from device_plugin.hardware.model import Gpu
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.sharing.offer import Device, Offer, PreferencePolicy, Resource


class Node:
    """The hardware behind all FakeDrivers of a test: what hangs, what fails, which events wait."""

    def __init__(self, gpus=3):
        self.uuids = [f"GPU-{number}" for number in range(gpus)]
        self.released = threading.Event()
        self.hanging = set()
        self.failing = {}
        self.unwatched = {}
        self.events = []
        self.open_drivers = 0
        self.watches = []
        self.made = 0

    def make(self):
        self.made += 1
        return FakeDriver(self)


class FakeDriver:
    def __init__(self, node):
        self.node, self.current_call, self.is_open = node, None, False

    def call(self, name, subject=None):
        self.current_call = Call(name, subject, time.monotonic())
        try:
            if {(name, subject), (name, None)} & self.node.hanging:
                self.node.released.wait(10)
            if name in self.node.failing:
                raise DriverError(name, self.node.failing[name])
        finally:
            self.current_call = None

    def open(self):
        self.call("open")
        self.is_open = True
        self.node.open_drivers += 1
        return DriverFacts("1.0", (13, 0), len(self.node.uuids))

    def close(self):
        if self.is_open:
            self.is_open = False
            self.node.open_drivers -= 1

    def read_gpu(self, index):
        self.call("read", str(index))
        return Gpu(index, self.node.uuids[index], "GPU")

    def read_links(self, gpus):
        for gpu in gpus:
            self.call("links", gpu.uuid)
        return ()

    def probe(self, gpu_uuid):
        self.call("probe", gpu_uuid)
        return Probe(gpu_uuid)

    def watch(self, gpu_uuids):
        for uuid in gpu_uuids:
            self.call("watch", uuid)
        self.node.watches.append(tuple(gpu_uuids))
        return FakeEvents(self)


class FakeEvents:
    def __init__(self, driver):
        self.driver = driver
        self.unwatched = dict(driver.node.unwatched)
        self.is_closed = False

    def wait(self, timeout_seconds):
        self.driver.call("wait")
        if self.driver.node.events:
            return self.driver.node.events.pop(0)
        time.sleep(min(timeout_seconds, 0.01))
        return None

    def close(self):
        self.is_closed = True


class Log:
    def __init__(self):
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
def node():
    made = Node()
    yield made
    made.released.set()


@pytest.fixture
def eventually():
    async def wait(condition, timeout_seconds=3.0):
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            assert time.monotonic() < deadline, "did not happen"
            await asyncio.sleep(0.005)

    return wait


class Make:
    """Makes values."""

    Event = Event

    def problem(self, kind=ProblemKind.CONFIG, severity=Severity.ERROR, message="wrong"):
        return Problem(severity, kind, message, Origin("config.yaml", 1, 1))

    def offer(self, *problems, resources=()):
        return Offer(tuple(resources), tuple(problems))

    def resource(self, name, *ids):
        devices = tuple(Device(name, name.partition("::")[0], name.partition("::")[0], "0") for name in ids)
        return Resource(name, devices, PreferencePolicy.ALIGNED)


@pytest.fixture
def make():
    return Make()
