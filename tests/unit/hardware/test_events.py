"""Events: XIDs of some GPUs, and what happens to the watch itself."""

from __future__ import annotations

import threading
import time

import pynvml
import pytest

from device_plugin.errors import DriverError
from device_plugin.hardware.driver import Event


def test_an_xid_arrives_with_its_gpu_and_instances(opened):
    """An event names XID, GPU and the MIG instances it is about; none where NVML says none."""
    found = opened({}, {})
    source = found.driver.watch(found.uuids)
    found.node.xid(1, 79)
    found.node.xid(0, 94, gpu_instance=3, compute_instance=0)
    assert source.wait(1) == Event(79, found.uuids[1])
    assert source.wait(1) == Event(94, found.uuids[0], 3, 0)
    assert source.wait(0) is None


def test_a_gpu_that_the_driver_cannot_name(opened):
    """An event whose GPU cannot be read has no UUID; it is not dropped."""
    found = opened({})
    source = found.driver.watch(found.uuids)
    found.node.xid(None, 79)
    assert source.wait(1) == Event(79, None)


def test_other_events_count_as_none(opened):
    """ECC events carry no verdict: the counters are read by the probes."""
    found = opened({})
    source = found.driver.watch(found.uuids)
    found.node.ecc_event(0)
    found.node.xid(0, 48)
    assert source.wait(1) is None
    assert source.wait(1) == Event(48, found.uuids[0])


def test_only_watched_gpus_report(opened):
    """Events of GPUs that were not asked for do not come."""
    found = opened({}, {})
    source = found.driver.watch(found.uuids[:1])
    found.node.xid(1, 79)
    assert source.wait(0.01) is None


def test_waiting_ends_with_its_time(opened):
    """Without an event the wait is over in time, and blocks nobody else meanwhile."""
    found = opened({})
    source = found.driver.watch(found.uuids)
    began = time.monotonic()
    assert source.wait(0.05) is None
    assert 0.04 < time.monotonic() - began < 2


def test_an_event_ends_the_wait_at_once(opened):
    """A waiting thread hears of an event when it comes."""
    found = opened({})
    source = found.driver.watch(found.uuids)
    threading.Timer(0.05, found.node.xid, (0, 31)).start()
    began = time.monotonic()
    assert source.wait(10) == Event(31, found.uuids[0])
    assert time.monotonic() - began < 5


def test_gpus_without_events_are_no_fault(opened):
    """Old GPUs without events are known as such and stay out of the list of the unwatched."""
    found = opened(
        {"events": False}, {"unsupported": ["nvmlDeviceRegisterEvents"]}, {"unsupported": ["nvmlDeviceGetSupportedEventTypes"]}
    )
    assert found.driver.watch(found.uuids).unwatched == {}


def test_a_gpu_is_asked_only_for_events_that_it_has(opened, monkeypatch):
    """NVML refuses the whole request for one kind that a GPU lacks: it would then hear nothing of the others."""
    xid, clock, asked = pynvml.nvmlEventTypeXidCriticalError, pynvml.nvmlEventTypeClock, []

    def nvmlDeviceRegisterEvents(handle, types, events, register=pynvml.nvmlDeviceRegisterEvents):
        asked.append(types)
        return register(handle, types, events)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetSupportedEventTypes", lambda handle: xid | clock)
    monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", nvmlDeviceRegisterEvents)
    found = opened({})
    assert found.driver.watch(found.uuids).unwatched == {}
    assert asked == [xid]


@pytest.mark.parametrize("call", ["nvmlDeviceGetSupportedEventTypes", "nvmlDeviceRegisterEvents"])
def test_gpus_that_cannot_be_watched_are_named(opened, call):
    """A GPU whose registration fails is named with the driver's text; the others are watched."""
    found = opened({}, {})
    found.node.answer(call, "UNKNOWN", gpu=0)
    source = found.driver.watch(found.uuids)
    assert list(source.unwatched) == [found.uuids[0]]
    assert call in source.unwatched[found.uuids[0]]
    found.node.xid(1, 79)
    assert source.wait(1) == Event(79, found.uuids[1])


def test_a_lost_gpu_does_not_deafen_the_watch(opened):
    """NVML refuses to wait while a watched GPU is lost; the others are watched on, without a hot loop over the refusal."""
    found = opened({}, {}, {})
    source = found.driver.watch(found.uuids)
    found.node.xid(1, 79)
    found.node.lose(1)
    assert source.wait(1) == Event(79, found.uuids[1])
    assert source.wait(0) is None
    assert list(source.unwatched) == [found.uuids[1]]
    began = time.monotonic()
    assert source.wait(0.05) is None
    assert time.monotonic() - began > 0.04
    found.node.xid(2, 31)
    assert source.wait(1) == Event(31, found.uuids[2])


@pytest.mark.parametrize("code", ["UNKNOWN", "GPU_IS_LOST"])
def test_a_wait_that_fails_raises(opened, code):
    """A wait that fails for another reason, or says "lost" while all GPUs answer, is an error for whoever keeps the watch."""
    found = opened({})
    source = found.driver.watch(found.uuids)
    found.node.answer("nvmlEventSetWait", code)
    with pytest.raises(DriverError):
        source.wait(0.01)


@pytest.mark.parametrize("call", ["nvmlEventSetCreate", "nvmlEventSetWait"])
@pytest.mark.parametrize("code", ["NOT_SUPPORTED", "FUNCTION_NOT_FOUND"])
def test_a_driver_without_events_is_no_fault(opened, call, code):
    """One that is older than the binding's way to wait (before R450), or that has no events: known, and nothing is unwatched."""
    found = opened({})
    found.node.answer(call, code)
    source = found.driver.watch(found.uuids)
    source.wait(0)
    began = time.monotonic()
    assert (source.wait(0.05), source.unwatched) == (None, {})
    assert time.monotonic() - began > 0.04, "whoever waits must not spin"
    source.close()
    with pytest.raises(DriverError, match="closed"):
        source.wait(0)


def test_no_event_set_no_source(opened):
    """Where not even the set can be made, watching raises."""
    found = opened({})
    found.node.answer("nvmlEventSetCreate", "UNKNOWN")
    with pytest.raises(DriverError, match="nvmlEventSetCreate"):
        found.driver.watch(found.uuids)


def test_a_source_dies_with_its_session(opened):
    """After the driver was closed and opened, an old source raises instead of using a set that is no more, and closes quietly."""
    found = opened({})
    source = found.driver.watch(found.uuids)
    found.driver.close()
    found.driver.open()
    with pytest.raises(DriverError, match="closed"):
        source.wait(0.01)
    source.close()


def test_a_closed_source_raises(opened):
    """Closing is final, and may be repeated."""
    found = opened({})
    source = found.driver.watch(found.uuids)
    source.close()
    source.close()
    with pytest.raises(DriverError, match="closed"):
        source.wait(0.01)
