"""The script that CI runs: the README's command, and nothing that is skipped unseen."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.fixture
def script(root) -> Path:
    return root / ".ci" / "run"


def test_it_is_a_clean_executable_script(script):
    assert os.access(script, os.X_OK)
    checker = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([checker, script], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout


def test_it_stops_at_the_first_failure(script):
    assert "\nset -euo pipefail\n" in script.read_text()


def test_it_runs_the_readmes_test_command_and_the_checks_with_ci_set(script, tmp_path):
    """Run for real, with a make that only says what it was asked for."""
    make = tmp_path / "make"
    make.write_text('#!/bin/sh\necho "make $* CI=$CI PYTHON=$PYTHON"\n')
    for program in ("gcc", "podman", "kubectl", "apt-get"):
        (tmp_path / program).write_text("#!/bin/sh\n")
        (tmp_path / program).chmod(0o755)
    make.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "PYTHON": sys.executable}
    done = subprocess.run([script], check=True, capture_output=True, text=True, timeout=60, env=environment, cwd="/")
    assert done.stdout.splitlines() == [f"make {target} CI=true PYTHON={sys.executable}" for target in ("test", "check")]


def test_it_installs_what_is_missing_before_anything_is_run(script, tmp_path):
    """On a bare machine, where none of the programs is found and dpkg knows none of the packages."""
    for program in ("apt-get", "make"):
        (tmp_path / program).write_text(f'#!/bin/sh\necho "{program} $*"\n')
    (tmp_path / "dpkg-query").write_text("#!/bin/sh\nexit 1\n")
    for program in ("bash", "dirname"):
        (tmp_path / program).symlink_to(Path("/usr/bin") / program)
    for program in ("apt-get", "make", "dpkg-query"):
        (tmp_path / program).chmod(0o755)
    environment = {"PATH": str(tmp_path), "PYTHON": "python3"}
    done = subprocess.run(["/bin/bash", script], check=True, capture_output=True, text=True, timeout=60, env=environment)
    update, install, *rest = done.stdout.splitlines()
    assert update.startswith("apt-get update")
    assert set(install.split()) >= {
        *("--no-install-recommends", "gcc", "libc6-dev", "kubernetes-client", "podman", "runc", "busybox-static"),
        *("python3", "python3-venv"),
    }
    assert rest == ["make test", "make check"]
