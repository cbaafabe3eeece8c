"""What every test folder shares: the marker for programs that may be missing, and gRPC and asyncio as the plugin has them."""

from __future__ import annotations

import asyncio
import os
import shutil

# Read when gRPC is imported: its fork handlers abort children that are started while it runs (grpc/grpc#13873).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import grpc.aio
import pytest
import structlog

# gRPC's asyncio machinery ends with its last object, by joining a thread of its own, and starts anew with the next one. Between
# tests that comes whenever garbage is collected, and the join was seen to hang in some other test. Held once, it never ends.
grpc.aio.init_grpc_aio()

# looptime asks for the current event loop before every test; where none was ever set, Python before 3.14 makes one that stays open.
asyncio.set_event_loop(None)


def pytest_xdist_auto_num_workers() -> int:
    """Two for each processor: most tests wait more than they compute."""
    return 2 * len(os.sched_getaffinity(0))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose program is missing, saying which; where CI is set that is a failure, so that nothing is skipped unseen."""
    missing = [program for marker in item.iter_markers("requires") for program in marker.args if shutil.which(program) is None]
    if not missing:
        return
    reason = f"needs {', '.join(missing)}, not found on PATH"
    if os.environ.get("CI"):
        pytest.fail(f"{reason}; CI must install it", pytrace=False)
    pytest.skip(reason)


@pytest.fixture(autouse=True)
def _logs_of_its_own():
    """A test that has set up the logs leaves them writing to a stream that is closed by the next one."""
    yield
    structlog.reset_defaults()
