"""What a reading that fails for one GPU leaves of the Inventory."""

import pytest

from device_plugin.errors import DriverError, GpuLost, NotSupported
from device_plugin.hardware.driver import DriverFacts
from device_plugin.hardware.model import Gpu, Inventory, Link, Platform, UnreadableGpu
from device_plugin.hardware.sysfs import Host
from device_plugin.supervisor.discovery import Progress, keep_last_known, read_inventory, readable_gpus, without_kept


def gpus(*indexes):
    return tuple(Gpu(index, f"GPU-{index}", "GPU") for index in indexes)


def links(*indexes):
    return tuple(Link(a, b) for a in indexes for b in indexes if a != b)


FULL = Inventory(gpus(0, 1, 2), links=links(0, 1, 2))


class Reader:
    def __init__(self, **errors):
        self.errors = errors

    def read_gpu(self, index):
        if error := self.errors.get(f"gpu{index}"):
            raise error
        return Gpu(index, f"GPU-{index}", "GPU")

    def read_links(self, found):
        return links(*(gpu.index for gpu in found))


def read(driver, tmp_path, **options):
    facts = DriverFacts("1", None, 3)
    return read_inventory(driver, facts, Host(tmp_path), lambda _: Platform.NVML, simulated=False, **options)


@pytest.mark.parametrize("error", [GpuLost("c", "GPU is lost"), DriverError("c", "unknown error")])
def test_a_gpu_that_cannot_be_read_takes_out_one_gpu(tmp_path, error):
    inventory = read(Reader(gpu1=error), tmp_path)
    assert [gpu.index for gpu in inventory.gpus] == [0, 2]
    assert inventory.unreadable == (UnreadableGpu(1, str(error)),)


def test_a_device_that_is_not_for_computing_is_passed_over(tmp_path):
    inventory = read(Reader(gpu1=NotSupported("c", "a display")), tmp_path)
    assert [gpu.index for gpu in inventory.gpus] == [0, 2]
    assert inventory.unreadable == ()


def test_what_must_not_be_asked_is_unreadable_and_progress_is_told(tmp_path):
    progress = Progress()
    inventory = read(Reader(gpu2=AssertionError("asked")), tmp_path, skipped={2: "hangs"}, progress=progress)
    assert inventory.unreadable == (UnreadableGpu(2, "hangs"),)
    assert progress == Progress(None, {"GPU-0": 0, "GPU-1": 1})


def test_progress_stays_where_the_reading_stopped(tmp_path):
    progress = Progress()
    with pytest.raises(AssertionError):
        read(Reader(gpu1=AssertionError("stuck")), tmp_path, progress=progress)
    assert progress.index == 1


def test_a_gpu_that_is_lost_stays_as_it_was_known():
    now = Inventory(gpus(0, 2), unreadable=(UnreadableGpu(1, "GPU is lost"),), links=links(0, 2))
    kept = keep_last_known(now, FULL)
    assert kept.gpus == FULL.gpus
    assert kept.links == FULL.links
    assert kept.unreadable == (UnreadableGpu(1, "GPU is lost", "GPU-1"),)
    assert readable_gpus(kept) == gpus(0, 2)
    assert without_kept(kept).unreadable == ()


def test_keeping_is_lasting():
    now = Inventory(gpus(0, 2), unreadable=(UnreadableGpu(1, "GPU is lost"),), links=links(0, 2))
    assert keep_last_known(now, keep_last_known(now, FULL)) == keep_last_known(now, FULL)


@pytest.mark.parametrize(
    "last",
    [None, Inventory(gpus(0, 2)), Inventory((Gpu(1, "GPU-2", "GPU"), *gpus(0)))],
    ids=["nothing known", "index not known", "known at another index now"],
)
def test_a_gpu_nobody_can_name_stays_nameless(last):
    now = Inventory(gpus(0, 2), unreadable=(UnreadableGpu(1, "GPU is lost"),))
    assert keep_last_known(now, last) == now


def test_a_gpu_that_is_gone_is_not_kept():
    now = Inventory(gpus(0, 2))
    assert keep_last_known(now, FULL) is now
