"""Notifications are hints: they come soon where they come, and nothing breaks where they do not."""

from __future__ import annotations

import threading
import time

import pytest
from watchdog.observers.api import EventDispatcher

from device_plugin.config import notifier as module
from device_plugin.config.notifier import Notifier

SOON = 5.0


def wait_until(condition):
    deadline = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.fixture
def notified():
    return threading.Event()


@pytest.fixture
def directory(tmp_path):
    directory = tmp_path / "watched"
    directory.mkdir()
    return directory


@pytest.fixture
def notifier(directory, notified):
    notifier = Notifier(str(directory))
    assert notifier.start(notified.set)
    yield notifier
    notifier.stop()


def test_a_swap_of_kubelets_link_is_noticed_each_time(notifier, directory, notified):
    """Events of such swaps differ by watcher, and a watch on the file gets none (linkerd/linkerd2#1061, istio/istio#38366)."""
    for number in range(5):
        (directory / "..data_tmp").symlink_to(f"..{number}")
        wait_until(notified.is_set)
        notified.clear()
        (directory / "..data_tmp").rename(directory / "..data")
        assert notified.wait(SOON)
        time.sleep(0.05)  # the events of one change arrive one after the other
        notified.clear()


def test_reading_is_no_change(notifier, directory, notified):
    (directory / "c.yaml").write_text("x")
    assert notified.wait(SOON)
    time.sleep(0.2)
    notified.clear()
    for _ in range(3):
        (directory / "c.yaml").read_text()
        list(directory.iterdir())
    assert not notified.wait(0.3)


def test_what_is_below_is_not_watched(notifier, directory, notified):
    (directory / "sub").mkdir()
    assert notified.wait(SOON)
    time.sleep(0.2)
    notified.clear()
    (directory / "sub" / "deeper").mkdir()
    (directory / "sub" / "file").write_text("x")
    assert not notified.wait(0.3)


def test_a_missing_directory_is_no_error(tmp_path, notified):
    notifier = Notifier(str(tmp_path / "later"))
    assert not notifier.start(notified.set)
    assert (notifier.is_alive, notifier.trouble) == (False, "the directory does not exist")
    assert not notifier.revive()
    (tmp_path / "later").mkdir()
    assert notifier.revive()
    assert (notifier.is_alive, notifier.trouble) == (True, "")
    (tmp_path / "later" / "x").touch()
    assert notified.wait(SOON)
    notifier.stop()


def test_a_vanished_directory_ends_the_watch_and_a_new_one_can_be_watched(notifier, directory, notified):
    """The observer died without a word when its directory went (gorakhargosh/watchdog#869)."""
    directory.rmdir()
    directory.mkdir()
    wait_until(lambda: not notifier.is_alive)  # the new one may have the old one's inode: then the ended watch itself tells
    assert notifier.revive()
    assert notifier.is_alive
    notified.clear()
    (directory / "x").mkdir()
    assert notified.wait(SOON)


def test_a_replaced_directory_is_noticed(notifier, directory, tmp_path):
    directory.rename(tmp_path / "old")
    directory.mkdir()
    assert not notifier.is_alive


def test_a_watch_that_cannot_start_says_why(tmp_path, notified, monkeypatch):
    def refuse():
        raise OSError(24, "inotify instance limit reached")

    monkeypatch.setattr(module, "Observer", refuse)
    notifier = Notifier(str(tmp_path))
    assert not notifier.start(notified.set)
    assert notifier.trouble == "inotify instance limit reached"
    assert not notifier.is_alive


def test_stopping_ends_all_threads_and_hints(tmp_path, notified):
    before = threading.active_count()
    notifier = Notifier(str(tmp_path))
    assert notifier.start(notified.set)
    notifier.stop()
    notifier.stop()
    assert not notifier.is_alive
    assert not notifier.revive()
    wait_until(lambda: threading.active_count() <= before)
    (tmp_path / "x").touch()
    assert not notified.wait(0.1)


def test_a_hung_observer_holds_nobody_up(tmp_path, notified, monkeypatch):
    """An observer hung when its file system was unmounted (gorakhargosh/watchdog#441)."""
    release = threading.Event()
    stop = EventDispatcher.stop

    def hang(self):
        release.wait(SOON)
        stop(self)

    notifier = Notifier(str(tmp_path))
    assert notifier.start(notified.set)
    monkeypatch.setattr(type(notifier._observer), "stop", hang)
    begun = time.monotonic()
    notifier.stop()
    assert time.monotonic() - begun < 2
    release.set()
