"""One process of ours in a directory, and the others' sockets in it."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import socket
from pathlib import Path

import pytest

from device_plugin.errors import SocketTaken, SocketUnusable
from device_plugin.kubelet.directory import HOLDER_FILE, ForeignSocket, SocketDirectory
from device_plugin.kubelet.sockets import PREFIX


def bind(path, *, listen=True):
    made = socket.socket(socket.AF_UNIX)
    made.bind(str(path))
    if listen:
        made.listen()
    return made


@pytest.fixture
async def held(root, logger):
    directory = SocketDirectory(root, logger=logger, holder="pid 7 on node-a")
    await directory.acquire()
    yield directory
    directory.release()


async def test_the_holder_is_written_down_and_goes_with_the_lock(held, root):
    """A plain file, which kubelet's start leaves alone."""
    assert (root / HOLDER_FILE).read_text() == "pid 7 on node-a\n"
    held.release()
    assert list(root.iterdir()) == []
    held.release()


@pytest.mark.looptime
async def test_a_second_one_waits_and_names_the_first(held, root, logger, captured):
    """However long it takes, it is one line in the log; then the second has the directory (grpc/grpc#17122)."""
    second = SocketDirectory(root, logger=logger, holder="pid 8 on node-a")
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(600)
    assert not waiting.done()
    assert [entry["holder"] for entry in captured if entry["event"] == "directory.awaited"] == ["pid 7 on node-a"]
    held.release()
    await waiting
    assert (root / HOLDER_FILE).read_text() == "pid 8 on node-a\n"
    second.release()


@pytest.mark.looptime
async def test_a_lock_without_a_note_is_awaited_too(root, logger, captured):
    """Somebody holds the lock who wrote no file: the holder is unknown, and that is said."""
    descriptor = os.open(root, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    waiting = asyncio.create_task(SocketDirectory(root, logger=logger).acquire())
    await asyncio.sleep(5)
    assert [entry["holder"] for entry in captured] == ["unknown"]
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    os.close(descriptor)


@pytest.fixture
def parent(root):
    """Where a directory can be removed and made anew."""
    (root / "dp").mkdir()
    return root / "dp"


def make_anew(path):
    """As an operator who tidies up, and kubelet at its next start. Our lock keeps the old one's inode number in use."""
    for entry in path.iterdir():
        entry.unlink()
    path.rmdir()
    path.mkdir()


@pytest.mark.looptime
async def test_the_lock_follows_a_directory_made_anew(parent, logger, captured):
    """The lock went with the directory, so that a second process served the same GPUs from the new one."""
    first, second = (SocketDirectory(parent, logger=logger, holder=f"pid {pid}") for pid in (7, 8))
    await first.acquire()
    keeping = asyncio.create_task(first.keep())
    make_anew(parent)
    await asyncio.sleep(2)
    assert (parent / HOLDER_FILE).read_text() == "pid 7\n"
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(60)
    assert [entry["holder"] for entry in captured if entry["event"] == "directory.awaited"] == ["pid 7"]
    keeping.cancel()
    first.release()
    await waiting
    second.release()


@pytest.mark.looptime
async def test_who_waited_for_a_directory_takes_the_one_in_its_place(parent, logger):
    """A lock on what has gone is none."""
    first, second = (SocketDirectory(parent, logger=logger, holder=f"pid {pid}") for pid in (7, 8))
    await first.acquire()
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(2)
    make_anew(parent)
    await asyncio.sleep(2)
    await waiting
    with pytest.raises(SocketTaken) as problem:
        first.look()
    assert str(problem.value) == (f'the directory "{parent}" was removed, and another process has the one made in its place: pid 8')
    first.release()
    assert (parent / HOLDER_FILE).read_text() == "pid 8\n", "not ours to remove"
    second.release()


@pytest.mark.looptime
async def test_a_directory_that_is_moved_away_and_back_stays_with_its_holder(parent, logger, monkeypatch):
    """Who waits and finds it away for a moment has no lock yet."""
    first, second = (SocketDirectory(parent, logger=logger, holder=f"pid {pid}") for pid in (7, 8))
    await first.acquire()
    is_here, seen = SocketDirectory._is_here, []
    monkeypatch.setattr(SocketDirectory, "_is_here", lambda *args: bool(seen.append(1)) or (len(seen) > 1 and is_here(*args)))
    waiting = asyncio.create_task(second.acquire())
    await asyncio.sleep(5)
    assert len(seen) > 1
    assert not waiting.done()
    assert (parent / HOLDER_FILE).read_text() == "pid 7\n"
    first.release()
    await waiting
    second.release()


@pytest.mark.looptime
async def test_a_directory_that_is_away_is_waited_for(parent, logger):
    """Kubelet makes it at its start, however long that takes."""
    directory = SocketDirectory(parent, logger=logger, holder="pid 7")
    await directory.acquire()
    keeping = asyncio.create_task(directory.keep())
    for entry in parent.iterdir():
        entry.unlink()
    parent.rmdir()
    await asyncio.sleep(600)
    assert not keeping.done()
    parent.mkdir()
    await asyncio.sleep(2)
    assert (parent / HOLDER_FILE).read_text() == "pid 7\n"
    keeping.cancel()
    directory.release()


async def test_a_mount_of_a_removed_directory_needs_another_start(parent, logger):
    """A container keeps what was mounted at its start: nothing that is made in its place on the host is ever seen there."""
    descriptor = os.open(parent, os.O_RDONLY)
    mounted = SocketDirectory(Path(f"/proc/self/fd/{descriptor}"), logger=logger)
    await mounted.acquire()
    mounted.look()
    make_anew(parent)
    with pytest.raises(SocketUnusable, match="was removed on the host while it was mounted here"):
        mounted.look()
    mounted.release()
    os.close(descriptor)


async def test_the_default_note_names_pid_and_host(root, logger):
    """What a person needs to find the other process."""
    directory = SocketDirectory(root, logger=logger)
    await directory.acquire()
    assert (root / HOLDER_FILE).read_text() == f"pid {os.getpid()} on {socket.gethostname()}\n"
    directory.release()


async def test_a_directory_that_takes_no_note_is_refused(root, logger):
    """Something in the note's place, a file system that is broken: the plugin says so and does not serve unseen."""
    (root / HOLDER_FILE).mkdir()
    with pytest.raises(SocketUnusable, match=r"could not write in the directory .*: Is a directory"):
        await SocketDirectory(root, logger=logger).acquire()


async def test_a_directory_that_cannot_be_locked_is_refused(root, logger, monkeypatch):
    """A file system without locks must not look like a lock that was had: two processes would serve there."""

    def refuse(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(SocketUnusable, match="could not lock the socket directory: No locks available"):
        await SocketDirectory(root, logger=logger).acquire()


async def test_dead_sockets_of_ours_are_cleared_and_nothing_else(root, logger):
    """Left-overs of a killed process go, staging names too; living ones, other plugins' and plain files stay."""
    for name in ("gpu-device-plugin-nvidia.com-gpu.sock", ".gpu-device-plugin-0a1b2c3d.sock", "nvidia-gpu.sock", "kubelet.sock"):
        bind(root / name).close()
    alive = bind(root / "gpu-device-plugin-alive.sock")
    (root / "gpu-device-plugin-state.json").write_text("{}")
    directory = SocketDirectory(root, logger=logger)
    await directory.acquire()
    assert sorted(path.name for path in root.iterdir()) == [
        "gpu-device-plugin-alive.sock",
        "gpu-device-plugin-state.json",
        HOLDER_FILE,
        "kubelet.sock",
        "nvidia-gpu.sock",
    ]
    directory.release()
    alive.close()


async def test_living_sockets_of_other_plugins_for_our_resources_are_found(held, root):
    """Two plugins for one resource overwrite each other's lists (kubernetes/kubernetes#52190): their sockets' names tell."""
    sockets = [bind(root / name) for name in ("nvidia-gpu.sock", "nvidia.com-gpu.sock", "nvidia-mig-1g.10gb.sock", "other.sock")]
    bind(root / "nvidia-gpu.shared.sock").close()
    found = held.foreign_sockets(["nvidia.com/gpu", "nvidia.com/gpu.shared", "nvidia.com/mig-1g.10gb"])
    assert found == (
        ForeignSocket("nvidia.com/gpu", str(root / "nvidia-gpu.sock")),
        ForeignSocket("nvidia.com/gpu", str(root / "nvidia.com-gpu.sock")),
        ForeignSocket("nvidia.com/mig-1g.10gb", str(root / "nvidia-mig-1g.10gb.sock")),
    )
    for made in sockets:
        made.close()


async def test_our_own_sockets_are_not_foreign(held, root):
    """Our prefix is not NVIDIA's."""
    own = bind(root / "gpu-device-plugin-nvidia.com-gpu.sock")
    assert held.foreign_sockets(["nvidia.com/gpu"]) == ()
    own.close()


async def test_a_missing_directory_is_named_with_what_to_mount(root, logger):
    """Kubelet's --root-dir does not move it; the path that was tried is in the message (kubernetes/kubernetes#120626)."""
    with pytest.raises(SocketUnusable) as problem:
        await SocketDirectory(root / "data01" / "kubelet", logger=logger).acquire()
    assert str(problem.value) == (
        f'there is no directory "{root}/data01/kubelet" for the sockets of device plugins. Kubelet makes it at its start, '
        "always as /var/lib/kubelet/device-plugins on the host, whatever its --root-dir is: mount that, or say with "
        "--kubelet-socket where kubelet.sock is"
    )


async def test_a_file_instead_of_the_directory_is_named(root, logger):
    """A mount of the wrong thing."""
    (root / "file").write_text("")
    with pytest.raises(SocketUnusable, match="is no directory"):
        await SocketDirectory(root / "file", logger=logger).acquire()


@pytest.mark.parametrize("where", ["open", "write"])
async def test_a_closed_directory_is_explained(root, logger, monkeypatch, where):
    """Permission denied, with the path and what to look for (kubernetes/kubernetes#73240)."""

    def refuse(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    if where == "open":
        monkeypatch.setattr("device_plugin.kubelet.directory.os.open", refuse)
    else:
        monkeypatch.setattr("pathlib.Path.write_text", refuse)
    with pytest.raises(SocketUnusable, match=f'the directory "{root}": permission denied; '):
        await SocketDirectory(root, logger=logger).acquire()
    monkeypatch.undo()
    again = SocketDirectory(root, logger=logger)
    await asyncio.wait_for(again.acquire(), 2)
    again.release()


async def test_a_full_disk_keeps_nobody_from_serving(root, logger, captured, monkeypatch):
    """A socket takes no room; the note for those who wait is worth a warning."""

    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    directory = SocketDirectory(root, logger=logger)
    await directory.acquire()
    directory.release()
    assert [entry["reason"] for entry in captured if entry["event"] == "directory.full"] == ["No space left on device"]


async def test_a_directory_that_has_become_read_only_ends_nothing(root, logger, captured, monkeypatch):
    """What cannot be removed stays; the lock is given back all the same."""

    def read_only(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    bind(root / f"{PREFIX}nvidia.com-gpu.sock", listen=False).close()
    monkeypatch.setattr("pathlib.Path.unlink", read_only)
    directory = SocketDirectory(root, logger=logger)
    await directory.acquire()
    assert [entry["reason"] for entry in captured if entry["event"] == "socket.not_cleared"] == ["Read-only file system"]
    directory.release()
    second = SocketDirectory(root, logger=logger)
    async with asyncio.timeout(1):
        await second.acquire()
    second.release()
