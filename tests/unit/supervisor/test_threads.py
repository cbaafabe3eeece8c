"""The hardware threads: nothing hangs the loop, nothing ends in silence."""

import asyncio
import threading
import time

import pytest

from device_plugin.hardware.driver import Event
from device_plugin.supervisor.threads import EventThread, WorkThread


async def test_work_is_done_in_order_on_one_thread():
    worker, seen = WorkThread("w", "tool"), []
    futures = [worker.submit(lambda tool, n=n: seen.append((tool, n, threading.current_thread().name))) for n in range(3)]
    await asyncio.gather(*futures)
    worker.stop()
    assert seen == [("tool", n, "w") for n in range(3)]


async def test_an_error_reaches_whoever_asked_and_the_thread_goes_on():
    worker = WorkThread("w", None)
    with pytest.raises(ZeroDivisionError):
        await worker.submit(lambda _: 1 // 0)
    assert await worker.submit(lambda _: 7) == 7
    worker.stop()


async def test_a_result_nobody_waits_for_any_more_is_dropped():
    worker, gate = WorkThread("w", None), threading.Event()
    future = worker.submit(lambda _: gate.wait(5))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(future, 0.02)
    gate.set()
    assert await worker.submit(lambda _: 1) == 1
    worker.stop()


class Watch:
    """An EventThread and what it says."""

    def __init__(self, node):
        self.batches, self.changes = [], []
        self.thread = EventThread(node.make, lambda batch: self.batches.append(list(batch)), self.changes.append)


@pytest.fixture
async def watch(node, monkeypatch):
    monkeypatch.setattr(EventThread, "FIRST_RETRY_SECONDS", 0.05)
    made = Watch(node)
    yield made
    made.thread.stop()


async def test_events_arrive_in_batches_and_all_of_them(node, watch, eventually):
    node.events = [Event(13, "GPU-0")] * 500
    watch.thread.watch(["GPU-0"])
    await eventually(lambda: watch.changes == [{}])
    time.sleep(0.1)  # noqa: ASYNC251 - the loop is busy, on purpose; events coalesce meanwhile
    await eventually(lambda: sum(map(len, watch.batches)) == 500)
    assert len(watch.batches) < 100


async def test_parking_closes_the_driver_and_watching_opens_it_again(node, watch, eventually):
    watch.thread.watch(["GPU-0"])
    await eventually(lambda: node.open_drivers == 1)
    assert await watch.thread.park(2.0)
    assert node.open_drivers == 0
    watch.thread.watch(["GPU-0", "GPU-1"])
    await eventually(lambda: node.watches == [("GPU-0",), ("GPU-0", "GPU-1")])


async def test_parking_twice_and_while_parked_ends_at_once(watch):
    assert await watch.thread.park(1.0)
    assert await watch.thread.park(1.0)


async def test_parking_a_thread_that_hangs_is_given_up(node, watch, eventually):
    node.hanging.add(("wait", None))
    watch.thread.watch(["GPU-0"])
    await eventually(lambda: watch.thread.driver is not None and watch.thread.driver.current_call is not None)
    assert not await watch.thread.park(0.1)


async def test_the_same_gpus_again_interrupt_nothing(node, watch, eventually):
    watch.thread.watch(["GPU-0"])
    await eventually(lambda: node.watches)
    watch.thread.watch(["GPU-0"])
    await asyncio.sleep(0.05)
    assert node.watches == [("GPU-0",)]


async def test_a_lost_source_is_told_and_tried_again_ever_later(node, watch, eventually):
    """A health loop that ended in an error was never heard of again (NVIDIA/k8s-device-plugin#1640)."""
    node.failing["wait"] = "broken"
    watch.thread.watch(["GPU-0"])
    await asyncio.sleep(0.5)
    assert 2 <= len(node.watches) <= 5, "0.05 + 0.1 + 0.2 s, not a tight loop"
    assert watch.changes
    assert all(change == {"*": "wait: broken"} for change in watch.changes), "a try is no recovery"
    node.failing.clear()
    await eventually(lambda: watch.changes[-1] == {})


async def test_one_failure_of_a_watch_that_has_worked_for_long_costs_no_gpu_a_moment(node, watch, eventually, monkeypatch):
    """One failed wait took every GPU away until it was tried again (NVIDIA/k8s-device-plugin#1640)."""

    class Once(dict):
        def __getitem__(self, name):
            return self.pop(name)

    monkeypatch.setattr(EventThread, "LAST_RETRY_SECONDS", 0.1)
    watch.thread.watch(["GPU-0"])
    await eventually(lambda: watch.changes == [{}])
    await asyncio.sleep(0.15)
    node.failing = Once(wait="broken")
    await eventually(lambda: len(node.watches) == 2)
    await eventually(lambda: watch.changes == [{}, {}])
    node.failing = {"wait": "broken"}
    await eventually(lambda: watch.changes[-1] == {"*": "wait: broken"})


async def test_a_gpu_that_refuses_the_watch_is_asked_again(node, watch, eventually):
    node.unwatched = {"GPU-1": "no"}
    watch.thread.watch(["GPU-0", "GPU-1"])
    await eventually(lambda: watch.changes == [{"GPU-1": "no"}])
    node.unwatched = {}
    await eventually(lambda: watch.changes[-1] == {})


async def test_nothing_is_said_after_the_stop(node, watch, eventually):
    watch.thread.watch(["GPU-0"])
    await eventually(lambda: watch.changes)
    watch.thread.stop()
    node.failing["wait"] = "broken"
    await asyncio.sleep(0.1)
    assert watch.changes == [{}]


async def test_a_bug_in_the_watch_is_told_like_an_error_of_the_driver(node, watch, eventually):
    def broken(_):
        raise ZeroDivisionError

    watch.thread._make_driver = type("Broken", (), {"open": broken, "close": broken, "current_call": None})
    watch.thread.watch(["GPU-0"])
    await eventually(lambda: watch.changes)
    assert watch.changes[0] == {"*": "ZeroDivisionError()"}
