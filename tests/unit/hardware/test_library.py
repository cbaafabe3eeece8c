"""Finding the library, and telling the platform with its evidence."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from device_plugin.errors import LibraryNotFound
from device_plugin.hardware.library import detect_platform, load_library
from device_plugin.hardware.model import Platform


@pytest.fixture
def loadable(monkeypatch):
    """Let only these names and paths be loaded, each a library of its own unless they share a key."""
    libraries: dict[str, int] = {}

    def load(name):
        if name not in libraries:
            raise OSError(f"{name}: cannot open shared object file")
        return SimpleNamespace(_handle=libraries[name])

    monkeypatch.setattr(ctypes, "CDLL", load)
    return libraries


def touch(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("")
    return str(path)


DIRECTORIES = [
    "usr/lib64",
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "lib64",
    "lib/x86_64-linux-gnu",
    "lib/aarch64-linux-gnu",
]


@pytest.mark.parametrize("directory", DIRECTORIES)
def test_each_known_directory_is_searched(tmp_path, loadable, directory):
    """The library is found in each place where installers put it."""
    path = touch(tmp_path / directory / "libnvidia-ml.so.1")
    loadable |= {path: 1, "libnvidia-ml.so.1": 1}
    assert str(load_library(tmp_path).path) == path


def test_the_first_directory_wins(tmp_path, loadable):
    """Of several the first in NVIDIA's order is taken."""
    paths = [touch(tmp_path / directory / "libnvidia-ml.so.1") for directory in reversed(DIRECTORIES)]
    loadable |= dict.fromkeys(paths, 1) | {"libnvidia-ml.so.1": 1}
    assert str(load_library(tmp_path).path) == paths[-1]


def test_without_a_file_the_loader_is_asked(tmp_path, loadable):
    """A root without the library leaves the search to the loader."""
    loadable["libnvidia-ml.so.1"] = 1
    assert load_library(tmp_path).path is None


def test_an_error_names_every_place(tmp_path, loadable):
    """Whoever mounted the wrong root sees where the plugin looked (NVIDIA/k8s-device-plugin#621)."""
    with pytest.raises(LibraryNotFound) as caught:
        load_library(tmp_path)
    assert all(f"{tmp_path}/{directory}/libnvidia-ml.so.1" in str(caught.value) for directory in DIRECTORIES)


def test_a_file_that_does_not_load_is_named(tmp_path, loadable):
    """A library that is there but cannot be loaded is another fault than one that is not there."""
    path = touch(tmp_path / "usr/lib64/libnvidia-ml.so.1")
    with pytest.raises(LibraryNotFound, match="is there but cannot be loaded") as caught:
        load_library(tmp_path)
    assert path in str(caught.value)


def test_another_library_loaded_before_is_noticed(tmp_path, loadable):
    """If the process has another libnvidia-ml already, the one under the root would not be used: an error says so."""
    path = touch(tmp_path / "usr/lib64/libnvidia-ml.so.1")
    loadable |= {path: 1, "libnvidia-ml.so.1": 2}
    with pytest.raises(LibraryNotFound, match="another libnvidia-ml"):
        load_library(tmp_path)


@pytest.mark.parametrize(
    ("libraries", "files", "gpu_names", "platform"),
    [
        (["libdxcore.so", "libnvidia-ml.so.1"], [], (), Platform.WSL),
        (["libnvidia-ml.so.1"], [], (), Platform.NVML),
        (["libnvidia-ml.so.1"], ["etc/nv_tegra_release"], (), Platform.NVML),
        ([], ["etc/nv_tegra_release"], (), Platform.TEGRA),
        (["libnvidia-ml.so.1"], [], ("Orin (nvgpu)",), Platform.TEGRA),
        (["libnvidia-ml.so.1"], [], ("NVIDIA A100", "NVIDIA Thor"), Platform.TEGRA),
        (["libnvidia-ml.so.1"], [], ("NVIDIA A100",), Platform.NVML),
        ([], [], (), Platform.UNKNOWN),
    ],
)
def test_platforms(tmp_path, loadable, libraries, files, gpu_names, platform):
    """The order of NVIDIA's detection: WSL, Tegra, NVML, unknown."""
    loadable |= dict.fromkeys(libraries, 1)
    for name in files:
        touch(tmp_path / name)
    assert detect_platform(tmp_path, gpu_names).platform is platform


@pytest.mark.parametrize(
    ("family", "platform"), [("Tegra", Platform.TEGRA), ("tegra234\n", Platform.TEGRA), ("i.MX", Platform.UNKNOWN)]
)
def test_the_family_of_the_chip(tmp_path, loadable, family, platform):
    """The family file counts if it starts with tegra, in any case."""
    path = tmp_path / "sys/devices/soc0/family"
    touch(path)
    path.write_text(family)
    assert detect_platform(tmp_path).platform is platform


def test_the_evidence_fits_on_a_line(tmp_path, loadable):
    """Detection tells what it saw in one line, so that "unknown" explains itself (NVIDIA/k8s-device-plugin#1963,
    NVIDIA/k8s-device-plugin#377)."""
    touch(tmp_path / "etc/nv_tegra_release")
    text = str(detect_platform(tmp_path))
    assert text.startswith("tegra (")
    assert "\n" not in text
    assert "libdxcore.so does not load" in text
    assert f"{tmp_path}/etc/nv_tegra_release" in text
    assert f"{tmp_path}/usr/lib64/libnvidia-ml.so.1" in text
