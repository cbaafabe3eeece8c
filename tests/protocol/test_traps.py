"""The stand-in kubelet is no kinder than kubelet: each trap springs on a plugin that walks into it, and ours walks around it."""

from __future__ import annotations

import asyncio

import grpc
import pytest

from device_plugin.errors import RegistrationFailed
from device_plugin.kubelet import servicer
from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2_grpc import (
    DevicePluginServicer,
    add_DevicePluginServicer_to_server,
)
from device_plugin.kubelet.registration import call_register
from device_plugin.kubelet.sockets import target
from device_plugin.simulation.kubelet import StandInKubelet
from device_plugin.simulation.kubelet_devices import Container, KubeletCrashed, Pod, PodRejected, StartRefused
from device_plugin.simulation.kubelet_plugin import CallFailed, PluginClient
from device_plugin.simulation.kubelet_record import Happening

GPU = "nvidia.com/gpu"
OPTIONS = pb.DevicePluginOptions(get_preferred_allocation_available=True)


class Throwaway(DevicePluginServicer):
    """A plugin made to walk into traps: its lists and answers are put in by hand."""

    def __init__(self):
        self.lists = asyncio.Queue()
        self.preferred = lambda request: []
        self.allocated = lambda request: pb.AllocateResponse(container_responses=[pb.ContainerAllocateResponse()])
        self.before_allocate = None

    async def GetDevicePluginOptions(self, request, context):
        return OPTIONS

    async def ListAndWatch(self, request, context):
        while (ids := await self.lists.get()) is not None:
            await context.write(pb.ListAndWatchResponse(devices=[pb.Device(ID=name, health=health) for name, health in ids]))

    async def GetPreferredAllocation(self, request, context):
        self.asked = request.container_requests[0]
        answer = pb.PreferredAllocationResponse()
        answer.container_responses.add(deviceIDs=self.preferred(self.asked))
        return answer

    async def Allocate(self, request, context):
        if self.before_allocate:
            await self.before_allocate()
        return self.allocated(request)

    async def PreStartContainer(self, request, context):
        return pb.PreStartContainerResponse()


@pytest.fixture
async def throwaway(directory):
    """Makes throw-away plugins on sockets of their own: `await throwaway("name.sock")`."""
    servers = []

    async def serve(name="throwaway.sock"):
        plugin, server = Throwaway(), grpc.aio.server()
        add_DevicePluginServicer_to_server(plugin, server)
        server.add_insecure_port(target(directory / name))
        await server.start()
        servers.append(server)
        return plugin

    yield serve
    for server in servers:
        await server.stop(None)


def healthy(*ids):
    return [(name, "Healthy") for name in ids]


async def test_ending_the_old_stream_after_registering_loses_the_new_registration(kubelet, throwaway):
    """Register first, end the old stream then: kubelet closes the new connection, and nothing repairs it."""
    old, new = await throwaway("old.sock"), await throwaway("new.sock")
    for plugin, name in ((old, "old.sock"), (new, "new.sock")):
        plugin.lists.put_nowait(healthy("a"))
        await call_register(kubelet.socket, name, GPU, OPTIONS)
        await kubelet.wait_allocatable(GPU, 1)
    assert kubelet.is_registered(GPU)
    old.lists.put_nowait(None)
    await kubelet.wait_allocatable(GPU, 0)
    assert not kubelet.is_registered(GPU)
    assert kubelet.capacity(GPU) == 1


async def test_a_list_on_a_replaced_stream_is_still_taken(kubelet, throwaway):
    """Two plugins with one name overwrite each other's lists; nobody is told (kubernetes/kubernetes#52190)."""
    old, new = await throwaway("old.sock"), await throwaway("new.sock")
    for plugin, name, ids in ((old, "old.sock", "a"), (new, "new.sock", "b")):
        plugin.lists.put_nowait(healthy(ids))
        await call_register(kubelet.socket, name, GPU, OPTIONS)
        await kubelet.record.wait_for(lambda ids=ids: kubelet.healthy(GPU) == {ids})
    old.lists.put_nowait(healthy("a", "x"))
    await kubelet.record.wait_for(lambda: kubelet.healthy(GPU) == {"a", "x"})


async def test_dropping_an_id_during_its_allocation_kills_kubelet(kubelet, throwaway):
    """After Allocate kubelet looks every ID up in its current list without checking that it is there."""
    plugin = await throwaway()
    plugin.lists.put_nowait(healthy("a"))
    await call_register(kubelet.socket, "throwaway.sock", GPU, OPTIONS)
    await kubelet.wait_allocatable(GPU, 1)

    async def drop():
        plugin.lists.put_nowait([])
        await kubelet.wait_allocatable(GPU, 0)

    plugin.before_allocate = drop
    with pytest.raises(KubeletCrashed, match=r"nil pointer dereference: nvidia\.com/gpu dropped a from its list"):
        await kubelet.admit(Pod.of("pod", gpu=1))
    assert kubelet.record.of(Happening.CRASHED)
    kubelet.crash = None


async def test_sending_it_unhealthy_instead_is_safe(kubelet, throwaway):
    """An ID that is listed as Unhealthy during its Allocate does no harm: the pod runs."""
    plugin = await throwaway()
    plugin.lists.put_nowait(healthy("a"))
    await call_register(kubelet.socket, "throwaway.sock", GPU, OPTIONS)
    await kubelet.wait_allocatable(GPU, 1)

    async def weaken():
        plugin.lists.put_nowait([("a", "Unhealthy")])
        await kubelet.wait_allocatable(GPU, 0)

    plugin.before_allocate = weaken
    assert (await kubelet.admit(Pod.of("pod", gpu=1))).devices("main", GPU) == ("a",)


async def test_ending_the_stream_during_an_allocation_fails_the_pod(kubelet, throwaway):
    """No crash, but the pod is gone for good."""
    plugin = await throwaway()
    plugin.lists.put_nowait(healthy("a"))
    await call_register(kubelet.socket, "throwaway.sock", GPU, OPTIONS)
    await kubelet.wait_allocatable(GPU, 1)

    async def end():
        plugin.lists.put_nowait(None)
        await asyncio.sleep(5)

    plugin.before_allocate = end
    with pytest.raises(PodRejected) as rejection:
        await kubelet.admit(Pod.of("pod", gpu=1))
    assert str(rejection.value) == (
        "Pod was rejected: Allocate failed due to rpc error: code = Canceled desc = grpc: the client connection is closing, "
        "which is unexpected"
    )


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (["a", "a", "b"], {"a", "b"}),  # duplicates count once
        (["a", "zz"], {"a"}),  # IDs not offered are ignored, and the rest filled up
        (["a", "b", "c"], None),  # surplus is cut in no given order
        ([], None),  # nothing: filled up at random
    ],
)
async def test_a_preference_is_advice(kubelet, throwaway, answer, expected):
    """Whatever the plugin prefers, the pod runs with as many devices as it asked for."""
    plugin = await throwaway()
    plugin.lists.put_nowait(healthy("a", "b", "c", "d"))
    await call_register(kubelet.socket, "throwaway.sock", GPU, OPTIONS)
    await kubelet.wait_allocatable(GPU, 4)
    plugin.preferred = lambda _request: answer
    devices = (await kubelet.admit(Pod.of("pod", gpu=2))).devices("main", GPU)
    assert len(set(devices)) == 2
    assert expected is None or expected <= set(devices)
    assert (sorted(plugin.asked.available_deviceIDs), plugin.asked.allocation_size) == (["a", "b", "c", "d"], 2)


async def test_an_answer_without_containers_fails_the_pod_and_loses_its_devices(kubelet, throwaway):
    """The IDs are missing from the next request's offer."""
    plugin = await throwaway()
    plugin.lists.put_nowait(healthy("a"))
    await call_register(kubelet.socket, "throwaway.sock", GPU, OPTIONS)
    await kubelet.wait_allocatable(GPU, 1)
    plugin.allocated = lambda _request: pb.AllocateResponse()
    with pytest.raises(PodRejected, match="no containers return in allocation response"):
        await kubelet.admit(Pod.of("pod", gpu=1))
    with pytest.raises(PodRejected, match="Requested: 1, Available: 0"):
        await kubelet.admit(Pod.of("next", gpu=1))


async def test_health_is_healthy_to_the_letter_and_doubles_count_twice(kubelet, throwaway):
    """Nothing is validated: other spellings are unhealthy, an ID sent twice counts twice in the capacity."""
    plugin = await throwaway()
    plugin.lists.put_nowait([("a", "Healthy"), ("b", "healthy"), ("c", ""), ("a", "Unhealthy")])
    await call_register(kubelet.socket, "throwaway.sock", GPU, OPTIONS)
    await kubelet.record.wait_for(lambda: kubelet.capacity(GPU) == 4)
    assert kubelet.allocatable(GPU) == 0


async def test_a_list_over_the_limit_ends_the_stream(kubelet, throwaway):
    """One byte over 4 MiB and every device is unhealthy; the capacity stays (kubernetes/kubernetes#109304)."""
    plugin = await throwaway()
    plugin.lists.put_nowait(healthy("a"))
    await call_register(kubelet.socket, "throwaway.sock", GPU, OPTIONS)
    await kubelet.wait_allocatable(GPU, 1)
    plugin.lists.put_nowait(healthy("x" * 4 * 1024 * 1024))
    await kubelet.wait_allocatable(GPU, 0)
    assert (kubelet.capacity(GPU), kubelet.is_registered(GPU)) == (1, False)


async def test_init_and_app_container_ask_for_the_same_device(kubelet, plugin, snapshot):
    """All containers are allocated before the first starts; the app container takes over the init container's devices."""
    await plugin.register(snapshot(["a", "b"]))
    pod = Pod("job", (Container("init", {GPU: 1}, is_init=True), Container("main", {GPU: 2})))
    state = await kubelet.admit(pod)
    assert set(state.devices("init", GPU)) < set(state.devices("main", GPU)) == {"a", "b"}
    assert [len(entry.detail.split(",")) for entry in kubelet.record.of(Happening.ALLOCATED)] == [1, 2]


async def test_a_hanging_allocation_stops_every_other_admission(kubelet, throwaway):
    """Kubelet's main loop waits without a deadline; lists and pod-resources go on."""
    plugin = await throwaway()
    plugin.lists.put_nowait(healthy("a"))
    await call_register(kubelet.socket, "throwaway.sock", GPU, OPTIONS)
    await kubelet.wait_allocatable(GPU, 1)
    release = asyncio.Event()
    plugin.before_allocate = release.wait
    hanging = asyncio.create_task(kubelet.admit(Pod.of("hanging", gpu=1)))
    other = asyncio.create_task(kubelet.admit(Pod("plain", (Container("main", {}),))))
    plugin.lists.put_nowait(healthy("a", "b"))
    await kubelet.wait_allocatable(GPU, 2)
    assert not other.done()
    release.set()
    await asyncio.gather(hanging, other)


async def test_a_container_restart_asks_nobody(kubelet, plugin, snapshot):
    """Inside a running kubelet a container comes up again with its old devices and answer, unhealthy or not."""
    server = await plugin.register(snapshot(["a"]))
    await kubelet.admit(Pod.of("pod", gpu=1))
    server.update(snapshot(["a"], unhealthy=["a"]))
    await kubelet.wait_allocatable(GPU, 0)
    await kubelet.start_container("pod", "main")
    assert len(kubelet.record.of(Happening.ALLOCATED)) == 1


async def test_refuse_unhealthy_restart_holds_a_container_until_its_device_is_well(kubelet, plugin, snapshot):
    """With `refuseUnhealthyRestart` the container is refused while its GPU has a cause, and starts once it has none."""
    server = await plugin.register(snapshot(["a"], refuse=True))
    await kubelet.admit(Pod.of("pod", gpu=1))
    server.update(snapshot(["a"], unhealthy=["a"], refuse=True))
    with pytest.raises(StartRefused, match="XID 79"):
        await kubelet.start_container("pod", "main")
    server.update(snapshot(["a"], refuse=True))
    await kubelet.start_container("pod", "main")
    plugin.tasks[GPU].cancel()
    await server.end_streams()
    await kubelet.wait_allocatable(GPU, 0)
    with pytest.raises(StartRefused, match="endpoint has been stopped"):
        await kubelet.start_container("pod", "main")


async def test_our_refusal_reaches_the_pods_owner(kubelet, plugin, snapshot, monkeypatch):
    """The text of a refused Allocate is the message of the pod's failure."""
    await plugin.register(snapshot(["a"]))
    original = servicer.allocate
    monkeypatch.setattr(servicer, "allocate", lambda table, _ids: original(table, ("GPU-x",)))
    with pytest.raises(PodRejected) as rejection:
        await kubelet.admit(Pod.of("pod", gpu=1))
    assert str(rejection.value).startswith("Pod was rejected: Allocate failed due to rpc error: code = Unknown desc = ")
    assert "GPU-x" in str(rejection.value)


async def test_one_lost_gpu_leaves_the_others_to_pods(kubelet, plugin, snapshot):
    """One GPU fell off the bus and every pod was refused: the preference had asked the driver (NVIDIA/k8s-device-plugin#2038)."""
    ids = [f"GPU-{number}" for number in range(8)]
    await plugin.register(snapshot(ids, unhealthy=["GPU-3"]))
    state = await kubelet.admit(Pod.of("pod", gpu=7))
    assert set(state.devices("main", GPU)) == set(ids) - {"GPU-3"}


async def test_random_pods_never_share_a_device_nor_miss_one(kubelet, plugin, snapshot):
    """Forty pods come and go in random sizes and orders: each gets what it asked for, and what we answered for it."""
    ids = [f"GPU-{number}" for number in range(8)]
    await plugin.register(snapshot(ids))
    held = {}
    for number in range(40):
        size = number % 4 + 1
        while held and sum(map(len, held.values())) + size > 8:
            kubelet.delete(name := next(iter(held)))
            del held[name]
        state = await kubelet.admit(Pod.of(f"pod-{number}", gpu=size))
        held[f"pod-{number}"] = state.devices("main", GPU)
        assert len(set(held[f"pod-{number}"])) == size
        assert set(kubelet.injected(f"pod-{number}").envs["NVIDIA_VISIBLE_DEVICES"].split(",")) == set(held[f"pod-{number}"])
        flat = [device for devices in held.values() for device in devices]
        assert len(flat) == len(set(flat))


async def test_a_resource_is_forgotten_five_minutes_after_its_last_registration(kubelet, plugin, snapshot):
    """Capacity stays when the stream ends, and reads 0 after five minutes; the entry does not go away."""
    server = await plugin.register(snapshot(["a"]))
    plugin.tasks[GPU].cancel()
    await server.end_streams()
    await kubelet.wait_allocatable(GPU, 0)
    now = asyncio.get_running_loop().time()
    assert (kubelet.manager.capacity(GPU, now), kubelet.manager.capacity(GPU, now + 301)) == (1, 0)


async def test_a_call_on_a_dropped_connection_fails_in_kubelets_words(kubelet, throwaway, directory):
    """A client that is dropped between preferring and allocating."""
    await throwaway()
    client = PluginClient(GPU, directory / "throwaway.sock")
    await client.dial(5)
    await client.close()
    for call in (client.prefer(["a"], [], 1), client.allocate(["a"]), client.pre_start(["a"])):
        with pytest.raises(CallFailed, match="code = Canceled desc = grpc: the client connection is closing"):
            await call


async def test_a_stopped_kubelet_leaves_its_socket_and_refuses(kubelet):
    """While kubelet is down kubelet.sock stays, and a dial is refused."""
    await kubelet.stop()
    assert kubelet.socket.is_socket()
    with pytest.raises(RegistrationFailed, match="could not reach kubelet"):
        await call_register(kubelet.socket, "x.sock", GPU, OPTIONS)


async def test_the_same_seed_makes_the_same_choices(plugin, snapshot, directory):
    """What kubelet leaves to chance is drawn from a seed, so that a test that fails can be run again."""
    await plugin.serve(snapshot([f"{number}" for number in range(8)]))
    chosen = []
    for seed in (1, 1, 2):
        async with StandInKubelet(directory / f"kubelet-{len(chosen)}", seed=seed) as stand_in:
            server = plugin.servers[GPU]
            (stand_in.directory / server.endpoint).hardlink_to(directory / server.endpoint)
            await call_register(stand_in.socket, server.endpoint, GPU, OPTIONS)
            await stand_in.wait_allocatable(GPU, 8)
            pods = [await stand_in.admit(Pod.of(f"pod-{number}", gpu=2)) for number in range(4)]
            chosen.append([pod.devices("main", GPU) for pod in pods])
    assert chosen[0] == chosen[1] != chosen[2]
