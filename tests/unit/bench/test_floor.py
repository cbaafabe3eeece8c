"""The floor: it registers and answers what it was given, and does nothing else."""

from __future__ import annotations

import pytest

from bench.floor import dump_answers, load_answers
from bench.process import BenchFailed, Measured
from bench.scene import GPU, ConfigMap, Scene
from device_plugin.kubelet.api.deviceplugin.v1beta1 import deviceplugin_pb2 as pb


@pytest.fixture
def answers():
    """A list of one device, an answer for one device, and a preference."""
    listed, allocated, preferred = pb.ListAndWatchResponse(), pb.AllocateResponse(), pb.PreferredAllocationResponse()
    listed.devices.add(ID="GPU-a", health="Healthy")
    allocated.container_responses.add().envs["NVIDIA_VISIBLE_DEVICES"] = "GPU-a"
    preferred.container_responses.add(deviceIDs=["GPU-a"])
    return {
        "list": listed.SerializeToString(),
        "allocate/1": allocated.SerializeToString(),
        "prefer/1": preferred.SerializeToString(),
    }


def test_answers_survive_their_file(answers):
    """What the plugin answered is what the floor answers, byte for byte."""
    assert load_answers(dump_answers(answers)) == answers


@pytest.fixture
async def floor(answers):
    """A running floor, registered with a stand-in kubelet."""
    async with Scene("t4", "", 1, answers=answers) as scene:
        yield scene


async def test_the_floor_registers_and_lists_what_it_was_given(floor, answers):
    """A real process over real sockets: kubelet has the prepared list, and so has whoever opens another stream."""
    assert floor.kubelet.listed(GPU) == {"GPU-a": "Healthy"}
    assert 0 < floor.start_seconds <= floor.list_seconds
    assert await floor.read_list() == answers["list"]


async def test_the_floor_answers_as_it_was_told(floor, answers):
    """Allocate by the number of devices, GetPreferredAllocation by the size: the prepared messages, byte for byte."""
    allocate, prefer = pb.AllocateRequest(), pb.PreferredAllocationRequest()
    allocate.container_requests.add(devices_ids=["GPU-b"])
    prefer.container_requests.add(available_deviceIDs=["GPU-b", "GPU-c"], allocation_size=1)
    assert (await floor.stub.Allocate(allocate)).SerializeToString() == answers["allocate/1"]
    assert (await floor.stub.GetPreferredAllocation(prefer)).SerializeToString() == answers["prefer/1"]


async def test_usage_counts_what_the_process_holds(floor):
    """Shared pages count in part in PSS, so it is the smaller one; threads and descriptors are those of that process."""
    usage = floor.usage()
    assert usage.rss_mib > usage.pss_mib > 0
    assert min(usage.threads, usage.descriptors, usage.cpu_seconds) > 0


async def test_sigterm_ends_the_floor(floor):
    """A process that does not end would falsify the next measurement."""
    await floor.process.end()
    with pytest.raises(BenchFailed, match="the process has ended"):
        floor.usage()


@pytest.fixture
async def broken(tmp_path):
    """A process that fails at once."""
    return await Measured.start("bench.floor", [], tmp_path / "log")


async def test_a_process_that_ends_by_itself_is_reported_with_its_log(broken):
    """A bench that waits for what cannot come would say nothing."""
    with pytest.raises(BenchFailed, match="not enough values to unpack"):
        await broken.wait_logged("never")


def test_a_config_map_is_swapped_as_kubelet_swaps_it(tmp_path):
    """One rename of `..data`; the file's path stays, what it leads to is another, and the old revision goes."""
    config = ConfigMap(tmp_path / "config", "one")
    before = (tmp_path / "config" / "..data").readlink()
    config.swap("two")
    assert config.file.read_text() == "two"
    assert (tmp_path / "config" / "..data").readlink() != before
    assert sorted(path.name for path in (tmp_path / "config").iterdir()) == ["..data", "..revision-2", "config.yaml"]
