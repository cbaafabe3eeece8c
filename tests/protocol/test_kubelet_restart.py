"""Kubelet goes and comes back: the plugin's share of what its pods live through."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from device_plugin.kubelet.registration import call_register
from device_plugin.simulation.kubelet_admission import Admission
from device_plugin.simulation.kubelet_devices import Container, Pod, PodRejected
from device_plugin.simulation.kubelet_record import Happening
from device_plugin.simulation.kubelet_socket import ListeningSocket

GPU = "nvidia.com/gpu"


def open_descriptors():
    return len(list(Path("/proc/self/fd").iterdir()))


async def is_back(kubelet, count=2):
    await kubelet.wait_allocatable(GPU, count)


async def test_kubelets_start_sweeps_our_socket_away_and_it_comes_back(kubelet, plugin, snapshot):
    """A new kubelet deletes every socket in its directory, ours too; a watcher on the wrong directory never noticed
    (kubevirt/kubevirt#17122)."""
    server = await plugin.register(snapshot(["a", "b"]))
    await kubelet.restart()
    await is_back(kubelet)
    assert server.owns_socket()


async def test_being_back_takes_milliseconds_with_no_notification_at_all(kubelet, plugin, snapshot):
    """Kubelet admits stopped containers 0.9 s after it opened its socket: polling alone must be far below
    (kubernetes/kubernetes#118559)."""
    await plugin.register(snapshot(["a", "b"]))
    gaps = []
    for _ in range(10):
        await asyncio.sleep(0.05)
        await kubelet.restart()
        await is_back(kubelet)
        opened = kubelet.record.of(Happening.STARTED)[-1].time
        gaps.append(kubelet.record.of(Happening.REGISTERED)[-1].time - opened)
    assert min(gaps) < 0.06, "what it takes where nothing else runs; how it spreads is the benchmark's business"
    assert max(gaps) < 0.9


async def test_a_socket_that_is_bound_before_it_accepts_is_waited_for_eagerly(kubelet, plugin, snapshot):
    """At boot kubelet.sock exists but refuses connections; nobody gives up, and nobody is late (kubernetes/kubernetes#125506)."""
    await plugin.register(snapshot(["a", "b"]))
    await kubelet.restart(accept_after_seconds=0.4)
    await is_back(kubelet)
    gap = kubelet.record.of(Happening.REGISTERED)[-1].time - kubelet.record.of(Happening.STARTED)[-1].time
    assert gap < 0.5


async def test_a_kubelet_slow_to_accept_is_waited_for(kubelet, plugin, snapshot, directory):
    """A socket that listens but is not served yet, as on a busy node: the connection is given its time, not tried over and over."""
    server = await plugin.serve(snapshot(["a", "b"]))
    slow = ListeningSocket(directory / "slow.sock")
    slow._bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    slow._bound.bind(str(slow.path))
    slow._bound.listen()
    slow._staging = kubelet.socket
    registering = asyncio.create_task(call_register(slow.path, server.endpoint, GPU, server.options))
    await asyncio.sleep(0.4)
    assert not registering.done()
    slow._spawn(slow._accept(slow._bound))
    await registering
    await is_back(kubelet)
    await slow.close()


async def test_kubelet_may_be_away_longer_than_eagerness_lasts(kubelet, plugin, snapshot, monkeypatch):
    """A kubelet that stays away for minutes is still found by polling, however late it comes."""
    monkeypatch.setattr("device_plugin.kubelet.presence.EAGER_FOR_SECONDS", 0.1)
    await plugin.register(snapshot(["a", "b"]))
    await kubelet.restart(down_seconds=0.6)
    await is_back(kubelet)
    assert len(kubelet.record.of(Happening.REGISTERED)) == 2


async def test_a_refusing_socket_without_an_owner_is_not_taken_for_kubelet(plugin, snapshot, directory):
    """A left-over kubelet.sock: nothing is registered, nothing fails, the log says what is there."""
    left_over = socket.socket(socket.AF_UNIX)
    left_over.bind(str(directory / "kubelet.sock"))
    left_over.close()
    await plugin.serve(snapshot(["a"]))
    registration = plugin.keep_registered()
    await asyncio.sleep(1.0)
    assert (registration.is_registered, registration.failure) == (False, None)
    assert plugin.log.of("kubelet.awaited")[-1]["reason"] == "the socket is there, but nobody listens on it"


async def test_our_socket_deleted_alone_is_made_anew(kubelet, plugin, snapshot, directory):
    """Somebody removes our socket while kubelet runs on: it is noticed by polling, made anew and registered once."""
    server = await plugin.register(snapshot(["a", "b"]))
    (directory / server.endpoint).unlink()
    await kubelet.record.wait_for(lambda: len(kubelet.record.of(Happening.REGISTERED)) == 2)
    await is_back(kubelet)
    assert server.owns_socket()
    assert [entry["reason"] for entry in plugin.log.of("resource.registration_lost")] == ["socket taken away"]


async def test_running_containers_keep_their_devices_over_a_restart(kubelet, plugin, snapshot):
    """No call is made for a container that runs; its devices are not given to anybody else."""
    await plugin.register(snapshot(["a", "b"]))
    held = (await kubelet.admit(Pod.of("old", gpu=1))).devices("main", GPU)
    await kubelet.restart()
    await is_back(kubelet)
    assert (await kubelet.admit(Pod.of("new", gpu=1))).devices("main", GPU) != held
    with pytest.raises(PodRejected, match="Requested: 1, Available: 0"):
        await kubelet.admit(Pod.of("third", gpu=1))


async def test_stopped_containers_start_again_with_the_stored_answer(kubelet, plugin, snapshot):
    """Kubelet admits a stopped container 0.9 s after its start; we are back by then, and Allocate is not asked again."""
    await plugin.register(snapshot(["a", "b"]))
    state = await kubelet.admit(Pod.of("job", gpu=1))
    answer = kubelet.injected("job").envs["NVIDIA_VISIBLE_DEVICES"]
    kubelet.stop_container("job", "main")
    await kubelet.restart()
    await is_back(kubelet)
    await kubelet.wait_readmitted()
    assert (state.failure, state.running) == (None, {"main"})
    assert kubelet.injected("job").envs["NVIDIA_VISIBLE_DEVICES"] == answer
    assert len(kubelet.record.of(Happening.ALLOCATED)) == 1


async def test_a_plugin_that_is_not_back_costs_the_stopped_pod(kubelet, plugin, snapshot, monkeypatch):
    """Why the race matters: nothing tries that admission again (kubernetes/kubernetes#128043)."""
    monkeypatch.setattr("device_plugin.simulation.kubelet_admission.READMIT_SECONDS", 0.05)
    await plugin.register(snapshot(["a"]))
    state = await kubelet.admit(Pod.of("job", gpu=1))
    kubelet.stop_container("job", "main")
    plugin.tasks[GPU].cancel()
    await kubelet.restart()
    await kubelet.wait_readmitted()
    assert state.failure == (
        "Pod was rejected: Allocate failed due to no healthy devices present; cannot allocate unhealthy devices nvidia.com/gpu, "
        "which is unexpected"
    )


async def test_a_pod_that_is_deleted_while_it_is_admitted_anew_is_not_started(kubelet, plugin, snapshot, monkeypatch):
    await plugin.register(snapshot(["a", "b"]))
    await kubelet.admit(Pod.of("job", gpu=1))
    kubelet.stop_container("job", "main")
    allocate_all = Admission._allocate_all

    async def allocate_and_be_deleted(self, state):
        await allocate_all(self, state)
        kubelet.delete("job")

    monkeypatch.setattr(Admission, "_allocate_all", allocate_and_be_deleted)
    await kubelet.restart()
    await is_back(kubelet)
    await kubelet.wait_readmitted()
    assert len(kubelet.record.of(Happening.CONTAINER_STARTED)) == 1, "the one before kubelet's restart"


async def test_a_held_device_that_became_unhealthy_costs_the_stopped_pod(kubelet, plugin, snapshot, monkeypatch):
    """After its start kubelet looks at the health of held IDs, for containers that are not running."""
    monkeypatch.setattr("device_plugin.simulation.kubelet_admission.READMIT_SECONDS", 0.3)
    server = await plugin.register(snapshot(["a", "b"]))
    state = await kubelet.admit(Pod.of("job", gpu=1))
    kubelet.stop_container("job", "main")
    server.update(snapshot(["a", "b"], unhealthy=state.devices("main", GPU)))
    await kubelet.restart()
    await kubelet.wait_readmitted()
    assert "previously allocated devices are no longer healthy" in state.failure


async def test_a_resource_kubelet_does_not_know_is_skipped(kubelet):
    """The pod runs without any device: its environment is empty, which must not mean "all devices"."""
    state = await kubelet.admit(Pod("blind", (Container("main", {GPU: 1}),)))
    assert (state.running, state.granted) == ({"main"}, {})


async def test_a_connection_that_comes_as_kubelet_goes_is_closed(directory):
    """The stand-in's own socket: accepted in the very moment of the stop, and nobody has begun to serve it."""
    listening = ListeningSocket(directory / "kubelet.sock")
    listening._bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    listening._bound.bind(str(listening.path))
    listening._bound.listen()
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(str(listening.path))
        listening._take(listening._bound)
        await listening.close()
        caller.settimeout(1)
        assert caller.recv(1) == b""


async def test_many_restarts_leave_no_descriptor_behind(kubelet, plugin, snapshot):
    """Thirty restarts: as many open descriptors at the end as after the first ten."""
    await plugin.register(snapshot(["a", "b"]))
    counts = []
    for number in range(30):
        await kubelet.restart()
        await is_back(kubelet)
        async with asyncio.timeout(5):
            await plugin.registrations[GPU].wait_registered()
        plugin.registrations[GPU]._backoff.reset()
        if number in (9, 29):
            await asyncio.sleep(0.2)
            counts.append(open_descriptors())
    assert counts[1] <= counts[0] + 2
