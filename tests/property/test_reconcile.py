"""Random lives of a node: after each step the healthy devices at kubelet are those of `plan` without causes, and kubelet lives."""

import asyncio
import contextlib
import tempfile
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from device_plugin.config.load import load
from device_plugin.hardware.model import Gpu, Inventory, MigDevice
from device_plugin.serving import leaving
from device_plugin.sharing.plan import plan
from device_plugin.simulation.kubelet import StandInKubelet
from device_plugin.simulation.kubelet_devices import Pod, PodRejected
from device_plugin.simulation.node import SimulatedNode
from device_plugin.simulation.plugin import SimulatedPlugin
from device_plugin.supervisor import discoverer, holders, prober, supervisor
from device_plugin.supervisor.threads import EventThread

BASE = """\
version: v1
flags: {{failOnInitError: false, migStrategy: {strategy}}}
health: {{probeInterval: 50ms}}
reconcile: {{leavingGrace: 100ms, rediscoveryInterval: 60ms, driverCallTimeout: 300ms, exitAfterDriverLoss: 0s}}
"""
SHARING = "sharing: {{timeSlicing: {{resources: [{}]}}}}\n"
GOOD = [
    BASE.format(strategy="none"),
    BASE.format(strategy="mixed"),
    BASE.format(strategy="mixed") + SHARING.format("{name: nvidia.com/gpu, replicas: 3}"),
    BASE.format(strategy="mixed") + SHARING.format("{name: nvidia.com/gpu, replicas: 2, rename: gpu.shared, devices: 2}"),
    BASE.format(strategy="mixed") + SHARING.format("{name: nvidia.com/mig-1g.5gb, replicas: 2}"),
    BASE.format(strategy="mixed") + "devices: {exclude: [1]}\n",
]
BAD = [
    "version: v1\nnonsense: {}\n",
    BASE.format(strategy="none") + SHARING.format("{name: nvidia.com/gpu, replicas: 60000}"),
]
LAYOUTS = [[], ["1g.5gb"], ["3g.20gb", "1g.5gb", "1g.5gb"], ["2g.10gb"] * 3]


class Life:
    """A node of four GPUs, what the test knows to be true of it, and the steps that can happen to it."""

    def __init__(self, node, directory, logger):
        self.node, self.sockets, self.logger = node, directory / "dp", logger
        self.config_file = directory / "config.yaml"
        self.kubelet = StandInKubelet(self.sockets, pod_resources=directory / "pr" / "kubelet.sock")
        self.plugin = None
        self.config = GOOD[1]  # in force
        self.broken = set()  # GPUs that had an XID which only a reboot cures
        self.lost, self.hung, self.errors = set(), set(), set()
        self.missed = set()  # GPUs that went: listed as what they were, Unhealthy
        self.pods = 0
        self.is_loaded = True

    # the truth

    def hardware(self):
        return tuple(
            Gpu(
                index,
                gpu.uuid,
                gpu.name,
                mig_enabled=gpu.mig_enabled,
                mig_devices=tuple(MigDevice(mig.uuid, mig.index, profile=mig.profile) for mig in gpu.mig),
            )
            for index, gpu in enumerate(self.node.gpus)
        )

    def offered(self):
        """What `plan` gives for the hardware that is there: devices by resource and ID."""
        offer = plan(Inventory(self.hardware()), load(self.config, file="", environment={}, flags={}).config)
        return {resource.name: {device.id: device for device in resource.devices} for resource in offer.resources}

    def expected(self):
        """The healthy device IDs by resource."""
        if not self.is_loaded:
            return {}
        gpus, offered = self.hardware(), self.offered()
        parents = {mig.uuid: gpu.uuid for gpu in gpus for mig in gpu.mig_devices} | {gpu.uuid: gpu.uuid for gpu in gpus}
        held = [
            (device_id.partition("::")[0], "::" in device_id)
            for state in self.kubelet.manager.pods.values()
            for grants in state.granted.values()
            for resource, grant in grants.items()
            for device_id in grant.devices
            if device_id not in offered.get(resource, {}) and device_id.partition("::")[0] in parents
        ]
        out = self.broken | self.lost | self.hung | self.errors

        def is_free(device):
            for hardware, is_shared in held:
                if parents[hardware] != device.gpu_uuid:
                    continue
                if hardware == device.hardware_id and not (is_shared and device.is_shared):
                    return False
                if hardware != device.hardware_id and device.gpu_uuid in (hardware, device.hardware_id):
                    return False
            return True

        healthy = {
            name: {device_id for device_id, device in devices.items() if device.gpu_uuid not in out and is_free(device)}
            for name, devices in offered.items()
        }
        return {name: ids for name, ids in healthy.items() if ids}

    def seen(self):
        return {name: set(state.healthy) for name, state in self.kubelet.manager.resources.items() if state.healthy}

    async def settle(self):
        """Wait until what is seen is what is expected, and stays so."""
        expected = self.expected()
        try:
            async with asyncio.timeout(8):
                while True:
                    while self.seen() != expected:
                        await asyncio.sleep(0.01)
                        assert self.kubelet.crash is None, self.kubelet.crash
                    await asyncio.sleep(0.06)
                    if self.seen() == expected:
                        return
        except TimeoutError:
            seen = self.seen()
            names = sorted(seen.keys() | expected.keys())
            wrong = {n: (sorted(seen.get(n, set()) ^ expected.get(n, set()))) for n in names if seen.get(n) != expected.get(n)}
            raise AssertionError(f"does not settle, differs in {wrong}") from None

    async def leave_nothing(self):
        """Without pods all that is listed beside the Offer was leaving, and goes; what cannot be read is kept as it was."""
        self.kubelet.manager.pods.clear()
        await self.settle()
        if self.lost or self.hung or self.missed or not self.is_loaded:
            return
        offered = {name: set(devices) for name, devices in self.offered().items() if devices}
        try:
            async with asyncio.timeout(8):
                while (listed := self.listed()) != offered:  # noqa: ASYNC110 - the books have no event to wait for
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(f"listed for good: {listed}, offered: {offered}") from None

    def listed(self):
        return {name: set(state.devices) for name, state in self.kubelet.manager.resources.items() if state.devices}

    # life

    async def start(self):
        self.config_file.write_text(self.config)
        self.plugin = SimulatedPlugin(
            self.node,
            self.sockets,
            config_file=self.config_file,
            pod_resources=self.kubelet.pod_resources,
            config_poll_seconds=0.05,
            logger=self.logger,
        )
        await self.plugin.__aenter__()

    # steps; `n` is any number

    async def edit(self, n):
        self.config = GOOD[n % len(GOOD)]
        self.config_file.write_text(self.config)

    async def break_edit(self, n):
        await self.settle()  # else the good edit before it may never have been seen
        self.config_file.write_text(BAD[n % len(BAD)])

    async def xid(self, n):
        if self.lost or self.hung or self.missed or not self.is_loaded:
            return  # the driver is opened anew and again then, and nobody hears an event in between
        await self.settle()
        gpu = self.node.gpus[n % len(self.node.gpus)].uuid
        self.node.xid(gpu, 79)
        self.broken.add(gpu)

    async def harmless_xid(self, n):
        self.node.xid(n % len(self.node.gpus), 13)

    async def ecc(self, n):
        gpu = self.node.gpus[n % len(self.node.gpus)].uuid
        self.node.set(gpu, ecc_uncorrectable=0 if gpu in self.errors else 1)
        self.errors ^= {gpu}

    async def lose(self, n):
        gpu = self.node.gpus[n % len(self.node.gpus)].uuid
        (self.node.restore if gpu in self.lost else self.node.lose)(gpu)
        self.lost ^= {gpu}

    async def hang(self, n):
        if self.hung:
            self.node.release()
            self.hung.clear()
        else:
            gpu = self.node.gpus[n % len(self.node.gpus)].uuid
            self.node.hang("nvmlDeviceGetTotalEccErrors", gpu=gpu)
            self.hung.add(gpu)

    async def repartition(self, n):
        gpu = self.node.gpus[n % len(self.node.gpus)].uuid
        if gpu in self.lost or gpu in self.hung or not self.is_loaded:
            return
        layout = LAYOUTS[n % len(LAYOUTS)]
        self.node.repartition(gpu, layout) if layout else self.node.set_mig_mode(gpu, enabled=False)

    async def plug(self, n):
        """A GPU more, or one less: those behind it move up in the driver's order."""
        if self.lost or self.hung or not self.is_loaded:
            return
        if n % 2 and len(self.node.gpus) < 6:
            self.node.add_gpu()
        elif len(self.node.gpus) > 2:
            gone = self.node.gpus[n % len(self.node.gpus)].uuid
            self.node.remove_gpu(gone)
            self.errors.discard(gone)
            self.missed.add(gone)

    async def driver(self, n):
        if self.hung or self.lost:
            return
        (self.node.unload_driver if self.is_loaded else self.node.load_driver)()
        self.is_loaded = not self.is_loaded

    async def restart_kubelet(self, n):
        await self.kubelet.restart(down_seconds=(0.0, 0.05)[n % 2], accept_after_seconds=(0.0, 0.0, 0.1)[n % 3])

    async def restart_plugin(self, n):
        if self.lost or self.hung:
            return  # a GPU that a fresh process cannot read has no place that it could be kept in
        await self.settle()  # an XID that nobody has heard by the end is heard by nobody
        await self.plugin.stop()
        await self.start()

    async def admit(self, n):
        resources = sorted(name for name, ids in self.seen().items() if ids)
        if resources:
            self.pods += 1
            name = f"p{self.pods}"
            try:
                await self.kubelet.admit(Pod.of(name, **{resources[n % len(resources)]: 1 + n % 2}))
            except PodRejected:
                del self.kubelet.manager.pods[name]

    async def delete(self, n):
        if pods := sorted(self.kubelet.manager.pods):
            self.kubelet.delete(pods[n % len(pods)])

    async def time(self, n):
        await asyncio.sleep(0.05 * (n % 8))


STEPS = [
    name
    for name, value in vars(Life).items()
    if asyncio.iscoroutinefunction(value) and name not in ("settle", "leave_nothing", "start")
]


async def live(steps):
    capture = structlog.testing.LogCapture()
    logger = structlog.wrap_logger(None, processors=[capture], wrapper_class=structlog.make_filtering_bound_logger(20))
    with tempfile.TemporaryDirectory(prefix="gdp-") as directory, SimulatedNode("l4x4") as node:
        for gpu in node.gpus:
            node.set(gpu.uuid, mig_capable=True, name="NVIDIA A100-SXM4-40GB", memory_bytes=40 * 2**30, ecc_uncorrectable=0)
        life = Life(node, Path(directory), logger)
        async with life.kubelet:
            await life.start()
            try:
                await life.settle()
                for name, number, settles in steps:
                    await getattr(life, name)(number)
                    if settles:
                        await life.settle()
                await life.leave_nothing()
                assert not [entry for entry in capture.entries if entry["event"] == "task.failed"]
            except BaseException:
                for entry in capture.entries[-40:]:
                    note(str(entry))
                raise
            finally:
                node.release()
                await life.plugin.stop()


@pytest.fixture(autouse=True)
def _hasten(monkeypatch):
    monkeypatch.setattr(leaving, "ANSWER_SETTLES_SECONDS", 0.2)
    monkeypatch.setattr(holders, "BOOKED_WITHIN_SECONDS", 0.2)
    monkeypatch.setattr(supervisor, "HOLDERS_POLL_SECONDS", 0.05)
    monkeypatch.setattr(prober, "HANGING_POLL_SECONDS", 0.05)
    monkeypatch.setattr(discoverer, "SPACING_SECONDS", 0.02)
    monkeypatch.setattr(discoverer, "FIRST_RETRY_SECONDS", 0.05)
    monkeypatch.setattr(discoverer, "LAST_RETRY_SECONDS", 0.2)
    monkeypatch.setattr(EventThread, "SLICE_SECONDS", 0.03)


@pytest.mark.timeout(300)
@settings(
    max_examples=6,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 999), st.booleans()), min_size=6, max_size=14))
def test_whatever_happens_kubelet_is_shown_the_truth(steps):
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        loop.run_until_complete(live(steps))
