"""Short paths, logs that are kept, and values to serve."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path

# Read when gRPC is imported: its fork handlers abort children that are started while it runs (grpc/grpc#13873).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
os.environ.setdefault("GRPC_VERBOSITY", "ERROR")

import pytest
import structlog

# looptime asks for the current event loop before every test; where none was ever set, Python before 3.14 makes one that stays open.
asyncio.set_event_loop(None)


@pytest.fixture
def root():
    """A directory with a short path: pytest's own would leave no room for a socket's name."""
    with tempfile.TemporaryDirectory(prefix="gdp-") as path:
        yield Path(path)


@pytest.fixture
def captured():
    """The entries that `logger` was told."""
    return []


@pytest.fixture
def logger(captured):
    capture = structlog.testing.LogCapture()
    capture.entries = captured
    return structlog.wrap_logger(None, processors=[capture], wrapper_class=structlog.make_filtering_bound_logger(0))
