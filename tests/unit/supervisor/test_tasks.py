"""Every long-lived task has an owner, and its unexpected end is heard of."""

import asyncio

import pytest

from device_plugin.errors import PluginError
from device_plugin.supervisor.tasks import Tasks
from device_plugin.supervisor.wakeup import Wakeup


async def forever():
    await asyncio.Event().wait()


async def fails():
    await asyncio.sleep(0)
    raise ZeroDivisionError("a bug")


async def returns():
    return


async def test_an_error_is_logged_with_its_traceback_and_raised_to_the_owner(log):
    tasks = Tasks(log.logger)
    tasks.start("good", forever())
    tasks.start("bad", fails())
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(tasks.wait_failed(), 1)
    (entry,) = log.of("task.failed")
    assert entry["task"] == "bad"
    assert entry["exc_info"].__traceback__ is not None
    await tasks.cancel()


async def test_an_end_on_purpose_is_said_without_a_traceback(log):
    async def ends():
        raise PluginError("the driver is away")

    tasks = Tasks(log.logger)
    tasks.start("a", ends())
    with pytest.raises(PluginError):
        await asyncio.wait_for(tasks.wait_failed(), 1)
    assert log.entries == [{"event": "task.ended", "task": "a", "reason": "the driver is away", "log_level": "error"}]
    await tasks.cancel()


async def test_a_task_that_returns_has_failed_too(log):
    tasks = Tasks(log.logger)
    tasks.start("short", returns())
    with pytest.raises(RuntimeError, match="short returned though it has no end"):
        await asyncio.wait_for(tasks.wait_failed(), 1)
    await tasks.cancel()


async def test_the_first_failure_is_the_one_raised_even_if_nobody_was_waiting_yet(log):
    tasks = Tasks(log.logger)
    tasks.start("a", fails())
    await asyncio.sleep(0.01)
    tasks.start("b", returns())
    await asyncio.sleep(0.01)
    with pytest.raises(ZeroDivisionError):
        await tasks.wait_failed()
    assert len(log.of("task.failed")) == 2
    await tasks.cancel()


async def test_a_task_ended_by_its_owner_is_no_failure(log):
    tasks = Tasks(log.logger)
    task = tasks.start("a", forever())
    await tasks.end(task)
    assert task.cancelled()
    tasks.start("b", forever())
    await tasks.cancel()
    assert not log.entries


async def test_ending_a_task_that_has_ended_is_harmless(log):
    tasks = Tasks(log.logger)
    task = tasks.start("a", forever())
    await tasks.end(task)
    await tasks.end(task)
    await tasks.cancel()
    await tasks.cancel()


async def test_whoever_waits_for_a_failure_can_give_up_without_harm(log):
    tasks = Tasks(log.logger)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(tasks.wait_failed(), 0.01)
    tasks.start("bad", fails())
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(tasks.wait_failed(), 1)
    await tasks.cancel()


async def test_any_number_of_calls_before_a_wait_are_one():
    wakeup = Wakeup()
    for _ in range(5):
        wakeup.set()
    assert await wakeup.wait(0.01)
    assert not await wakeup.wait(0.01)


async def test_a_call_before_a_wait_without_time_counts():
    wakeup = Wakeup()
    wakeup.set()
    assert await wakeup.wait(0)
    assert not await wakeup.wait(0)


async def test_a_call_during_a_wait_ends_it():
    wakeup = Wakeup()
    asyncio.get_running_loop().call_later(0.01, wakeup.set)
    assert await wakeup.wait()
