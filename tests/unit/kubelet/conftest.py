"""Short paths, logs that are kept, and values to serve."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import structlog


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
