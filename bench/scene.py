"""A scene: a directory, a stand-in kubelet in this process, and the process under measurement, which registers with it."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import grpc

from bench.floor import dump_answers
from bench.process import BenchFailed, Measured
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2 import Empty
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import DevicePluginStub
from device_plugin.simulation.kubelet import StandInKubelet
from device_plugin.simulation.kubelet_record import Happening

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bench.process import Usage
    from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2 import RegisterRequest
    from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import DevicePluginAsyncStub

GPU = "nvidia.com/gpu"
SHARED = "version: v1\nsharing:\n  timeSlicing:\n    resources:\n      - name: nvidia.com/gpu\n        replicas: {replicas}\n"
WHOLE = "version: v1\n"
READY_SECONDS = 60.0


def shared(replicas: int) -> str:
    """A config that shares each GPU so many times."""
    return SHARED.format(replicas=replicas)


class TimedKubelet(StandInKubelet):
    """A stand-in kubelet that notes when each Register call came in, before it does anything about it."""

    def __init__(self, directory: Path, *, pod_resources: Path) -> None:
        super().__init__(directory, pod_resources=pod_resources)
        self.asked_at: list[float] = []

    async def register(self, request: RegisterRequest, time_left_seconds: float | None) -> str | None:
        self.asked_at.append(asyncio.get_running_loop().time())
        return await super().register(request, time_left_seconds)


class ConfigMap:
    """A config file as kubelet mounts one: `config.yaml` -> `..data/config.yaml`, and `..data` swapped as a whole."""

    def __init__(self, directory: Path, text: str) -> None:
        directory.mkdir()
        self._directory, self._revision = directory, 0
        self.file = directory / "config.yaml"
        self.swap(text)
        self.file.symlink_to("..data/config.yaml")

    def swap(self, text: str) -> None:
        """Make this the content, in one rename."""
        self._revision += 1
        fresh, link = self._directory / f"..revision-{self._revision}", self._directory / "..data_tmp"
        fresh.mkdir()
        (fresh / "config.yaml").write_text(text)
        old = self._directory / "..data"
        stale = self._directory / old.readlink() if old.is_symlink() else None
        link.symlink_to(fresh.name)
        link.rename(old)
        if stale is not None:
            (stale / "config.yaml").unlink()
            stale.rmdir()


@dataclass(slots=True)
class Scene:
    """One life of a process on a simulated node, as an async context manager.

    It is the plugin, or with `answers` the floor. `devices` is how many healthy ones make it ready.
    """

    profile: str
    config: str
    devices: int
    answers: Mapping[str, bytes] | None = None
    flags: tuple[str, ...] = ()
    start_seconds: float = 0.0  # from the start of the process to its Register call
    list_seconds: float = 0.0  # from the start of the process to its list
    kubelet: TimedKubelet = field(init=False)
    process: Measured = field(init=False)
    config_map: ConfigMap = field(init=False)
    stub: DevicePluginAsyncStub = field(init=False)
    _root: tempfile.TemporaryDirectory[str] = field(init=False)
    _channel: grpc.aio.Channel | None = None

    async def __aenter__(self) -> Self:
        self._root = tempfile.TemporaryDirectory(prefix="gdp-bench-")
        root = Path(self._root.name)
        self.config_map = ConfigMap(root / "config", self.config)
        self.kubelet = TimedKubelet(root / "plugins", pod_resources=root / "pod-resources" / "kubelet.sock")
        await self.kubelet.start()
        try:
            self.process = await self._start(root)
            try:
                await self._become_ready()
            except BaseException:
                await self.process.end()
                raise
        except BaseException:
            await self.kubelet.stop()
            self._root.cleanup()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        try:
            if self._channel is not None:
                await self._channel.close()
            await self.process.end()
        finally:
            await self.kubelet.stop()
            self._root.cleanup()

    def usage(self) -> Usage:
        return self.process.usage()

    async def wait_healthy(self, count: int, timeout_seconds: float = READY_SECONDS) -> float:
        """Wait until kubelet has a list with so many healthy devices, and when that came. Raises `BenchFailed`."""
        waiting = asyncio.ensure_future(
            self.kubelet.record.wait_for(lambda: self.kubelet.allocatable(GPU) == count, timeout_seconds)
        )
        ended = asyncio.ensure_future(self.process.wait_ended())
        await asyncio.wait({waiting, ended}, return_when=asyncio.FIRST_COMPLETED)
        ended.cancel()
        try:
            if not waiting.done():
                waiting.cancel()
                raise BenchFailed(f"the process has ended\n{self.process.log_tail()}")
            await waiting
        except TimeoutError:
            found = f"{self.kubelet.allocatable(GPU)} healthy devices, not {count}, after {timeout_seconds:g} s"
            raise BenchFailed(f"{found}\n{self.process.log_tail()}") from None
        return self.kubelet.record.of(Happening.LIST, GPU)[-1].time

    async def read_list(self) -> bytes:
        """The list, serialised, from a stream of its own beside kubelet's."""
        call = self.stub.ListAndWatch(Empty())
        async with asyncio.timeout(READY_SECONDS):
            async for response in call:
                call.cancel()
                return response.SerializeToString()
        raise BenchFailed("a stream ended without a list")

    async def _start(self, root: Path) -> Measured:
        log = root / "log"
        if self.answers is not None:
            file = root / "answers.json"
            _write(file, dump_answers(self.answers))
            return await Measured.start("bench.floor", [str(self.kubelet.directory), GPU, str(file)], log)
        arguments: dict[str, Any] = {
            "simulate": self.profile,
            "kubelet-socket": self.kubelet.socket,
            "pod-resources-socket": self.kubelet.pod_resources,
            "config-file": self.config_map.file,
            "cdi-directory": root / "cdi",
            "log-format": "json",
        }
        return await Measured.start(
            "device_plugin", ["run", *(f"--{flag}={value}" for flag, value in arguments.items()), *self.flags], log
        )

    async def _become_ready(self) -> None:
        listed_at = await self.wait_healthy(self.devices)
        self.start_seconds = self.kubelet.asked_at[0] - self.process.started_at
        self.list_seconds = listed_at - self.process.started_at
        endpoint = self.kubelet.directory / self.kubelet.record.of(Happening.REGISTERED, GPU)[-1].detail
        self._channel = grpc.aio.insecure_channel(
            f"unix:{endpoint}", options=[("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        )
        self.stub = DevicePluginStub(self._channel)


def _write(path: Path, text: str) -> None:
    path.write_text(text)
