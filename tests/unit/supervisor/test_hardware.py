"""Hardware over threads: deadlines, what is given up, and who is blamed."""

import asyncio
import gc
import time

import pytest

from device_plugin.errors import CallHangs, DriverError
from device_plugin.hardware.model import Platform
from device_plugin.hardware.sysfs import Host
from device_plugin.supervisor import hardware as hardware_module
from device_plugin.supervisor.hardware import DriverThreads
from device_plugin.supervisor.threads import EventThread


@pytest.fixture
async def hardware(node, tmp_path):
    made = DriverThreads(
        node.make,
        Host(tmp_path),
        lambda _: Platform.NVML,
        call_timeout_seconds=lambda: 0.1,
        on_events=lambda batch: node.__dict__.setdefault("batches", []).append(batch),
        on_watch_changed=lambda unwatched: node.__dict__.setdefault("changes", []).append(unwatched),
    )
    yield made
    made.close()


def names(inventory):
    return [gpu.uuid for gpu in inventory.gpus]


async def test_a_discovery_names_every_gpu(hardware, node):
    inventory = await hardware.discover(fresh=True)
    assert names(inventory) == node.uuids
    assert hardware.hanging() == {}


async def test_a_fresh_discovery_closes_every_driver_first(hardware, node, eventually):
    """NVML keeps its list of devices as long as anybody has it open."""
    await hardware.discover(fresh=True)
    hardware.watch(node.uuids)
    await eventually(lambda: node.open_drivers == 2)
    node.uuids.append("GPU-3")
    assert len(names(await hardware.discover(fresh=False))) == 3
    assert len(names(await hardware.discover(fresh=True))) == 4
    await eventually(lambda: node.open_drivers == 2)


@pytest.mark.parametrize("call", [("read", "1"), ("links", "GPU-1")])
async def test_a_gpu_that_hangs_in_discovery_is_passed_over(hardware, node, call):
    await hardware.discover(fresh=True)
    node.hanging.add(call)
    began = time.monotonic()
    inventory = await hardware.discover(fresh=False)
    assert time.monotonic() - began < 1
    assert names(inventory) == ["GPU-0", "GPU-2"]
    assert [gpu.index for gpu in inventory.unreadable] == [1]
    assert list(hardware.hanging()) == ["GPU-1"]
    began = time.monotonic()
    assert names(await hardware.discover(fresh=True)) == ["GPU-0", "GPU-2"]
    assert time.monotonic() - began < 0.6, "what hangs is not asked again"
    assert len(hardware._given_up) == 1


async def test_a_gpu_that_hangs_before_it_was_ever_read_has_no_name(hardware, node):
    node.hanging.add(("read", "0"))
    assert names(await hardware.discover(fresh=True)) == ["GPU-1", "GPU-2"]
    assert list(hardware.hanging()) == ["0"]


async def test_a_probe_that_hangs_costs_one_thread_however_often_it_is_asked(hardware, node):
    await hardware.discover(fresh=True)
    node.hanging.add(("probe", "GPU-1"))
    for _ in range(10):
        with pytest.raises(CallHangs):
            await hardware.probe("GPU-1")
        assert (await hardware.probe("GPU-2")).gpu_uuid == "GPU-2"
    assert len(hardware._given_up) == 1


async def test_once_it_returns_the_gpu_is_asked_again(hardware, node, eventually):
    await hardware.discover(fresh=True)
    node.hanging.add(("probe", "GPU-1"))
    with pytest.raises(CallHangs):
        await hardware.probe("GPU-1")
    node.hanging.clear()
    node.released.set()
    await eventually(lambda: not hardware.hanging())
    assert (await hardware.probe("GPU-1")).gpu_uuid == "GPU-1"
    await eventually(lambda: node.open_drivers == 1)  # the one given up has let go of NVML


async def test_a_call_about_the_driver_as_a_whole_is_nobodys_fault(hardware, node):
    node.hanging.add(("open", None))
    with pytest.raises(CallHangs):
        await hardware.discover(fresh=True)
    assert list(hardware.hanging()) == ["*"]


async def test_the_number_of_threads_given_up_is_bounded(hardware, node, monkeypatch):
    monkeypatch.setattr(hardware_module, "MAX_GIVEN_UP", 2)
    node.hanging.add(("open", None))
    for _ in range(5):
        with pytest.raises(CallHangs):
            await hardware.discover(fresh=True)
    assert len(hardware._given_up) == 2
    with pytest.raises(CallHangs, match="no further one"):
        await hardware.probe("GPU-0")


async def test_a_watch_that_hangs_on_one_gpu_goes_on_for_the_others(hardware, node, eventually):
    await hardware.discover(fresh=True)
    node.hanging.add(("watch", "GPU-1"))
    hardware.watch(node.uuids)
    await eventually(hardware.hanging)
    assert list(hardware.hanging()) == ["GPU-1"]
    await eventually(lambda: ("GPU-0", "GPU-2") in node.watches)
    node.hanging.clear()
    node.released.set()
    await eventually(lambda: not hardware.hanging() and tuple(node.uuids) in node.watches[1:])


async def test_an_error_of_the_driver_is_no_hang(hardware, node):
    node.failing["open"] = "no driver"
    with pytest.raises(DriverError, match="no driver") as caught:
        await hardware.discover(fresh=True)
    assert not isinstance(caught.value, CallHangs)
    assert hardware.hanging() == {}


@pytest.mark.parametrize("gives_up", [True, False])
async def test_an_error_that_comes_when_nobody_waits_any_more_is_nobodys(hardware, node, eventually, caplog, gives_up):
    """Neither of a call that was given up nor of one that the end of the process interrupts: asyncio would print a traceback."""
    node.hanging.add(("open", None))
    node.failing["open"] = "no driver"
    looking = asyncio.create_task(hardware.discover(fresh=True))
    await asyncio.sleep(0.4 if gives_up else 0.02)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    node.hanging.clear()
    node.released.set()
    await eventually(lambda: not hardware.hanging())
    assert await hardware._thread.submit(lambda _: 7) == 7
    del looking
    gc.collect()
    assert caplog.records == []


async def test_slow_is_not_hanging(hardware, node, monkeypatch):
    """Many calls of one job may take longer than one call may."""
    read = type(node.make()).read_gpu

    def slow(self, index):
        time.sleep(0.06)
        return read(self, index)

    monkeypatch.setattr(type(node.make()), "read_gpu", slow)
    assert names(await hardware.discover(fresh=True)) == node.uuids


async def test_a_wait_for_events_may_take_as_long_as_it_is_meant_to(hardware, node, eventually, monkeypatch):
    """A deadline for driver calls that is shorter than a wait for events is no hang."""
    monkeypatch.setattr(EventThread, "SLICE_SECONDS", 1.0)
    node.hanging.add(("wait", None))
    await hardware.discover(fresh=True)
    hardware.watch(node.uuids)
    await eventually(lambda: node.watches)
    await asyncio.sleep(0.3)
    assert hardware.hanging() == {}
    monkeypatch.setattr(EventThread, "SLICE_SECONDS", 0.05)
    assert list(hardware.hanging()) == ["*"]
