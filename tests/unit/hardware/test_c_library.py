"""Discovery and event wait over a real shared library: C does not forgive what a Python double would."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

STUB = Path(__file__).with_name("stub_nvml.c")

# In a process of its own: a library that is loaded stays loaded.
PROGRAM = """
import json, sys, threading, time
from dataclasses import asdict
from pathlib import Path
from device_plugin.hardware.library import load_library
from device_plugin.hardware.nvml import NvmlDriver

loaded = load_library(Path(sys.argv[1]))
driver = NvmlDriver()
facts = driver.open()
gpus = [driver.read_gpu(index) for index in range(facts.gpu_count)]
links = driver.read_links(gpus)
probe = driver.probe(gpus[1].uuid)
source = driver.watch([gpu.uuid for gpu in gpus])
event = source.wait(1)
turns = 0
waiter = threading.Thread(target=source.wait, args=(0.3,))
waiter.start()
while waiter.is_alive():
    time.sleep(0.01)
    turns += 1
print(json.dumps({
    "path": str(loaded.path), "facts": asdict(facts),
    "gpus": [asdict(gpu) for gpu in gpus], "links": [asdict(link) for link in links],
    "ecc": probe.ecc_uncorrectable, "remap": probe.remap_pending, "unknown": probe.unknown,
    "event": asdict(event), "unwatched": source.unwatched, "turns": turns,
}))
"""


def build(target: Path, *options: str) -> None:
    target.parent.mkdir(parents=True)
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Werror", *options, "-o", str(target), str(STUB)], check=True)


def run(program: str, root: Path) -> subprocess.CompletedProcess:
    repository = STUB.parents[3]
    command = [sys.executable, "-c", program, str(root)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=repository)


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    root = tmp_path_factory.mktemp("driver-root")
    build(root / "usr/lib64/libnvidia-ml.so.580.1.2", "-Wl,-soname,libnvidia-ml.so.1")
    (root / "usr/lib64/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.1.2")
    done = run(PROGRAM, root)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"root": str(root)}


@pytest.mark.requires("gcc")
def test_the_library_under_the_driver_root_is_the_one_used(answers):
    """Loading by full path makes the binding, which knows only the bare name, use that file; links are resolved."""
    assert answers["path"] == f"{answers['root']}/usr/lib64/libnvidia-ml.so.580.1.2"
    assert answers["facts"] == {"driver_version": "580.1.2", "cuda_version": [12, 4], "gpu_count": 2}


@pytest.mark.requires("gcc")
def test_discovery_through_c(answers):
    """Handles, text, structures and counts pass the boundary to C unharmed."""
    first, second = answers["gpus"]
    assert (first["name"], first["memory_bytes"], first["minor"], first["mig_capable"]) == ("Stub GPU", None, 4, False)
    assert (second["uuid"], second["pci_bus_id"], second["memory_bytes"]) == (
        "GPU-00000000-0000-0000-0000-00000000000b",
        "0000000F:02:00.0",
        40 * 2**30,
    )
    assert (second["compute_capability"], second["compute_mode"], second["faults"]) == ([12, 1], None, [])
    (mig,) = second["mig_devices"]
    assert (mig["uuid"], mig["index"], mig["profile"]) == ("MIG-00000000-0000-0000-0000-00000000000c", 2, "1g.5gb")
    assert (mig["gpu_instance_id"], mig["compute_instance_id"], mig["attributes"]["memory_size_mib"]) == (9, 0, 4864)
    assert [(link["source"], link["target"], link["ancestor"]) for link in answers["links"]] == [(0, 1, 30), (1, 0, 30)]


@pytest.mark.requires("gcc")
def test_probe_through_c(answers):
    """64-bit counters arrive whole; functions that the library lacks are properties that are not there."""
    assert (answers["ecc"], answers["remap"], answers["unknown"]) == (2**40, None, [])


@pytest.mark.requires("gcc")
def test_events_through_c(answers):
    """An XID arrives, and waiting for the next one leaves other threads running."""
    assert answers["event"] == {
        "xid": 79,
        "gpu_uuid": "GPU-00000000-0000-0000-0000-00000000000b",
        "gpu_instance_id": None,
        "compute_instance_id": None,
    }
    assert answers["unwatched"] == {}
    assert answers["turns"] > 5


@pytest.mark.requires("gcc")
def test_a_library_of_another_name_is_refused(tmp_path):
    """A file whose SONAME is not that of the management library would not be used by the binding: that is said, not passed over."""
    build(tmp_path / "usr/lib64/libnvidia-ml.so.1", "-Wl,-soname,libother.so.1")
    done = run(PROGRAM, tmp_path)
    assert done.returncode == 1
    assert "SONAME is not libnvidia-ml.so.1" in done.stderr
