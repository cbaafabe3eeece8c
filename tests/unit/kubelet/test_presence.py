"""Seeing kubelet come and go, in virtual time on real socket files."""

from __future__ import annotations

import asyncio
import socket

import pytest

from device_plugin.errors import SocketUnusable
from device_plugin.kubelet import presence as module
from device_plugin.kubelet.presence import EAGER_FOR_SECONDS, EAGER_POLL_SECONDS, POLL_SECONDS, Kubelet, Presence

pytestmark = pytest.mark.looptime
TASKS = []


class KubeletSocket:
    """kubelet.sock, bound and listened on by hand."""

    def __init__(self, path):
        self.path = path
        self.socket = None

    def bind(self):
        self.path.unlink(missing_ok=True)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(self.path))

    def listen(self):
        self.socket.listen(64)

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None


@pytest.fixture
def kubelet(root):
    made = KubeletSocket(root / "kubelet.sock")
    yield made
    made.close()


@pytest.fixture
async def presence(root, logger):
    yield Presence(root / "kubelet.sock", logger=logger)
    for task in TASKS:
        task.cancel()
    await asyncio.gather(*TASKS, return_exceptions=True)
    TASKS.clear()


def start(presence):
    """Called in the test: virtual time begins there, not in fixtures."""
    TASKS.append(asyncio.create_task(presence.run()))


async def until(presence, **expected):
    """How long it takes until `kubelet` has these values."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    async with asyncio.timeout(600):
        while any(getattr(presence.kubelet, name) != value for name, value in expected.items()):
            await presence.changes.next()
    return loop.time() - started


async def test_a_listening_socket_is_the_first_kubelet(presence, kubelet):
    """Absent, then there: number 1, within a poll."""
    start(presence)
    await asyncio.sleep(60)
    assert presence.kubelet == Kubelet()
    kubelet.bind()
    kubelet.listen()
    assert await until(presence, is_accepting=True) <= POLL_SECONDS
    assert presence.kubelet.number == 1


async def test_a_new_socket_is_a_new_kubelet_also_with_the_same_inode(presence, kubelet):
    """Device and inode may be the old ones (a chmod stands for a new socket here): the ctime tells."""
    start(presence)
    kubelet.bind()
    kubelet.listen()
    await until(presence, number=1)
    before = presence.kubelet.identity
    kubelet.path.chmod(0o700)
    await until(presence, number=2)
    assert presence.kubelet.identity.is_same_file(before)


async def test_a_kubelet_that_went_and_came_back_on_its_old_socket_is_new(presence, kubelet, monkeypatch):
    """Refusing and then accepting again is another kubelet, whatever the file says."""
    start(presence)
    kubelet.bind()
    kubelet.listen()
    await until(presence, number=1)
    monkeypatch.setattr(module, "is_served", lambda _path: False)
    presence.look(doubting=True)
    assert not presence.kubelet.is_accepting
    monkeypatch.setattr(module, "is_served", lambda _path: True)
    await until(presence, number=2)


async def test_a_known_kubelet_is_not_knocked_at(presence, kubelet, monkeypatch):
    """Once it accepts, only its file is looked at; a doubt makes one connection."""
    start(presence)
    kubelet.bind()
    kubelet.listen()
    await until(presence, number=1)
    knocks = []
    monkeypatch.setattr(module, "is_served", lambda path: knocks.append(path) or True)
    await asyncio.sleep(60)
    assert knocks == []
    presence.look(doubting=True)
    assert (len(knocks), presence.kubelet.number) == (1, 1)


async def test_a_new_socket_that_refuses_is_tried_every_twenty_milliseconds(presence, kubelet):
    """Kubelet binds before it listens: what follows is a race for the pods that it admits anew."""
    start(presence)
    kubelet.bind()
    await until(presence, identity=module.SocketIdentity.of(kubelet.path))
    await asyncio.sleep(1.0)
    kubelet.listen()
    assert await until(presence, is_accepting=True) <= EAGER_POLL_SECONDS


async def test_eagerness_ends(presence, kubelet):
    """A socket left behind by a kubelet that stays away is polled at the ordinary pace, and still found."""
    start(presence)
    kubelet.bind()
    await asyncio.sleep(EAGER_FOR_SECONDS + 1)
    looks = []
    look = presence.look
    presence.look = lambda **how: looks.append(1) or look(**how)
    await asyncio.sleep(10)
    assert len(looks) <= 10 / POLL_SECONDS + 2
    kubelet.listen()
    assert await until(presence, is_accepting=True) <= POLL_SECONDS


async def test_a_hint_makes_the_look_immediate(presence, kubelet):
    """A notification saves the rest of the pause; nothing is debounced."""
    start(presence)
    await asyncio.sleep(60)
    kubelet.bind()
    kubelet.listen()
    presence.hint()
    assert await until(presence, is_accepting=True) == 0


async def test_kubelet_gone_is_seen(presence, kubelet):
    """The file deleted: absent; the number stays until there is another one."""
    start(presence)
    kubelet.bind()
    kubelet.listen()
    await until(presence, number=1)
    kubelet.path.unlink()
    await until(presence, identity=None)
    assert (presence.kubelet.is_accepting, presence.kubelet.number) == (False, 1)


async def test_a_lost_socket_of_ours_wakes_whoever_waits(presence):
    """Waiters are woken at each look while a guarded socket is not intact, and no more once the guard has ended."""
    start(presence)
    intact = [True]
    unguard = presence.guard(lambda: intact[0])
    loop = asyncio.get_running_loop()
    await asyncio.sleep(60)
    intact[0] = False
    started = loop.time()
    await presence.changes.next()
    assert loop.time() - started <= POLL_SECONDS
    unguard()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await presence.changes.next()


async def test_what_is_seen_is_told_once(presence, kubelet, captured):
    """Ten minutes without kubelet are one line."""
    start(presence)
    await asyncio.sleep(600)
    kubelet.bind()
    kubelet.listen()
    await until(presence, number=1)
    await asyncio.sleep(600)
    assert [entry["event"] for entry in captured] == ["kubelet.awaited", "kubelet.found"]


@pytest.mark.parametrize(
    "trouble",
    [
        lambda: SocketUnusable("SELinux is enforcing"),
        lambda: PermissionError(13, "Permission denied"),
        lambda: OSError(24, "Too many open files"),
    ],
)
async def test_trouble_with_the_socket_is_told_and_outlived(presence, kubelet, captured, monkeypatch, trouble):
    """A look that fails is a line in the log, not the end of looking (kubernetes/kubernetes#73240)."""
    start(presence)

    def refuse(_path):
        raise trouble()

    monkeypatch.setattr(module, "is_served", refuse)
    kubelet.bind()
    kubelet.listen()
    await asyncio.sleep(30)
    assert [entry["event"] for entry in captured if entry["event"] == "kubelet.denied"] == ["kubelet.denied"]
    monkeypatch.setattr(module, "is_served", lambda _path: True)
    await until(presence, number=1)
