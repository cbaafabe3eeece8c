"""What every test folder shares: the marker for programs that may be missing."""

from __future__ import annotations

import os
import shutil

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test whose program is missing, saying which; where CI is set that is a failure, so that nothing is skipped unseen."""
    missing = [program for marker in item.iter_markers("requires") for program in marker.args if shutil.which(program) is None]
    if not missing:
        return
    reason = f"needs {', '.join(missing)}, not found on PATH"
    if os.environ.get("CI"):
        pytest.fail(f"{reason}; CI must install it", pytrace=False)
    pytest.skip(reason)
