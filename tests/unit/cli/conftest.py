"""Commands as a user runs them: in this process for their text and status, as processes of their own where signals matter."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest
import structlog

from device_plugin.cli import main

ROOT = Path(__file__).parents[3]
OWN_VARIABLES = ("COVERAGE_", "COV_CORE_", "PYTEST_")


@dataclass(frozen=True)
class Finished:
    """What a command left: its exit status and both streams."""

    status: int
    out: str
    err: str


@pytest.fixture(scope="session")
def short_root():
    """A directory with a short path: pytest's own, one for each of its processes, leaves no room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="gdp-") as path:
        yield path


@pytest.fixture
def tmp_path(short_root):
    """Removed at the end of all tests, not of one that has patched what removing needs."""
    return Path(tempfile.mkdtemp(dir=short_root, prefix=""))


@pytest.fixture
def bare_environment(monkeypatch):
    """No variable of the machine is taken for an option."""
    for name in list(os.environ):
        if not name.startswith(OWN_VARIABLES) and name not in ("PATH", "HOME", "TMPDIR"):
            monkeypatch.delenv(name)


@pytest.fixture
def run_command(capsys, monkeypatch, bare_environment):
    """Runs a command in this process: `run_command("plan", "-o", "json", environment={...})`."""
    before = structlog.get_config()

    def run(*argv: str, environment: dict[str, str] | None = None) -> Finished:
        for name, value in (environment or {}).items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        with contextlib.suppress(RuntimeError):
            # A plugin asks for the main thread's loop before each test and so makes one, which asyncio.run would drop unclosed.
            asyncio.get_event_loop_policy().get_event_loop().close()
        try:
            status = main(argv)
        except SystemExit as ended:
            status = ended.code
        out, err = capsys.readouterr()
        return Finished(status, out, err)

    yield run
    structlog.configure(**before)


@pytest.fixture
def start_process(tmp_path):
    """Starts a command as a process of its own: `start_process("run", "--simulate", "t4")`; it is gone when the test ends."""
    started = []

    def start(*argv: str, environment: dict[str, str] | None = None) -> subprocess.Popen[str]:
        own = {name: value for name, value in os.environ.items() if name.startswith(OWN_VARIABLES)}
        process = subprocess.Popen(
            [sys.executable, "-m", "device_plugin", *argv],
            cwd=tmp_path,
            env=own | {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)} | (environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
