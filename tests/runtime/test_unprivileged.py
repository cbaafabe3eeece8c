"""The process with what the manifest leaves it: root's user ID, no capability, no way to gain one, no file that it may write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

# Others than root have no capability to begin with, and may not touch the bounding set.
NO_CAPABILITIES = ("setpriv", "--no-new-privs", *(("--bounding-set=-all", "--inh-caps=-all") if os.geteuid() == 0 else ()))
DEADLINE_SECONDS = 30


@pytest.fixture
def start(tmp_path):
    """A function that starts a command of the package, its log in a file; what still runs at the end is killed."""
    started: list[subprocess.Popen[bytes]] = []

    def start_command(name: str, *words: str, prefix: tuple[str, ...] = ()) -> tuple[subprocess.Popen[bytes], Path]:
        log = tmp_path / f"{name}.log"
        (tmp_path / "scratch").mkdir(exist_ok=True)
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "device_plugin", *words],
                stdout=file,
                stderr=file,
                env={**os.environ, "TMPDIR": str(tmp_path / "scratch")},
            )
        started.append(process)
        return process, log

    yield start_command
    for process in started:
        if process.poll() is None:
            process.kill()
            process.wait(timeout=10)


@pytest.fixture
def sockets():
    """A directory like kubelet's, with a path short enough for the sockets in it."""
    with tempfile.TemporaryDirectory(prefix="gdp-") as name:
        Path(name).chmod(0o750)
        yield Path(name)


def wait_for(log: Path, text: str) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while text not in log.read_text():
        assert time.monotonic() < deadline, f"{text!r} did not appear in the log:\n{log.read_text()}"
        time.sleep(0.05)


@pytest.mark.requires("setpriv")
def test_it_serves_without_any_capability(start, sockets):
    """Policies that forbid privileges are no obstacle: NVIDIA/k8s-device-plugin#167,
    intel/intel-device-plugins-for-kubernetes#1841."""
    _, kubelet_log = start("kubelet", "kubelet", str(sockets))
    wait_for(kubelet_log, "kubelet.started")

    words = ("run", "--simulate=t4", f"--kubelet-socket={sockets / 'kubelet.sock'}", "--log-format=json")
    plugin, plugin_log = start("plugin", *words, prefix=NO_CAPABILITIES)
    wait_for(plugin_log, "plugin.became_ready")

    status = dict(line.split(":\t", 1) for line in Path(f"/proc/{plugin.pid}/status").read_text().splitlines() if ":\t" in line)
    assert {name: int(status[name], 16) for name in ("CapEff", "CapPrm")} == {"CapEff": 0, "CapPrm": 0}
    assert status["NoNewPrivs"] == "1"
    plugin.send_signal(signal.SIGTERM)
    assert plugin.wait(timeout=5) == 0


# In a mount namespace of its own: everything read-only but the directories named before `--`, as mounts of their own are.
READ_ONLY = """
while [ "$1" != -- ]; do mount --bind "$1" "$1"; writable="$writable $1"; shift; done; shift
awk '{print $5}' /proc/self/mountinfo | while read -r point; do
    case " $writable " in *" $point "*) ;; *) mount -o remount,bind,ro "$point" 2>/dev/null;; esac
done
touch "$0" 2>/dev/null && exit 3
exec "$@"
"""


@pytest.mark.requires("unshare", "setpriv")
def test_it_serves_from_a_read_only_root(start, sockets, tmp_path):
    """Beside its sockets it writes nothing, but for a simulated node's files: policies ask for a root file system that nobody
    changes (NVIDIA/k8s-device-plugin#232, intel/intel-device-plugins-for-kubernetes#1841)."""
    _, kubelet_log = start("kubelet", "kubelet", str(sockets))
    wait_for(kubelet_log, "kubelet.started")

    untouchable = tmp_path / "untouchable"
    untouchable.touch()
    namespace = ("unshare", "--mount", "--propagation=private", "sh", "-c", READ_ONLY, str(untouchable))
    prefix = (*namespace, str(sockets), str(tmp_path / "scratch"), "--", *NO_CAPABILITIES)
    words = ("run", "--simulate=t4", f"--kubelet-socket={sockets / 'kubelet.sock'}", "--log-format=json")
    plugin, plugin_log = start("plugin", *words, prefix=prefix)
    wait_for(plugin_log, "plugin.became_ready")
    wait_for(kubelet_log, '"healthy": 4')

    plugin.send_signal(signal.SIGTERM)
    assert plugin.wait(timeout=5) == 0
    assert '"level": "error"' not in plugin_log.read_text()
    written = [path for path in sockets.iterdir() if path.name.startswith("gpu-device-plugin")]
    assert not [path for path in written if path.suffix == ".sock"]
