"""What a command loads: each pays for what it uses, since the daemon's memory is every node's memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAM = """
import json, sys
from device_plugin.cli import main
try:
    main(json.loads(sys.argv[1]))
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def modules_after(argv: list[str], tmp_path: Path) -> set[str]:
    """The modules loaded by a command, in an interpreter of its own."""
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(argv)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(ROOT)},
        timeout=50,
        check=False,
    )
    return set(json.loads(finished.stderr.splitlines()[-1]))


@pytest.fixture(scope="module")
def running(tmp_path_factory) -> set[str]:
    """`run` on this machine, which has no driver, to its end: all that it needs to serve is loaded by then."""
    directory = tmp_path_factory.mktemp("run")
    return modules_after(
        [
            "run",
            f"--kubelet-socket={directory}/kubelet.sock",
            f"--pod-resources-socket={directory}/pods.sock",
            f"--cdi-directory={directory}",
            f"--driver-root-ctr-path={directory}",
            "--fail-on-init-error",
        ],
        directory,
    )


def test_run_loads_what_serving_needs(running):
    """So that the next test does not pass because `run` came to no beginning."""
    assert {
        "grpc",
        "pynvml",
        "device_plugin.kubelet.servicer",
        "device_plugin.supervisor.reconcile",
    } <= running


@pytest.mark.parametrize(
    "unwanted",
    ["device_plugin.simulation", "device_plugin.cli.reference", "device_plugin.config.schema", "jsonschema", "pytest"],
)
def test_run_on_real_hardware_does_not_load(running, unwanted):
    assert unwanted not in running
    assert not any(name.startswith(f"{unwanted}.") for name in running)


@pytest.mark.parametrize("unwanted", ["grpc", "pynvml", "watchdog", "device_plugin.simulation", "device_plugin.kubelet"])
def test_validate_does_not_load(tmp_path, unwanted):
    (tmp_path / "c.yaml").write_text("version: v1\n")
    loaded = modules_after(["validate", "c.yaml"], tmp_path)
    assert "device_plugin.config.load" in loaded
    assert unwanted not in loaded
