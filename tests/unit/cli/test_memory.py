"""What the process has freed is the node's again."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Freeing one large block makes glibc take the next ones from its heap, where one small block above them keeps them all.
GROWN_MIB = """
import sys
from device_plugin.cli.run import give_memory_back


def resident_mib():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) / 256


if sys.argv[1] == "True":
    give_memory_back()
large = b"x" * (30 << 20)
del large
before = resident_mib()
blocks = [b"x" * (2 << 20) for _ in range(20)]
above = [b"x" * 2000 for _ in range(200)]
del blocks
print(resident_mib() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="about glibc's malloc")
@pytest.mark.parametrize(("is_asked_to", "keeps"), [(False, True), (True, False)])
def test_freed_lists_are_given_back(is_asked_to, keeps):
    """After some lists of thousands of devices the process kept 25 MiB on every node. Without being asked glibc keeps them."""
    finished = subprocess.run([sys.executable, "-c", GROWN_MIB, str(is_asked_to)], capture_output=True, text=True, check=True)
    assert (float(finished.stdout) > 30) is keeps
