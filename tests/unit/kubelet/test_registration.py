"""The registration loop in virtual time, with a server and a kubelet made by hand."""

from __future__ import annotations

import asyncio

import pytest

from device_plugin.errors import RegistrationFailed, SocketTaken
from device_plugin.kubelet.api.deviceplugin.v1beta1.deviceplugin_pb2 import DevicePluginOptions
from device_plugin.kubelet.backoff import Backoff
from device_plugin.kubelet.changes import Changes
from device_plugin.kubelet.presence import Kubelet
from device_plugin.kubelet.registration import PAUSE_SECONDS, STREAM_SECONDS, Registration

pytestmark = pytest.mark.looptime


class Server:
    """What a registration needs of a ResourceServer."""

    name, endpoint = "nvidia.com/gpu", "gpu.sock"

    def __init__(self, steps):
        self.changes, self.steps = Changes(), steps
        self.options = DevicePluginOptions(get_preferred_allocation_available=True)
        self.open_streams, self.has_stream, self.owned = 0, False, True
        self.taken = False

    @property
    def is_listed(self):
        return self.has_stream

    def owns_socket(self):
        return self.owned

    def open_stream(self):
        self.open_streams, self.has_stream = 1, True
        self.changes.notify()

    def lose_stream(self):
        self.open_streams, self.has_stream = 0, False
        self.changes.notify()

    async def settle(self, timeout_seconds):
        self.steps.append("settle")
        return True

    async def end_streams(self):
        self.steps.append("end")
        self.lose_stream()

    async def rebind(self):
        self.steps.append("rebind")
        if self.taken:
            raise SocketTaken("another process serves it")
        self.lose_stream()
        self.owned = True

    async def wait_listed(self, timeout_seconds):
        try:
            async with asyncio.timeout(timeout_seconds):
                while not self.is_listed:
                    await self.changes.next()
        except TimeoutError:
            return False
        return True


class Presence:
    """What a registration needs of a Presence."""

    socket = "kubelet.sock"

    def __init__(self):
        self.changes, self.kubelet = Changes(), Kubelet(None, is_accepting=True, number=1)

    def guard(self, is_intact):
        return lambda: None

    def look(self, *, doubting=False):
        return self.kubelet

    def replace(self):
        self.kubelet = Kubelet(None, is_accepting=True, number=self.kubelet.number + 1)
        self.changes.notify()

    async def wait_accepting(self):
        return self.kubelet

    async def wait_other(self, number):
        while self.kubelet.number == number:
            await self.changes.next()
        return self.kubelet


class World:
    """A registration under test. `answers` says how kubelet takes the next attempts; after the last one it takes every attempt."""

    def __init__(self, logger):
        self.steps, self.times, self.answers = [], [], []
        self.server, self.presence = Server(self.steps), Presence()
        self.registration = Registration(
            self.server, self.presence, logger=logger, backoff=Backoff(random=lambda: 1.0), register=self.register
        )

    def start(self):
        """Called in the test: virtual time begins there, not in fixtures."""
        self.task = asyncio.create_task(self.registration.run())

    async def register(self, socket, endpoint, resource, options):
        self.steps.append("register")
        self.times.append(asyncio.get_running_loop().time())
        answer = self.answers.pop(0) if self.answers else "take"
        if answer == "hang":
            await asyncio.Event().wait()
        if answer == "take":
            self.server.open_stream()
        elif answer != "no stream":
            raise RegistrationFailed(answer)

    async def registered(self):
        async with asyncio.timeout(3600):
            await self.registration.wait_registered()


@pytest.fixture
async def world(logger):
    made = World(logger)
    yield made
    made.task.cancel()
    await asyncio.gather(made.task, return_exceptions=True)


def gaps(world):
    return [round(later - earlier, 3) for earlier, later in zip(world.times, world.times[1:], strict=False)]


async def test_the_order_is_settle_end_register(world):
    """Pending calls finish, the old stream ends, only then kubelet is asked."""
    world.start()
    await world.registered()
    assert world.steps == ["settle", "register"]
    world.presence.replace()
    await asyncio.sleep(1)
    assert world.steps[2:] == ["settle", "end", "register"]


async def test_refusals_are_retried_with_growing_delays_without_end(world, captured):
    """From a tenth of a second to three minutes, for hours; the text is logged once as a warning."""
    world.start()
    world.answers = ["no"] * 100
    await asyncio.sleep(4 * 3600)
    assert gaps(world)[:4] == [0.1, 0.2, 0.4, 0.8]
    assert max(gaps(world)) == 180.0
    assert len(world.times) > 60
    assert len([entry for entry in captured if entry["log_level"] == "warning"]) == 1
    assert world.registration.failure == "no"


async def test_another_refusal_is_told_again(world, captured):
    """A different reason is news."""
    world.start()
    world.answers = ["no", "no", "never", "never", "no"]
    await world.registered()
    assert [entry["reason"] for entry in captured if entry["log_level"] == "warning"] == ["no", "never", "no"]
    assert world.registration.failure is None


async def test_a_new_kubelet_starts_with_a_clean_sheet(world):
    """In the middle of a long delay a new kubelet comes: it is asked at once, and the delays begin anew."""
    world.start()
    world.answers = ["no"] * 16
    await asyncio.sleep(700)
    before = len(world.times)
    world.presence.replace()
    await asyncio.sleep(0.01)
    assert len(world.times) == before + 1
    await asyncio.sleep(0.2)
    assert gaps(world)[-1] == 0.1


async def test_a_hung_kubelet_is_given_up_for_its_successor(world):
    """Register hangs, kubelet is restarted: the attempt is dropped and the new kubelet asked."""
    world.start()
    world.answers = ["hang"]
    await asyncio.sleep(5)
    world.presence.replace()
    async with asyncio.timeout(0.1):
        await world.registration.wait_registered()


async def test_the_successor_of_a_hung_kubelet_starts_with_a_clean_sheet(world):
    """What the old one refused before it hung does not delay the second attempt at the new one."""
    world.start()
    world.answers = [*["no"] * 6, "hang"]
    await asyncio.sleep(60)
    world.answers = ["no"]
    world.presence.replace()
    await world.registered()
    assert gaps(world)[-1] == 0.1


async def test_kubelet_has_a_moment_between_the_end_of_a_stream_and_the_registration(world):
    """It drops whatever client it has under the name when a stream ends, and that takes it a moment."""
    ended = []
    world.server.end_streams = lambda end=world.server.end_streams: ended.append(asyncio.get_running_loop().time()) or end()
    world.start()
    await world.registered()
    world.presence.replace()
    await asyncio.sleep(1)
    assert world.times[-1] - ended[-1] >= PAUSE_SECONDS


async def test_a_registration_without_a_stream_is_tried_again(world, captured):
    """Kubelet said yes and opened no stream: after five seconds that counts as refused."""
    world.start()
    world.answers = ["no stream"]
    await world.registered()
    assert gaps(world) == [round(STREAM_SECONDS + 0.1, 3)]
    assert "opened no ListAndWatch stream within 5 s" in captured[0]["reason"]


async def test_a_stream_that_ends_after_a_steady_time_is_brought_back_at_once(world):
    """One lost stream in an hour costs milliseconds."""
    world.start()
    await world.registered()
    await asyncio.sleep(3600)
    lost = asyncio.get_running_loop().time()
    world.server.lose_stream()
    async with asyncio.timeout(1):
        await world.registration.wait_registered()
    assert asyncio.get_running_loop().time() - lost < 0.05


async def test_a_stream_that_ends_again_and_again_is_not_chased(world):
    """A kubelet that drops every list (one that is too long, say) is not asked a thousand times a second."""
    world.start()
    for _ in range(20):
        await world.registered()
        world.server.lose_stream()
        await asyncio.sleep(0)
    await asyncio.sleep(2000)
    assert gaps(world)[:4] == [0.1, 0.2, 0.4, 0.8]


async def test_a_lost_socket_is_made_anew(world):
    """Our socket was taken away: bound again, then registered."""
    world.start()
    await world.registered()
    await asyncio.sleep(60)
    world.server.owned = False
    world.presence.changes.notify()
    await asyncio.sleep(1)
    assert world.steps[2:] == ["settle", "rebind", "register"]


async def test_a_socket_taken_by_another_is_a_failure_like_others(world, captured):
    """Somebody else serves our path: told once, tried again, taken back once it is free."""
    world.start()
    await world.registered()
    await asyncio.sleep(60)
    world.server.owned, world.server.taken = False, True
    world.presence.changes.notify()
    await asyncio.sleep(60)
    told = [e for e in captured if e["event"] == "resource.registration_failed" and e["log_level"] == "warning"]
    assert [entry["reason"] for entry in told] == ["another process serves it"]
    world.server.taken = False
    await asyncio.sleep(200)
    assert world.registration.is_registered


async def test_other_options_are_registered_at_once(world):
    """Kubelet reads the options at registration only."""
    world.start()
    await world.registered()
    world.server.options = DevicePluginOptions(pre_start_required=True)
    world.server.changes.notify()
    await asyncio.sleep(0.01)
    assert world.steps[2:] == ["settle", "end", "register"]


async def test_what_kubelet_has_forgotten_is_registered_again_once(world):
    """Another plugin took the name and has gone: our stream is open and kubelet has none of our devices."""
    world.start()
    await world.registered()
    await asyncio.sleep(60)
    world.registration.note_forgotten()
    await asyncio.sleep(3600)
    assert world.steps[2:] == ["settle", "end", "register"]
    assert world.registration.is_registered


async def test_a_list_change_registers_nothing(world):
    """Changes of the list wake the loop, which finds nothing lost."""
    world.start()
    await world.registered()
    for _ in range(100):
        world.server.changes.notify()
        await asyncio.sleep(0.01)
    assert world.steps == ["settle", "register"]


async def test_cancelling_ends_it_wherever_it_is(world):
    """While it waits, while it registers: no task is left behind."""
    world.start()
    world.answers = ["hang"]
    await asyncio.sleep(1)
    world.task.cancel()
    await asyncio.gather(world.task, return_exceptions=True)
    assert world.task.cancelled()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []
