"""The node's own driver where there is no library: what the node is instead is said, and a refusal is no crash."""

import ctypes

import pytest

from device_plugin.errors import LibraryNotFound, NotServedHere
from device_plugin.supervisor.local_driver import LocalDriver


@pytest.fixture
def loadable(monkeypatch):
    """Let nothing be loaded but these names."""
    names = set()

    def load(name):
        if name not in names:
            raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", load)
    return names


def test_a_tegra_system_is_refused_with_what_was_found(loadable, tmp_path):
    """Owners of a Jetson could not tell whether it is supported (NVIDIA/k8s-device-plugin#377, NVIDIA/k8s-device-plugin#1963)."""
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/nv_tegra_release").touch()
    with pytest.raises(NotServedHere) as refused:
        LocalDriver(tmp_path).open()
    text = str(refused.value)
    assert text.startswith(
        "platform: Tegra systems (Jetson) are not supported and nothing is offered; found tegra (libdxcore.so does not load; "
        f"Tegra files: {tmp_path}/etc/nv_tegra_release; Tegra GPUs: none; libnvidia-ml.so.1: no libnvidia-ml.so.1: looked for "
    )
    assert text.count("looked for") == 1


def test_a_wsl_system_without_its_library_is_told_whose_it_is(loadable, tmp_path):
    loadable.add("libdxcore.so")
    with pytest.raises(LibraryNotFound, match=r"this is a WSL system, whose library comes with Windows$"):
        LocalDriver(tmp_path).open()


def test_a_node_without_any_sign_of_a_driver_is_told_where_was_looked(loadable, tmp_path):
    with pytest.raises(LibraryNotFound) as missing:
        LocalDriver(tmp_path).open()
    assert not isinstance(missing.value, NotServedHere)
    assert str(missing.value).startswith(f"dlopen: no libnvidia-ml.so.1: looked for {tmp_path}/usr/lib64/libnvidia-ml.so.1, ")
