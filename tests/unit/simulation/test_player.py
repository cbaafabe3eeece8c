"""Scripts of faults, and edits of a profile while its node runs."""

from __future__ import annotations

import time

import pytest
import structlog

from device_plugin.simulation.node import SimulatedNode
from device_plugin.simulation.player import Player
from device_plugin.simulation.profile_file import parse_profile
from device_plugin.simulation.script import Lose, Release

PROFILE = """
name: mine
driverVersion: 580.1.2
gpuDefaults: {{ name: NVIDIA A100-SXM4-40GB, memoryMib: 40960, migCapable: true, recoveryAction: none, eccUncorrectable: 0 }}
gpus: [{gpus}]
faults: [{faults}]
"""


class Clock:
    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def play(tmp_path):
    nodes = []

    def make(faults="", gpus="{}, {}"):
        path = tmp_path / "mine.yaml"
        path.write_text(PROFILE.format(gpus=gpus, faults=faults))
        node = SimulatedNode(path, root=tmp_path / "root")
        nodes.append(node)
        clock = Clock()
        content = path.read_bytes()
        return node, Player(node, parse_profile(content, path).faults, path, content, clock), clock, path

    yield make
    for node in nodes:
        node.close()


@pytest.fixture
def logged():
    with structlog.testing.capture_logs() as lines:
        yield lines


def test_steps_are_played_in_time(play):
    """Each step happens once its time has come, whatever their order in the file."""
    node, player, clock, _ = play("{ atSeconds: 20, do: restore, gpu: 1 }, { atSeconds: 10, do: lose, gpu: 1 }")
    player.turn()
    assert not node.gpus[1].lost
    clock.now += 10
    player.turn()
    assert node.gpus[1].lost
    clock.now += 10
    player.turn()
    assert not node.gpus[1].lost
    node.lose(1)
    player.turn()
    assert node.gpus[1].lost


@pytest.mark.parametrize(
    ("step", "holds"),
    [
        ("do: lose, gpu: 0", lambda node: node.gpus[0].lost),
        ("do: repartition, gpu: 0, mig: [3g.20gb]", lambda node: node.gpus[0].mig[0].profile == "3g.20gb"),
        (
            "do: set, gpu: 0, values: { eccUncorrectable: 4, recoveryAction: reset }",
            lambda node: node.gpus[0].ecc_uncorrectable == 4,
        ),
        ("do: unload-driver", lambda node: node.live.machine.driver_version is None),
        ('do: load-driver, version: "590.1"', lambda node: node.live.machine.driver_version == "590.1"),
        ("do: slow, seconds: 0.5", lambda node: node.live.delay_seconds == 0.5),
        (
            "do: answer, call: nvmlDeviceGetName, code: UNKNOWN, gpu: 0, times: 1",
            lambda node: interfered(node, "nvmlDeviceGetName") == 999,
        ),
        ("do: xid, gpu: 0, xid: 79", lambda node: True),
    ],
)
def test_every_kind_of_step(play, step, holds):
    """What can be done by hand can be scripted."""
    node, player, _, _ = play(f"{{ atSeconds: 0, {step} }}")
    heard = []
    node.live.listen(heard.append)
    player.turn()
    assert holds(node)
    assert [(event.data, event.gpu_uuid) for event in heard] == ([(79, node.gpus[0].uuid)] if "xid" in step else [])


def interfered(node, function):
    with node.live.changed:
        return node.live.interfere(function, frozenset({node.gpus[0].uuid}))


def test_hang_and_release(play):
    """A hang holds a call until its release."""
    node, player, clock, _ = play("{ atSeconds: 0, do: hang, call: nvmlDeviceGetName }, { atSeconds: 1, do: release }")
    player.turn()
    assert node.live.hangs("nvmlDeviceGetName", frozenset())
    clock.now += 1
    player.turn()
    assert not node.live.hangs("nvmlDeviceGetName", frozenset())


def test_a_step_that_does_not_fit_is_passed_over(play):
    """GPU 9 of 2 is a mistake in the script; the steps after it are played."""
    node, player, _, _ = play("{ atSeconds: 0, do: lose, gpu: 9 }, { atSeconds: 0, do: lose, gpu: 0 }")
    player.turn()
    assert node.gpus[0].lost


class OurMistake(Release):
    def play(self, node):
        raise TypeError(f"{node.name} is no number")


def test_whatever_a_step_raises_the_next_is_played(play, logged):
    """A mistake in the simulation itself is logged, with its kind, and the player goes on."""
    node, _, clock, _ = play()
    steps = [OurMistake(do="release", at_seconds=0), Lose(do="lose", gpu=0, at_seconds=0)]
    player = Player(node, steps, clock=clock)
    player.turn()
    assert node.gpus[0].lost
    assert [entry["error"] for entry in logged if entry["event"] == "fault.failed"] == ["TypeError: mine is no number"]


def test_an_edit_is_followed(play):
    """The edited file is what the node is now: a GPU more, another in MIG mode; those that stay keep their UUID."""
    node, player, _, path = play()
    before = [gpu.uuid for gpu in node.gpus]
    path.write_text(PROFILE.format(gpus="{}, { migEnabled: true, mig: [1g.5gb] }, {}", faults=""))
    player.turn()
    assert [gpu.uuid for gpu in node.gpus][:2] == before
    assert [len(gpu.mig) for gpu in node.gpus] == [0, 1, 0]
    assert len(node.host.nvidia_gpus()) == 3


def test_a_broken_edit_changes_nothing(play):
    """While the file is no profile, or away, the node stays as it was; the next good one counts."""
    node, player, _, path = play()
    path.write_text("gpus: {")
    player.turn()
    assert len(node.gpus) == 2
    path.unlink()
    player.turn()
    assert len(node.gpus) == 2
    path.write_text(PROFILE.format(gpus="{}", faults=""))
    player.turn()
    assert len(node.gpus) == 1


@pytest.mark.parametrize(
    "edit",
    [
        PROFILE.format(gpus="{}", faults="").encode() + b"description: \xe9\n",
        PROFILE.format(gpus="{}", faults="").encode() + b"description: 2020-13-45\n",
        PROFILE.format(gpus="{}", faults="").encode() + b"deviceNodes: [/dev/nvidiactl/below]\n",
    ],
    ids=["not UTF-8", "a date that there is not", "a node below a node"],
)
def test_an_edit_that_cannot_be_followed_is_logged_once(play, logged, edit):
    """The node stays as it was, and the player goes on."""
    node, player, _, path = play()
    path.write_bytes(edit)
    player.turn()
    player.turn()
    assert len(node.gpus) == 2
    assert len([entry for entry in logged if entry["log_level"] == "error"]) == 1
    path.write_text(PROFILE.format(gpus="{}", faults=""))
    player.turn()
    assert len(node.gpus) == 1


def test_an_unchanged_file_does_not_undo_faults(play):
    """Only an edit makes the file the truth again; being written anew with the same content is none."""
    node, player, _, path = play()
    node.lose(0)
    path.write_text(path.read_text())
    player.turn()
    assert node.gpus[0].lost


def test_steps_added_by_an_edit(play):
    """An edit may bring further steps; those whose time is past are not played late."""
    node, player, clock, path = play()
    clock.now += 10
    player.turn()
    path.write_text(PROFILE.format(gpus="{}, {}", faults="{ atSeconds: 5, do: lose, gpu: 0 }, { atSeconds: 15, do: lose, gpu: 1 }"))
    player.turn()
    clock.now += 5
    player.turn()
    assert [gpu.lost for gpu in node.gpus] == [False, True]


def test_a_node_plays_by_itself(tmp_path):
    """Operators could not break a GPU to try what follows (NVIDIA/k8s-device-plugin#502): a script does, in a thread of its own."""
    path = tmp_path / "mine.yaml"
    path.write_text(PROFILE.format(gpus="{}, {}", faults="{ atSeconds: 0, do: lose, gpu: 1 }"))
    node = SimulatedNode(path, root=tmp_path / "root")
    node.play()
    deadline = time.monotonic() + 10
    while not node.gpus[1].lost and time.monotonic() < deadline:
        time.sleep(0.01)
    node.close()
    assert node.gpus[1].lost


@pytest.mark.parametrize("saved", [lambda text: text.encode(), lambda text: b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode()])
def test_an_edit_between_loading_and_playing_is_followed(tmp_path, saved):
    """What counts as known of the file is what was read, byte for byte, when the node was made, and not what stands there later."""
    path = tmp_path / "mine.yaml"
    path.write_bytes(saved(PROFILE.format(gpus="{}", faults="")))
    node = SimulatedNode(path, root=tmp_path / "root")
    node.add_gpu()
    node.play()
    time.sleep(2 * Player.POLL_SECONDS)
    unedited = len(node.gpus)
    node.close()

    node = SimulatedNode(path, root=tmp_path / "root")
    path.write_bytes(saved(PROFILE.format(gpus="{}, {}, {}", faults="{ atSeconds: 0, do: lose, gpu: 2 }")))
    node.play()
    deadline = time.monotonic() + 10
    while not node.gpus[-1].lost and time.monotonic() < deadline:
        time.sleep(0.01)
    node.close()
    assert unedited == 2
    assert [gpu.lost for gpu in node.gpus] == [False, False, True]
