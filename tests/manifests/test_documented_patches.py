"""The patches that docs/install.md tells operators to apply: each renders over what it is meant for, and is valid."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = (ROOT / "docs" / "install.md").read_text()
PATCHES = re.findall(r"^```yaml over=(\S+)\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL)
[KUSTOMIZATION] = [block for block in re.findall(r"^```yaml\n(.*?)^```$", DOCUMENT, re.MULTILINE | re.DOTALL) if "bases:" in block]

pytestmark = pytest.mark.requires("kubectl")


def contains(whole, part) -> bool:
    """Whether everything that a strategic merge patch states is found in `whole`; null means absent."""
    if isinstance(part, dict):
        return all(
            key not in whole if value is None else key in whole and contains(whole[key], value) for key, value in part.items()
        )
    if isinstance(part, list):
        return all(any(contains(item, wanted) for item in whole) for wanted in part)
    return whole == part


@pytest.fixture
def site(tmp_path):
    """An operator's own directory beside a checkout: a function that puts a patch into it and says where it is."""
    shutil.copytree(ROOT / "manifests", tmp_path / "gpu-device-plugin" / "manifests")
    own = tmp_path / "site"
    own.mkdir()

    def write(directory: str, patch: str) -> Path:
        (own / "kustomization.yaml").write_text(KUSTOMIZATION.replace("manifests/base", f"manifests/{directory}"))
        (own / "node-specifics.yaml").write_text(patch)
        return own

    return write


def test_the_document_has_patches():
    assert len(PATCHES) >= 5


@pytest.mark.parametrize(("directory", "patch"), PATCHES)
def test_the_patch_does_what_it_says(site, render, directory, patch):
    [daemon_set] = [item for item in render(site(directory, patch)) if item["kind"] == "DaemonSet"]
    kubernetes_validate.validate(daemon_set, "1.28", strict=True)
    kubernetes_validate.validate(daemon_set, "1.37", strict=True)
    assert contains(daemon_set, yaml.safe_load(patch))
    assert daemon_set["spec"]["template"]["spec"]["containers"][0]["image"] == "images.example.com/gpu-device-plugin:0.1.0"


@pytest.mark.parametrize(("directory", "patch"), PATCHES)
def test_the_patch_leaves_every_mount_its_volume(site, render, directory, patch):
    [daemon_set] = [item for item in render(site(directory, patch)) if item["kind"] == "DaemonSet"]
    pod = daemon_set["spec"]["template"]["spec"]
    mounts = [mount["name"] for mount in pod["containers"][0]["volumeMounts"]]
    assert sorted(mounts) == sorted(volume["name"] for volume in pod["volumes"])
