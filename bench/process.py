"""A process under measurement: its start, memory, CPU time, threads and descriptors, as Linux counts them in /proc."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Sequence

REPOSITORY = Path(__file__).parents[1]
END_SECONDS = 15.0
# Where a simulated node's /sys, /proc and /dev stand: a real node's are in memory too, and no plugin writes them at its start.
MEMORY_FILES = Path("/dev/shm")


class BenchFailed(Exception):
    """Something could not be measured; the text says what, with the end of the process's log."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process holds now. PSS counts a page shared by n processes as 1/n of a page."""

    rss_mib: float
    pss_mib: float
    cpu_seconds: float
    threads: int
    descriptors: int
    wakeups: int


class Measured:
    """One process, from its start. Times are the running loop's; its standard error is `log`."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path, started_at: float) -> None:
        self.pid = process.pid
        self.log = log
        self.started_at = started_at
        self._process = process

    @classmethod
    async def start(cls, module: str, arguments: Sequence[str], log: Path) -> Self:
        """Run `python -m module` with this interpreter.

        It gets an environment of its own: no variable of ours may be taken for configuration, and byte-code is written and used.
        """
        environment = {"PATH": os.environ.get("PATH", os.defpath), "PYTHONPATH": str(REPOSITORY)}
        if os.access(MEMORY_FILES, os.W_OK):
            environment["TMPDIR"] = str(MEMORY_FILES)
        with log.open("wb") as output:
            started_at = asyncio.get_running_loop().time()
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                module,
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
            )
        return cls(process, log, started_at)

    def usage(self) -> Usage:
        """Memory, CPU time and so on, now. Raises `BenchFailed` if the process has ended."""
        proc = Path("/proc") / str(self.pid)
        try:
            memory = dict(line.split()[:2] for line in (proc / "smaps_rollup").read_text().splitlines()[1:])
            fields = (proc / "stat").read_text().rpartition(")")[2].split()
            tasks = sorted((proc / "task").iterdir())
            wakeups = sum(_voluntary_switches((task / "status").read_text()) for task in tasks)
            descriptors = len(list((proc / "fd").iterdir()))
        except OSError as error:
            raise BenchFailed(f"the process has ended: {error}\n{self.log_tail()}") from error
        return Usage(
            rss_mib=int(memory["Rss:"]) / 1024,
            pss_mib=int(memory["Pss:"]) / 1024,
            cpu_seconds=(int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"),
            threads=len(tasks),
            descriptors=descriptors,
            wakeups=wakeups,
        )

    async def wait_ended(self) -> None:
        """Wait until the process is gone."""
        await self._process.wait()

    async def end(self) -> float:
        """SIGTERM, and the seconds until it was gone. Raises `BenchFailed` if it does not go."""
        loop = asyncio.get_running_loop()
        asked_at = loop.time()
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), END_SECONDS)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
            raise BenchFailed(f"the process did not end within {END_SECONDS:g} s of SIGTERM\n{self.log_tail()}") from None
        return loop.time() - asked_at

    def log_tail(self, lines: int = 15) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])

    async def wait_logged(self, text: str, count: int = 1, timeout_seconds: float = 60.0) -> None:
        """Wait until the log has `text` so many times. Raises `BenchFailed`."""
        try:
            async with asyncio.timeout(timeout_seconds):
                while self.log.read_text(errors="replace").count(text) < count:
                    if self._process.returncode is not None:
                        raise BenchFailed(f"the process has ended\n{self.log_tail()}")
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise BenchFailed(f"no {text!r} in the log within {timeout_seconds:g} s\n{self.log_tail()}") from None


def _voluntary_switches(status: str) -> int:
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt_switches"))
