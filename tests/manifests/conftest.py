"""Rendering by kubectl's own kustomize, each directory once."""

from __future__ import annotations

import functools
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

MANIFESTS = Path(__file__).resolve().parents[2] / "manifests"
OVERLAYS = sorted(str(path.parent.relative_to(MANIFESTS)) for path in MANIFESTS.glob("**/kustomization.yaml"))


def render_directory(directory: Path) -> list[dict[str, Any]]:
    """The objects that `kubectl apply -k` would send."""
    program = shutil.which("kubectl")
    assert program is not None, "the test lacks the marker requires('kubectl')"
    done = subprocess.run([program, "kustomize", str(directory)], check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, f"kubectl kustomize {directory} failed:\n{done.stderr}"
    return list(yaml.safe_load_all(done.stdout))


render_overlay = functools.cache(lambda overlay: render_directory(MANIFESTS / overlay))


@pytest.fixture
def render():
    """A function from a directory of kustomize to its objects."""
    return render_directory


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> str:
    """Each shipped directory in turn: `base`, `overlays/cdi`, ..."""
    return request.param


@pytest.fixture
def objects(overlay: str) -> dict[str, dict[str, Any]]:
    """The rendered objects by kind."""
    return {item["kind"]: item for item in render_overlay(overlay)}


@pytest.fixture
def pod(objects: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """The DaemonSet's pod."""
    return objects["DaemonSet"]["spec"]["template"]["spec"]


@pytest.fixture
def container(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod's first container; that there is no other is a test of its own."""
    return pod["containers"][0]
