"""What a runtime would find in its directories, and which names it would refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from device_plugin.cdi import build_specs, check_names, list_devices, write_specs

KIND = "k8s.device-plugin.nvidia.com/gpu"


def specification(path: Path, *names: str, kind: str = KIND) -> Path:
    path.parent.mkdir(exist_ok=True)
    devices = [{"name": name, "containerEdits": {"env": ["A=B"]}} for name in names]
    path.write_text(json.dumps({"cdiVersion": "0.5.0", "kind": kind, "devices": devices}))
    return path


@pytest.mark.parametrize("short", ["GPU-1::1", "0:1", "1"])
def test_a_name_that_begins_another_is_another(short: str, tmp_path: Path):
    """`...::1` is not found because `...::10` is there."""
    specification(tmp_path / "a.json", f"{short}0")
    assert list(check_names([f"{KIND}={short}", f"{KIND}={short}0"], list_devices([tmp_path]))) == [f"{KIND}={short}"]


def test_a_specification_of_all_only_does_not_serve_single_devices(inventory, roots, options, tmp_path: Path):
    """Fault: a file with the device `all` alone, and a plugin that asks by UUID (NVIDIA/nvidia-container-toolkit#1895)."""
    specification(tmp_path / "nvidia.json", "all", kind="nvidia.com/gpu")
    wanted = [f"{KIND}={gpu.uuid}" for gpu in inventory.gpus]
    assert check_names(wanted, list_devices([tmp_path])) == dict.fromkeys(wanted, "no CDI specification defines this name")
    write_specs(build_specs(inventory, roots, options).specs, tmp_path, still_named=())
    assert check_names(wanted, list_devices([tmp_path])) == {}


def test_a_name_in_two_files_of_one_directory_is_refused(tmp_path: Path):
    """As every runtime does, for a copy of the file would do; the message names both."""
    paths = [specification(tmp_path / name, "GPU-1") for name in ("a.json", "b.json")]
    (reason,) = check_names([f"{KIND}=GPU-1"], list_devices([tmp_path])).values()
    assert all(str(path) in reason for path in paths)


def test_the_later_directory_wins(tmp_path: Path):
    """A file of the same name in /etc/cdi is hidden by the one in /var/run/cdi."""
    specification(tmp_path / "etc/a.json", "GPU-1")
    ours = specification(tmp_path / "run/a.json", "GPU-1")
    listing = list_devices([tmp_path / "etc", tmp_path / "run", tmp_path / "missing"])
    assert listing.devices[f"{KIND}=GPU-1"].paths == (ours,)
    assert check_names([f"{KIND}=GPU-1"], listing) == {}


def test_yaml_specifications_count(tmp_path: Path):
    """NVIDIA's toolkit writes them by default."""
    (tmp_path / "nvidia.yaml").write_text("cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices:\n- name: all\n  containerEdits: {}\n")
    (tmp_path / "notes.txt").write_text("kind: no/specification")
    assert list(list_devices([tmp_path]).devices) == ["nvidia.com/gpu=all"]


@pytest.mark.parametrize("content", ["{", "[]", "{}", '{"kind": "a/b"}', '{"kind": "a/b", "devices": {}}'])
@pytest.mark.parametrize("suffix", [".json", ".yaml"])
def test_a_file_that_is_no_specification_is_reported(content: str, suffix: str, tmp_path: Path):
    """It hides nothing of the others."""
    (tmp_path / f"broken{suffix}").write_text(content)
    specification(tmp_path / "whole.json", "GPU-1")
    listing = list_devices([tmp_path])
    assert list(listing.devices) == [f"{KIND}=GPU-1"]
    assert list(listing.unreadable) == [tmp_path / f"broken{suffix}"]
