"""The wheel: everything the package needs at run time, and nothing at the top level but the package."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile

import pytest


@pytest.fixture(scope="module")
def wheel(root, tmp_path_factory):
    """The built wheel, from a copy of the sources: building leaves things behind."""
    source = tmp_path_factory.mktemp("source")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(root / name, source)
    for name in ("device_plugin", "api", "config", "tests"):
        shutil.copytree(root / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*command, "--wheel-dir", target, source], check=True, capture_output=True, timeout=120)
    [path] = target.iterdir()
    return path


@pytest.fixture(scope="module")
def names(wheel) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_file_of_the_package_is_in_it(root, names):
    """Profiles, tables, generated stubs and type markers alike: a file left out is found missing only on somebody's node."""
    package = root / "device_plugin"
    files = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    assert {str(path.relative_to(root)) for path in files} - names == set()


def test_the_package_is_typed(names):
    assert "device_plugin/py.typed" in names


def test_nothing_else_is_put_at_the_top_level(names):
    """`api`, `config` or `tests` would shadow modules of the same name in the environment it is installed into."""
    top = {name.split("/")[0] for name in names}
    assert {name for name in top if not name.endswith(".dist-info")} == {"device_plugin"}


def test_the_licence_and_the_command_are_in_it(wheel):
    with zipfile.ZipFile(wheel) as archive:
        [licence] = [name for name in archive.namelist() if name.endswith("/licenses/LICENSE")]
        [entry_points] = [name for name in archive.namelist() if name.endswith("/entry_points.txt")]
        assert b"Apache License" in archive.read(licence)
        assert b"gpu-device-plugin = device_plugin.cli:main" in archive.read(entry_points)


def test_the_command_starts_from_the_wheel_alone(wheel):
    """Imported from the archive's own copy, not from the working tree."""
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop()); import device_plugin.cli as cli; "
        "print(cli.__file__); sys.exit(not callable(cli.main))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program, wheel], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(wheel))
