"""Files appear whole, change only when they differ, and keep every name a pod may hold."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from device_plugin.cdi import CdiOptions, build_specs, check_names, list_devices, write_specs

PREFIX = "k8s.device-plugin.nvidia.com"
GPU_FILE = f"{PREFIX}-gpu.json"


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "cdi"


def names(path: Path) -> list[str]:
    return [device["name"] for device in json.loads(path.read_text())["devices"]]


def qualified(name: str) -> str:
    return f"{PREFIX}/gpu={name}"


def test_files_are_readable_by_all_and_nothing_else_is_left(inventory, roots, options, directory):
    """The runtime is not always root; a temporary file would be read as another specification."""
    written = write_specs(build_specs(inventory, roots, options).specs, directory, still_named=())
    assert written.changed == (directory / GPU_FILE,)
    assert written.failures == {}
    assert [path.name for path in directory.iterdir()] == [GPU_FILE]
    assert (directory / GPU_FILE).stat().st_mode & 0o777 == 0o644


def test_the_same_content_is_not_written_again(inventory, roots, options, directory):
    """Runtimes read the directory anew on every change."""
    specs = build_specs(inventory, roots, options).specs
    write_specs(specs, directory, still_named=())
    before = (directory / GPU_FILE).stat()
    assert write_specs(specs, directory, still_named=()).changed == ()
    assert (directory / GPU_FILE).stat().st_ino == before.st_ino


def test_a_driver_upgrade_is_followed(inventory, tree, roots, options, directory):
    """Libraries of the old version would no longer work with the new kernel driver."""
    write_specs(build_specs(inventory, roots, options).specs, directory, still_named=None)
    tree.driver("570.86.10")
    (tree.root / "usr/lib64/libcuda.so.550.163.01").unlink()
    upgraded = build_specs(replace(inventory, driver_version="570.86.10"), roots, options)
    assert write_specs(upgraded.specs, directory, still_named=None).changed == (directory / GPU_FILE,)
    assert "550.163.01" not in (directory / GPU_FILE).read_text()


def test_the_name_of_a_mig_device_stays_while_a_pod_holds_it(mig_inventory, inventory, roots, options, directory, validate):
    """Its container may start again after the GPU was repartitioned; kubelet gives it the old answer."""
    held, free = (mig.uuid for mig in mig_inventory.gpus[0].mig_devices)
    write_specs(build_specs(mig_inventory, roots, options).specs, directory, still_named=())
    write_specs(build_specs(inventory, roots, options).specs, directory, still_named={qualified(held)})
    assert {held, "0:0"} <= set(names(directory / GPU_FILE))
    assert not {free, "0:1"} & set(names(directory / GPU_FILE))
    validate(json.loads((directory / GPU_FILE).read_text()))
    write_specs(build_specs(inventory, roots, options).specs, directory, still_named=())
    assert held not in names(directory / GPU_FILE)


def test_nothing_goes_while_nobody_can_tell_who_holds_what(mig_inventory, inventory, roots, options, directory):
    """Without kubelet's pod-resources socket every earlier name is kept."""
    write_specs(build_specs(mig_inventory, roots, options).specs, directory, still_named=None)
    earlier = set(names(directory / GPU_FILE))
    write_specs(build_specs(inventory, roots, options).specs, directory, still_named=None)
    assert earlier < set(names(directory / GPU_FILE))


@pytest.mark.parametrize("was_written", [True, False])
def test_a_whole_gpu_stays_named_in_mig_mode_for_its_holder(
    was_written, mig_inventory, inventory, roots, options, directory, documents
):
    """Also after a reboot, which empties the directory; it does not bring its MIG devices, which others hold."""
    gpu = inventory.gpus[0].uuid
    if was_written:
        write_specs(build_specs(inventory, roots, options).specs, directory, still_named=())
    write_specs(build_specs(mig_inventory, roots, options).specs, directory, still_named={qualified(gpu)})
    (device,) = [d for d in json.loads((directory / GPU_FILE).read_text())["devices"] if d["name"] == gpu]
    assert [node["path"] for node in device["containerEdits"]["deviceNodes"]] == ["/dev/nvidia0"]
    write_specs(build_specs(mig_inventory, roots, options).specs, directory, still_named=())
    assert gpu not in names(directory / GPU_FILE)


def test_a_class_that_no_longer_applies_goes_with_its_last_holder(inventory, roots, options, directory, validate):
    """That is also what switching CDI off does: no specification is wanted any more."""
    gpu = inventory.gpus[0].uuid
    write_specs(build_specs(inventory, roots, options).specs, directory, still_named=())
    written = write_specs((), directory, still_named={qualified(gpu)})
    assert written.changed == (directory / GPU_FILE,)
    assert names(directory / GPU_FILE) == ["0", gpu]
    validate(json.loads((directory / GPU_FILE).read_text()))
    assert write_specs((), directory, still_named=None).removed == ()
    assert write_specs((), directory, still_named=()).removed == (directory / GPU_FILE,)
    assert list(directory.iterdir()) == []


def test_files_of_others_are_left_alone(inventory, roots, options, directory):
    """Another kind of the same directory, and another prefix of the same plugin."""
    directory.mkdir()
    others = [directory / "nvidia.yaml", directory / "example.com-gpu.json"]
    for path in others:
        path.write_text("{}")
    write_specs(build_specs(inventory, roots, options).specs, directory, still_named=())
    write_specs((), directory, still_named=())
    assert [path.read_text() for path in others] == ["{}", "{}"]


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "{",
        "[]",
        '{"kind": "x/y"}',
        '{"kind": "k8s.device-plugin.nvidia.com/gpu", "devices": 5}',
        '{"kind": "k8s.device-plugin.nvidia.com/gpu", "devices": [5, {"name": "a"}, {"name": "b", "containerEdits": {}}]}',
    ],
)
def test_a_broken_file_is_replaced(broken, inventory, roots, options, directory):
    """Nothing can be kept from it, and no runtime could read it."""
    directory.mkdir()
    (directory / GPU_FILE).write_text(broken)
    assert write_specs(build_specs(inventory, roots, options).specs, directory, still_named=None).changed
    assert names(directory / GPU_FILE) == sorted(name for gpu in inventory.gpus for name in (gpu.uuid, str(gpu.index)))


def test_a_file_that_cannot_be_written_names_its_devices(inventory, roots, options, tmp_path):
    """The devices get a cause; the process goes on, and the other classes are written."""
    (tmp_path / "file").write_text("not a directory")
    written = write_specs(build_specs(inventory, roots, options).specs, tmp_path / "file/cdi", still_named=())
    assert set(written.failures) == {qualified(name) for gpu in inventory.gpus for name in (gpu.uuid, str(gpu.index))}
    assert all("cannot be written" in reason for reason in written.failures.values())


def test_a_failure_leaves_the_old_file_whole(inventory, mig_inventory, roots, options, directory, monkeypatch):
    """A full disk must not leave half a specification, which would fail every container."""
    write_specs(build_specs(inventory, roots, options).specs, directory, still_named=())
    before = (directory / GPU_FILE).read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    written = write_specs(build_specs(mig_inventory, roots, options).specs, directory, still_named=())
    assert (directory / GPU_FILE).read_bytes() == before
    assert [path.name for path in directory.iterdir()] == [GPU_FILE]
    assert "No space left on device" in written.failures[qualified("0:0")]


def test_every_name_allocate_can_return_is_in_the_file(mig_inventory, roots, directory):
    """Under both id strategies, before anything is registered."""
    write_specs(build_specs(mig_inventory, roots, CdiOptions(whole_mig_gpus=True)).specs, directory, still_named=())
    wanted = [qualified(name) for gpu in mig_inventory.gpus for name in (gpu.uuid, str(gpu.index))]
    wanted += [qualified(name) for mig in mig_inventory.gpus[0].mig_devices for name in (mig.uuid, f"0:{mig.index}")]
    assert check_names(wanted, list_devices([directory])) == {}
