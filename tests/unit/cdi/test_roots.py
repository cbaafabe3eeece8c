"""Links in a driver root mean what they mean inside it, and host paths come from the roots the operator named."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_plugin.cdi.roots import Roots, resolve_inside, roots_from
from device_plugin.config.model import Config, Flags, PluginFlags


@pytest.mark.parametrize(
    ("links", "path", "expected"),
    [
        ({}, "/usr/lib64/file", "/usr/lib64/file"),
        ({"lib64": "usr/lib64"}, "/lib64/file", "/usr/lib64/file"),
        ({"link": "/usr/lib64/file"}, "/link", "/usr/lib64/file"),
        ({"link": "../../../../usr/lib64/file"}, "/link", "/usr/lib64/file"),
        ({"a": "b", "b": "/a"}, "/a", None),
        ({"link": "/nowhere"}, "/link", None),
        ({}, "/usr/lib64/file/below", None),
        ({}, "/usr/../../usr/lib64", "/usr/lib64"),
    ],
)
def test_links_are_followed_inside_the_root(tmp_path: Path, links: dict[str, str], path: str, expected: str | None):
    """An absolute target starts at the root again, `..` stops at it, a loop and a dead end are nothing."""
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64/file").touch()
    for name, target in links.items():
        (tmp_path / name).symlink_to(target)
    assert resolve_inside(tmp_path, path) == expected


def test_a_link_cannot_lead_out_of_the_root(tmp_path: Path):
    """A file of the plugin's own container is never taken for the driver's."""
    (tmp_path / "outside").touch()
    (tmp_path / "root").mkdir()
    (tmp_path / "root/link").symlink_to(tmp_path / "outside")
    assert resolve_inside(tmp_path / "root", "/link") is None


@pytest.mark.parametrize(
    ("host_driver", "host_dev", "has_dev", "file", "node"),
    [
        ("/", "/", True, "/usr/bin/x", "/dev/nvidia0"),
        ("/run/nvidia/driver", "/run/nvidia/driver", True, "/run/nvidia/driver/usr/bin/x", "/run/nvidia/driver/dev/nvidia0"),
        ("/run/nvidia/driver/", "/", False, "/run/nvidia/driver/usr/bin/x", "/dev/nvidia0"),
        ("/home/kubernetes/bin/nvidia", "/", False, "/home/kubernetes/bin/nvidia/usr/bin/x", "/dev/nvidia0"),
        ("/", "/host", False, "/usr/bin/x", "/host/dev/nvidia0"),
    ],
)
def test_host_paths_come_from_the_hosts_roots(tmp_path: Path, host_driver, host_dev, has_dev, file, node):
    """Driver files lie in the host's driver root; nodes too if it has a /dev, else in the host's device root."""
    (tmp_path / ("dev" if has_dev else "usr")).mkdir()
    roots = Roots(driver=tmp_path, host_driver=host_driver, host_dev=host_dev)
    assert (roots.on_host("/usr/bin/x"), roots.node_on_host("/dev/nvidia0")) == (file, node)


def test_the_hook_may_be_named_by_where_this_process_sees_it(tmp_path: Path):
    """A path below the container's driver root is rewritten, any other is the host's own."""
    roots = Roots(driver=tmp_path, host_driver="/run/nvidia/driver")
    assert roots.hook_on_host(f"{tmp_path}/usr/bin/nvidia-ctk") == "/run/nvidia/driver/usr/bin/nvidia-ctk"
    assert roots.hook_on_host(f"{tmp_path}-other/nvidia-ctk") == f"{tmp_path}-other/nvidia-ctk"


def test_the_device_root_is_the_driver_root_where_none_is_stated():
    """As for NVIDIA's plugin: nvidiaDevRoot copies nvidiaDriverRoot."""
    config = Config(flags=Flags(nvidia_driver_root="/run/nvidia/driver", plugin=PluginFlags(container_driver_root="/d")))
    assert roots_from(config) == Roots(Path("/d"), "/run/nvidia/driver", "/run/nvidia/driver")
