"""The five RPCs over real gRPC on real sockets."""

from __future__ import annotations

import asyncio
import gc
import signal
import stat
import sys
from functools import partial

import grpc
import pytest

from device_plugin.kubelet import servicer
from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.listing import MAX_LIST_BYTES
from device_plugin.sharing.offer import PreferencePolicy


def ids_of(response):
    return {device.ID: device.health for device in response.devices}


def preferring(available, must_include=(), size=1):
    request = pb.PreferredAllocationRequest()
    request.container_requests.add(available_deviceIDs=available, must_include_deviceIDs=must_include, allocation_size=size)
    return request


def allocating(*containers):
    request = pb.AllocateRequest()
    for ids in containers:
        request.container_requests.add(devices_ids=ids)
    return request


async def until_pending(server):
    async with asyncio.timeout(2):
        while not server.pending_calls:  # noqa: ASYNC110 nobody is told of a call that begins
            await asyncio.sleep(0.001)


async def test_every_rpc_answers_before_any_stream_is_open(plugin, dial, snapshot):
    """Kubelet calls GetDevicePluginOptions inside Register; no RPC needs an open ListAndWatch (kubernetes/kubernetes#109016)."""
    server = await plugin.serve(snapshot(["a", "b"]))
    stub = dial(server)
    assert await stub.GetDevicePluginOptions(pb.Empty()) == server.options
    assert len((await stub.GetPreferredAllocation(preferring(["a", "b"]))).container_responses) == 1
    assert len((await stub.Allocate(allocating(["a"]))).container_responses) == 1
    assert await stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=["a"])) == pb.PreStartContainerResponse()


@pytest.mark.parametrize("refuse", [False, True])
async def test_the_options_ask_for_what_is_implemented(plugin, dial, snapshot, refuse):
    """PreStartContainer is asked for only where it may refuse; the preference always."""
    server = await plugin.serve(snapshot(["a"], refuse=refuse))
    options = await dial(server).GetDevicePluginOptions(pb.Empty())
    assert options == pb.DevicePluginOptions(pre_start_required=refuse, get_preferred_allocation_available=True)


async def test_the_list_holds_every_device_in_order_with_health_and_numa_node(plugin, dial, snapshot):
    """The list keeps the devices' order, spells health as kubelet compares it, and names a NUMA node only where it is known."""
    server = await plugin.serve(snapshot(["b", "a"], unhealthy=["a"], numa=0))
    call = dial(server).ListAndWatch(pb.Empty())
    response = await call.read()
    assert [(d.ID, d.health, [n.ID for n in d.topology.nodes]) for d in response.devices] == [
        ("b", "Healthy", [0]),
        ("a", "Unhealthy", [0]),
    ]
    server.update(snapshot(["b", "a"]))
    assert not any(device.HasField("topology") for device in (await call.read()).devices)


async def test_two_streams_both_get_every_list(plugin, dial, snapshot):
    """With two streams open, NVIDIA's plugin gives each change to only one of them; here every stream gets it."""
    server = await plugin.serve(snapshot(["a", "b"]))
    calls = [dial(server).ListAndWatch(pb.Empty()) for _ in range(2)]
    assert [ids_of(await call.read()) for call in calls] == [{"a": "Healthy", "b": "Healthy"}] * 2
    server.update(snapshot(["a", "b"], unhealthy=["b"]))
    assert [ids_of(await call.read()) for call in calls] == [{"a": "Healthy", "b": "Unhealthy"}] * 2


async def test_a_dead_stream_takes_nothing_from_a_living_one(plugin, dial, snapshot):
    """A client that has gone is forgotten at once and holds up nobody."""
    server = await plugin.serve(snapshot(["a"]))
    dead, living = dial(server).ListAndWatch(pb.Empty()), dial(server).ListAndWatch(pb.Empty())
    await dead.read()
    await living.read()
    dead.cancel()
    async with asyncio.timeout(2):
        while server.open_streams > 1:
            await server.changes.next()
    server.update(snapshot([]))
    assert ids_of(await living.read()) == {}


async def test_an_equal_list_is_not_sent_again(plugin, dial, snapshot):
    """A snapshot that changes no list sends none; the next different one is the next message."""
    server = await plugin.serve(snapshot(["a"]))
    call = dial(server).ListAndWatch(pb.Empty())
    await call.read()
    server.update(snapshot(["a"]))
    server.update(snapshot(["a"], refuse=True))
    server.update(snapshot(["a", "b"]))
    assert list(ids_of(await call.read())) == ["a", "b"]


async def test_a_burst_of_changes_ends_with_the_last_one(plugin, dial, snapshot):
    """However many changes come while a stream is busy, what it has at the end is the last list."""
    server = await plugin.serve(snapshot(["a"]))
    call = dial(server).ListAndWatch(pb.Empty())
    await call.read()
    for count in range(1, 60):
        server.update(snapshot([f"gpu-{number}" for number in range(count)]))
    async with asyncio.timeout(5):
        while len((await call.read()).devices) != 59:
            pass
    assert await server.wait_listed(1.0)


async def test_listed_means_the_current_list_has_been_given(plugin, dial, snapshot):
    """`is_listed` is false without a stream, true once it has the list, false again until it has the next."""
    server = await plugin.serve(snapshot(["a"]))
    assert not server.is_listed
    assert not await server.wait_listed(0.01)
    call = dial(server).ListAndWatch(pb.Empty())
    assert await server.wait_listed(2.0)
    server.update(snapshot(["b"]))
    assert not server.is_listed
    assert await server.wait_listed(2.0)
    call.cancel()
    async with asyncio.timeout(2):
        while server.is_listed:
            await server.changes.next()


def replicas(count, size=60):
    return [f"GPU::{number:0{size - 5}d}" for number in range(count)]


async def test_a_list_of_kubelets_limit_is_sent_and_one_byte_more_is_cut(plugin, dial, snapshot):
    """Kubelet drops the stream for a list over 4,194,304 bytes; the devices that fit are kept (kubernetes/kubernetes#109304)."""
    shared = partial(snapshot, policy=PreferencePolicy.PACKED)
    server = await plugin.serve(shared(["GPU::0"]))
    call = dial(server).ListAndWatch(pb.Empty())
    await call.read()
    size = 100
    entry = 2 + len("Healthy") + 2 + size + 2  # two strings with tag and length, and the same around both
    full = replicas(MAX_LIST_BYTES // entry, size)
    rest = MAX_LIST_BYTES - entry * len(full)
    exact = [device + "0" if number < rest else device for number, device in enumerate(full)]
    server.update(shared(exact))
    response = await call.read()
    assert (response.ByteSize(), len(response.devices)) == (MAX_LIST_BYTES, len(exact))
    assert plugin.log.of("list.cut") == []

    server.update(shared([*exact[:-1], exact[-1] + "0"]))
    response = await call.read()
    assert [device.ID for device in response.devices] == exact[:-1]
    assert [(entry["left_out"], entry["devices"]) for entry in plugin.log.of("list.cut")] == [(1, len(exact) - 1)]


async def test_ending_the_streams_leaves_the_server_serving(plugin, dial, snapshot):
    """Before a new registration the old stream ends with OK; calls and a new stream are answered as before."""
    server = await plugin.serve(snapshot(["a"]))
    stub = dial(server)
    call = stub.ListAndWatch(pb.Empty())
    await call.read()
    await server.end_streams()
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    again = stub.ListAndWatch(pb.Empty())
    assert list(ids_of(await again.read())) == ["a"]
    assert await server.wait_listed(1.0)


async def test_stopping_sends_the_last_list_ends_the_streams_and_removes_the_socket(plugin, dial, directory, snapshot):
    """A resource that goes is seen empty first, then its stream ends with OK, then its socket is gone."""
    server = await plugin.serve(snapshot(["a"]))
    call = dial(server).ListAndWatch(pb.Empty())
    await call.read()
    server.update(snapshot([]))
    await server.stop(2.0)
    assert ids_of(await call.read()) == {}
    assert await call.read() is grpc.aio.EOF
    assert await call.code() is grpc.StatusCode.OK
    assert list(directory.iterdir()) == []


async def test_stopping_waits_for_no_client_that_does_not_read(plugin, dial, snapshot):
    """A client that has stopped reading delays the end by a second, not for ever."""
    shared = partial(snapshot, policy=PreferencePolicy.PACKED)
    server = await plugin.serve(shared(replicas(5_000)))
    call = dial(server).ListAndWatch(pb.Empty())
    await call.wait_for_connection()
    for count in range(4_990, 5_000):
        server.update(shared(replicas(count)))
        await asyncio.sleep(0.01)
    started = asyncio.get_running_loop().time()
    await server.stop(2.0)
    assert asyncio.get_running_loop().time() - started < 3.0


_FOLLOWS = """
import sys, time
from grpc import insecure_channel
from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb, deviceplugin_pb2_grpc as rpc
stub = rpc.DevicePluginStub(insecure_channel("unix:" + sys.argv[1], options=[("grpc.default_authority", "localhost")]))
stream = stub.ListAndWatch(pb.Empty())
next(stream)
print("reading", flush=True)
time.sleep(60)
"""


@pytest.fixture
async def frozen_client(directory):
    """Makes a process that follows a server's list and is then stopped: `await frozen_client(server)`."""
    made = []

    async def freeze(server):
        path = str(directory / server.endpoint)
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", _FOLLOWS, path, stdout=asyncio.subprocess.PIPE)
        made.append(process)
        assert await process.stdout.readline() == b"reading\n"
        process.send_signal(signal.SIGSTOP)

    yield freeze
    for process in made:
        process.kill()
        await process.wait()


async def fill(server, lists):
    """Send lists until no more fits into the socket of a client that reads none."""
    for ids in lists:
        server.update(ids)
        await asyncio.sleep(0.05)


async def test_a_frozen_client_holds_up_no_new_socket(plugin, dial, snapshot, directory, frozen_client):
    """gRPC's server ends only once it has written to every client that it ends, and one whose process is stopped never reads. So a
    kubelet that hung while another one took over, or a debugging tool left in the background, kept the resource unregistered."""
    shared = partial(snapshot, policy=PreferencePolicy.PACKED)
    server = await plugin.serve(shared(replicas(5_000)))
    await frozen_client(server)
    await fill(server, [shared(replicas(count)) for count in range(4_990, 5_000)])
    (directory / server.endpoint).unlink()
    async with asyncio.timeout(5):
        await server.rebind()
    assert server.owns_socket()
    assert len((await dial(server).ListAndWatch(pb.Empty()).read()).devices) == 4_999
    assert plugin.log.of("server.outlasted_end")
    started = asyncio.get_running_loop().time()
    await server.stop(2.0)
    assert asyncio.get_running_loop().time() - started < 3.0


async def test_a_rebind_given_up_beside_a_frozen_client_ends(plugin, snapshot, directory, frozen_client):
    """Giving up waits for no client either."""
    shared = partial(snapshot, policy=PreferencePolicy.PACKED)
    server = await plugin.serve(shared(replicas(5_000)))
    await frozen_client(server)
    await fill(server, [shared(replicas(count)) for count in range(4_990, 5_000)])
    (directory / server.endpoint).unlink()
    halfway = asyncio.ensure_future(server.rebind())
    await asyncio.sleep(1.2)  # it has given up on the stream, and stops gRPC's server
    halfway.cancel()
    await asyncio.wait({halfway}, timeout=3)
    assert halfway.cancelled()
    await server.rebind()
    assert server.owns_socket()


async def test_a_pending_call_is_waited_for_before_the_streams_end(plugin, dial, snapshot, monkeypatch):
    """A stream that ends while kubelet waits for Allocate fails that pod for good, so the call's answer leaves first."""
    release = asyncio.Event()

    class Slow(servicer.Servicer):
        async def Allocate(self, request, context):
            response = await super().Allocate(request, context)
            await release.wait()
            return response

    monkeypatch.setattr("device_plugin.kubelet.server.Servicer", Slow)
    server = await plugin.serve(snapshot(["a"]))
    stub = dial(server)
    stream = stub.ListAndWatch(pb.Empty())
    await stream.read()
    pending = asyncio.ensure_future(stub.Allocate(allocating(["a"])))
    await until_pending(server)
    stopping = asyncio.create_task(server.stop(5.0))
    await asyncio.sleep(0.05)
    assert server.open_streams == 1
    release.set()
    assert (await pending).container_responses[0].envs["NVIDIA_VISIBLE_DEVICES"] == "a"
    await stopping
    assert server.pending_calls == 0


@pytest.mark.parametrize("call", ["GetPreferredAllocation", "PreStartContainer"])
async def test_every_call_but_a_stream_counts_as_pending_until_its_answer_has_left(plugin, dial, snapshot, monkeypatch, call):
    """Kubelet waits for these answers in the middle of admitting a pod, too."""
    release, answer = asyncio.Event(), getattr(servicer.Servicer, call)

    async def slow(self, request, context):
        response = await answer(self, request, context)
        await release.wait()
        return response

    monkeypatch.setattr(servicer.Servicer, call, slow)
    server = await plugin.serve(snapshot(["a"]))
    request = {"GetPreferredAllocation": preferring(["a"]), "PreStartContainer": pb.PreStartContainerRequest(devices_ids=["a"])}
    pending = asyncio.ensure_future(getattr(dial(server), call)(request[call]))
    await until_pending(server)
    release.set()
    await pending
    assert await server.settle(2)
    assert server.pending_calls == 0


async def test_stopping_gives_up_on_a_call_that_hangs(plugin, dial, snapshot, monkeypatch):
    """Every wait ends: a call pending longer than the grace is cut off, and the log says so."""

    class Hung(servicer.Servicer):
        async def Allocate(self, request, context):
            self._count(context)
            await asyncio.Event().wait()

    monkeypatch.setattr("device_plugin.kubelet.server.Servicer", Hung)
    server = await plugin.serve(snapshot(["a"]))
    pending = asyncio.ensure_future(dial(server).Allocate(allocating(["a"])))
    await until_pending(server)
    await server.stop(0.05)
    with pytest.raises(grpc.aio.AioRpcError):
        await pending
    assert [entry["pending"] for entry in plugin.log.of("calls.outlasted_grace")] == [1]


async def test_each_container_request_gets_its_own_answer_in_order(plugin, dial, snapshot):
    """Kubelet sends one container request, but the interface allows several: one response for each."""
    server = await plugin.serve(snapshot(["a", "b"]))
    stub = dial(server)
    answer = await stub.Allocate(allocating(["b"], ["a"], ["a", "b"]))
    assert [r.envs["NVIDIA_VISIBLE_DEVICES"] for r in answer.container_responses] == ["b", "a", "a,b"]
    assert len((await stub.Allocate(pb.AllocateRequest())).container_responses) == 0
    request = preferring(["a", "b"], size=2)
    request.container_requests.add(available_deviceIDs=["b"], allocation_size=1)
    preferred = await stub.GetPreferredAllocation(request)
    assert [sorted(r.deviceIDs) for r in preferred.container_responses] == [["a", "b"], ["b"]]


async def test_a_refused_allocation_says_why_and_the_next_one_is_answered(plugin, dial, snapshot):
    """An unknown ID is refused with a text that names it, which is all that the pod's owner sees."""
    server = await plugin.serve(snapshot(["a"]))
    stub = dial(server)
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await stub.Allocate(allocating(["a"], ["GPU-unknown"]))
    assert refusal.value.code() is grpc.StatusCode.UNKNOWN
    assert "GPU-unknown" in refusal.value.details()
    assert len((await stub.Allocate(allocating(["a"]))).container_responses) == 1


async def test_a_fault_of_ours_in_allocate_fails_one_pod_with_a_text(plugin, dial, snapshot, monkeypatch):
    """A bug must not end the process, nor leave the user without a word."""

    def broken(_table, _ids):
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr("device_plugin.kubelet.servicer.allocate", broken)
    server = await plugin.serve(snapshot(["a"]))
    with pytest.raises(grpc.aio.AioRpcError) as failure:
        await dial(server).Allocate(allocating(["a"]))
    assert (failure.value.code(), failure.value.details()) == (
        grpc.StatusCode.INTERNAL,
        "the device plugin failed on a: division by zero",
    )
    assert len(plugin.log.of("allocation.failed")) == 1


@pytest.mark.parametrize(
    ("available", "must_include", "size", "expected"),
    [
        (["a", "b", "c"], ["c"], 2, ["c", "a"]),
        (["a", "a", "b"], [], 2, ["a", "b"]),
        (["a"], [], 3, ["a"]),
        (["a"], [], 0, []),
        (["a"], [], -1, []),
    ],
)
async def test_trouble_in_the_preference_ends_in_a_plain_valid_choice(
    plugin, dial, snapshot, monkeypatch, available, must_include, size, expected
):
    """An error of GetPreferredAllocation would refuse every pod on the node (NVIDIA/k8s-device-plugin#2038)."""

    def broken(*_args):
        raise RuntimeError("GPU_IS_LOST")

    monkeypatch.setattr("device_plugin.kubelet.servicer.prefer", broken)
    server = await plugin.serve(snapshot(["a", "b", "c"]))
    answer = await dial(server).GetPreferredAllocation(preferring(available, must_include, size))
    assert list(answer.container_responses[0].deviceIDs) == expected
    assert len(plugin.log.of("preference.failed")) == 1


async def test_answered_ids_are_reported_for_preferences_and_allocations(plugin, dial, snapshot):
    """Kubelet looks up every ID it was answered: the IDs of both calls must stay listed for a while."""
    server = await plugin.serve(snapshot(["a", "b"]))
    stub = dial(server)
    await stub.GetPreferredAllocation(preferring(["b"], size=1))
    await stub.Allocate(allocating(["b", "a"]))
    with pytest.raises(grpc.aio.AioRpcError):
        await stub.Allocate(allocating(["x"]))
    assert [tuple(ids) for ids in plugin.answered] == [("b",), ("b", "a")]


async def test_a_start_is_refused_only_where_asked_for_and_only_with_a_cause(plugin, dial, snapshot):
    """`health.refuseUnhealthyRestart`: the container of an unhealthy device is not started again, and the text says why."""
    server = await plugin.serve(snapshot(["a", "b"], unhealthy=["a"]))
    stub = dial(server)
    await stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=["a", "b"]))
    server.update(snapshot(["a", "b"], unhealthy=["a"], refuse=True))
    await stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=["b", "gone"]))
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=["b", "a"]))
    assert refusal.value.details() == (
        "the container is not started on unhealthy devices of nvidia.com/gpu (health.refuseUnhealthyRestart is on): "
        "a: xid: XID 79: the GPU has fallen off the bus"
    )


async def test_a_start_refused_for_many_devices_names_the_first(plugin, dial, snapshot):
    """Clients of gRPC's C core take no text of more than 16 KiB, and nobody reads a hundred times the same."""
    ids = [f"GPU-00000000-0000-0000-0000-{number:012}" for number in range(200)]
    server = await plugin.serve(snapshot(ids, unhealthy=ids, refuse=True))
    with pytest.raises(grpc.aio.AioRpcError) as refusal:
        await dial(server).PreStartContainer(pb.PreStartContainerRequest(devices_ids=ids))
    assert refusal.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert refusal.value.details().endswith(f"{ids[7]}: xid: XID 79: the GPU has fallen off the bus and 192 more")


async def test_what_is_refused_or_fails_floods_neither_the_log_nor_the_answer(plugin, dial, snapshot, monkeypatch):
    """A request may name thousands of devices, or IDs of any length."""
    server = await plugin.serve(snapshot(["a"]))
    stub = dial(server)

    async def refused(ids):
        with pytest.raises(grpc.aio.AioRpcError) as refusal:
            await stub.Allocate(allocating(ids))
        return refusal.value

    many = [f"GPU-{number}" for number in range(50_000)]
    await refused(many)
    await refused(["x" * 100_000])
    monkeypatch.setattr(servicer, "allocate", lambda _table, _ids: {}["bug"])
    failure = await refused(many)
    assert (failure.code(), failure.details()) == (
        grpc.StatusCode.INTERNAL,
        f"the device plugin failed on {', '.join(many[:8])} and 49992 more: 'bug'",
    )
    entries = [*plugin.log.of("allocation.refused"), *plugin.log.of("allocation.failed")]
    assert len(entries) == 3
    assert max(len(str(entry)) for entry in entries) < 2_000


async def test_a_large_preference_request_is_taken(plugin, dial, snapshot):
    """Kubelet names every free device twice: the request may pass gRPC's default limit of 4 MiB though the list does not."""
    ids = replicas(8_000, 300)
    server = await plugin.serve(snapshot(ids, policy=PreferencePolicy.PACKED))
    request = preferring(ids, ids[:7_000], 7_001)
    assert request.ByteSize() > 4 * 1024 * 1024
    answer = await dial(server).GetPreferredAllocation(request)
    assert set(ids[:7_000]) <= set(answer.container_responses[0].deviceIDs)


async def test_many_streams_leave_nothing_behind(plugin, dial, snapshot):
    """A handler that swallows its cancellation leaks (grpc/grpc#43360): after 50 cancelled streams none is left."""
    server = await plugin.serve(snapshot(["a"]))
    stub = dial(server)
    for _ in range(50):
        call = stub.ListAndWatch(pb.Empty())
        await call.read()
        call.cancel()
    async with asyncio.timeout(5):
        while server.open_streams:
            await server.changes.next()
    gc.collect()
    assert not [task for task in asyncio.all_tasks() if "ListAndWatch" in repr(task.get_coro())]


async def test_the_socket_is_for_root_alone(plugin, directory, snapshot):
    """The mode is set by us, whatever the umask is."""
    server = await plugin.serve(snapshot(["a"]))
    assert stat.S_IMODE((directory / server.endpoint).stat().st_mode) == 0o600
