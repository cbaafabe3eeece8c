"""The lock files: complete, hashed, agreeing with each other and with what the package says it needs."""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

if TYPE_CHECKING:
    from pathlib import Path

LOCKS = ("runtime", "build", "dev")
PIN = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;]+)(?P<marker> ;[^\\]*)?(?P<hashes>(?: --hash=sha256:[0-9a-f]{64})+)"
)


def inputs(path: Path) -> set[str]:
    """The requirements of an `.in` file, without comments and references to other files."""
    lines = (line.partition("#")[0].strip() for line in path.read_text().splitlines())
    return {line for line in lines if line and not line.startswith("-r ")}


@pytest.fixture
def entries(root):
    """A function from a lock's name to its entries, each on one line."""

    def read(lock: str) -> list[str]:
        text = (root / "requirements" / f"{lock}.lock").read_text()
        return re.sub(r"\s*\\\n\s*", " ", text).splitlines()

    return read


@pytest.fixture
def pins(entries):
    """A function from a lock's name to its pins: canonical name to version."""
    return lambda lock: {canonicalize_name(PIN.fullmatch(line)["name"]): PIN.fullmatch(line)["version"] for line in entries(lock)}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_line_is_an_exact_version_with_its_hashes_and_nothing_else(entries, lock):
    """No URL, no index, no option: where packages come from is the machine's own setting."""
    assert entries(lock)
    assert [line for line in entries(lock) if PIN.fullmatch(line) is None] == []


def test_the_run_time_input_repeats_what_the_package_declares(root):
    declared = tomllib.loads((root / "pyproject.toml").read_text())["project"]["dependencies"]
    assert inputs(root / "requirements" / "runtime.in") == set(declared)


@pytest.mark.parametrize("lock", LOCKS)
def test_what_was_asked_for_is_locked_at_a_version_that_satisfies_it(root, pins, lock):
    for text in inputs(root / "requirements" / f"{lock}.in"):
        requirement = Requirement(text)
        assert requirement.specifier.contains(pins(lock)[canonicalize_name(requirement.name)]), text


@pytest.mark.parametrize("smaller", ["runtime", "build"])
def test_tests_run_with_the_versions_that_are_shipped(pins, smaller):
    assert pins(smaller).items() <= pins("dev").items()


def test_the_image_carries_no_library_that_only_people_or_tests_need(pins):
    """rich alone would quadruple what the log library adds to the daemon's memory."""
    assert not {"rich", "lightkube", "pytest", "grpcio-tools", "setuptools"} & pins("runtime").keys()


def test_the_build_uses_what_the_package_asks_for(root, pins):
    [requirement] = map(Requirement, tomllib.loads((root / "pyproject.toml").read_text())["build-system"]["requires"])
    assert requirement.specifier.contains(pins("build")[requirement.name])
