"""Faults that come together, or at the worst moment: the plugin lives through them, and shows kubelet the truth afterwards."""

import asyncio
import errno
import json
import shutil

import grpc
import pytest

from device_plugin.simulation.kubelet_podresources import PodResourcesServicer
from device_plugin.supervisor.state_file import FILE_NAME

GPU = "nvidia.com/gpu"
SHARED = "nvidia.com/gpu.shared"
TWO_SHARED = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4, rename: gpu.shared, devices: 2}]}}\n"


@pytest.mark.parametrize("trouble", ["UNKNOWN", "GPU_IS_LOST"])
async def test_a_watch_that_never_works_does_not_heal_the_gpus_at_each_try(rig, fast, monkeypatch, trouble):
    """An event source could be made but refused every wait: at each try all GPUs were Healthy for a moment, and pods were placed on
    GPUs that nobody watched (NVIDIA/k8s-device-plugin#1640)."""
    monkeypatch.setattr("device_plugin.supervisor.threads.EventThread.LAST_RETRY_SECONDS", 0.05)
    node = rig("l4x4", config=fast())
    async with node.running():
        node.node.answer("nvmlEventSetWait", trouble)
        await node.kubelet.wait_allocatable(GPU, 0)
        await asyncio.sleep(0.2)  # what others say about it
        lists, lines = len(node.lists()), len(node.log)
        await asyncio.sleep(0.6)  # some ten tries
        assert len(node.lists()) == lists
        assert len(node.log) == lines
        node.node.clear()
        await node.kubelet.wait_allocatable(GPU, 4)
        node.node.xid(2, 79)
        await node.kubelet.wait_allocatable(GPU, 3)


async def test_an_edit_made_while_the_directory_was_gone_is_served_as_soon_as_it_is_back(rig, fast):
    """The socket of a new resource cannot be made then; the next look at the hardware is no moment to wait for."""
    slow = fast().replace("rediscoveryInterval: 150ms", "rediscoveryInterval: 1h")
    node = rig("l4x4", config=slow)
    async with node.running():
        await node.kubelet.stop()
        shutil.rmtree(node.sockets)
        node.write(slow + TWO_SHARED)
        await node.wait_log("resource.not_served")
        await asyncio.sleep(1.0)
        assert len(node.of("resource.not_served")) == 1
        node.sockets.mkdir()
        await node.kubelet.start()
        await node.kubelet.wait_allocatable(GPU, 2)
        await node.kubelet.wait_allocatable(SHARED, 8)
        await node.wait_log("plugin.became_ready", 2)


async def test_a_second_process_waits_at_a_directory_made_anew(rig, fast):
    """The lock went with the directory, and the second one offered the same GPUs under other names."""
    node = rig("l4x4", config=fast())
    async with node.running():
        await node.kubelet.stop()
        shutil.rmtree(node.sockets)
        await node.kubelet.start()
        await node.kubelet.wait_allocatable(GPU, 4)
        await node.wait_log("directory.acquired", 2)
        node.write(fast(TWO_SHARED))
        async with node.plugin():
            await node.wait_log("directory.awaited")
            await node.kubelet.wait_allocatable(SHARED, 8)
            assert len(node.of("directory.acquired")) == 2


async def test_causes_are_kept_again_once_the_disk_has_room_and_in_a_directory_made_anew(rig, fast, monkeypatch):
    """A restart of the plugin must not heal a GPU because the disk was full when it broke (NVIDIA/k8s-device-plugin#111)."""
    node = rig("l4x4", config=fast().replace("recoverAfter: 500ms", "recoverAfter: 1h"))
    state = node.sockets / FILE_NAME

    def causes():
        return json.loads(state.read_bytes())["health"]["causes"] if state.exists() else []

    async with node.running():
        with monkeypatch.context() as full:
            full.setattr("os.fsync", lambda _: (_ for _ in ()).throw(OSError(errno.ENOSPC, "No space left on device")))
            node.node.xid(1, 79)
            await node.kubelet.wait_allocatable(GPU, 3)
            await node.wait_log("state.not_saved")
            await asyncio.sleep(0.5)
            assert [entry["reason"] for entry in node.of("state.not_saved")] == ["No space left on device"], "said once"
            assert not causes()
        await node.wait(causes)
        state.unlink()
        await node.wait(causes)


async def test_a_directory_that_has_become_read_only_ends_nothing(rig, fast, monkeypatch):
    node = rig("l4x4", config=fast(TWO_SHARED))
    async with node.running() as plugin:
        unlink = type(node.sockets).unlink

        def read_only(path, **options):
            if path.parent == node.sockets and path.name.startswith("gpu-device-plugin"):
                raise OSError(errno.EROFS, "Read-only file system", str(path))
            unlink(path, **options)

        monkeypatch.setattr(type(node.sockets), "unlink", read_only)
        node.write(fast())
        await node.kubelet.wait_allocatable(GPU, 4)
        await node.wait_log("resource.closed")
        assert not node.of("task.failed")
        plugin.supervisor.stop()
        await plugin.wait_end()
        assert node.of("plugin.stopped")


async def test_a_pod_resources_socket_that_never_answers_frees_nothing(rig, fast, monkeypatch):
    """One GPU given to two pods (NVIDIA/k8s-device-plugin#135): that kubelet does not tell who holds it does not mean that nobody
    does, however long it lasts."""
    tell, mute = PodResourcesServicer.List, True

    async def tell_or_fail(self, request, context):
        if mute:
            await context.abort(grpc.StatusCode.INTERNAL, "no")
        return await tell(self, request, context)

    monkeypatch.setattr(PodResourcesServicer, "List", tell_or_fail)
    node = rig("l4x4", config=fast())
    async with node.running():
        (held,) = (await node.admit("whole", gpu=1)).devices("main", GPU)
        node.write(fast(TWO_SHARED.replace(", devices: 2", "")))
        await node.wait(lambda: len(node.kubelet.listed(SHARED)) == 16)
        await asyncio.sleep(1.0)  # the grace, and what was answered, are long over
        assert not node.healthy(SHARED)
        assert "counts as held" in node.of("pod_resources.failed")[0]["reason"]
        mute = False
        await node.kubelet.wait_allocatable(SHARED, 12)
        assert held not in {name.partition("::")[0] for name in node.healthy(SHARED)}
        node.kubelet.delete("whole")
        await node.kubelet.wait_allocatable(SHARED, 16)


async def test_what_hung_is_read_again_as_soon_as_it_returns_and_said_once(rig, fast):
    """The next look at the hardware may be an hour away; and a line for each try fills the log while the driver is away."""
    slow = fast().replace("rediscoveryInterval: 150ms", "rediscoveryInterval: 1h")
    node = rig("l4x4", config=slow)
    async with node.running() as plugin:
        node.node.hang("nvmlDeviceGetMemoryInfo")
        plugin.supervisor.reload()
        await node.kubelet.wait_allocatable(GPU, 0)
        await asyncio.sleep(1.5)  # some ten probes of each GPU
        said = [(entry["event"], entry["gpu"], entry["reason"]) for entry in node.of("probe.hung")]
        assert len(said) == len(set(said))
        assert len(node.of("discovery.hung")) <= 1
        node.node.release()
        await node.kubelet.wait_allocatable(GPU, 4)


async def test_a_driver_that_is_away_is_said_once_not_at_each_probe(rig, fast):
    node = rig("l4x4", config=fast())
    async with node.running():
        node.node.answer("*", "UNKNOWN")
        await node.kubelet.wait_allocatable(GPU, 0)
        await asyncio.sleep(0.3)
        lines = len(node.log)
        await asyncio.sleep(1.0)
        assert len(node.log) == lines
        node.node.clear()
        await node.kubelet.wait_allocatable(GPU, 4)


async def test_an_end_that_comes_in_the_moment_in_which_a_list_has_been_prepared_is_not_forgotten(rig, fast):
    """Before Python 3.12 `asyncio.wait_for` forgets a cancellation that comes as the awaited result does: the reconcile loop went
    on, and the process left its sockets behind after four seconds of waiting for it."""
    node = rig("l4x4", config=fast())
    async with node.running() as plugin:
        [reconciling] = [task for task in asyncio.all_tasks() if task.get_name() == "reconcile"]
        files = plugin.supervisor._files
        submit = files.submit

        def cancelled_as_it_is_done(work):
            future = submit(work)
            if "_prepare" in work.__qualname__:
                future.add_done_callback(lambda _: reconciling.cancel())
            return future

        files.submit = cancelled_as_it_is_done
        node.write(fast(TWO_SHARED))
        await node.wait(reconciling.done, 2.0)
        assert reconciling.cancelled()
        files.submit = submit
