"""The documents: their links lead somewhere, and the commands they give exist."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import PurePosixPath

import pytest
import yaml

from device_plugin.config.model import Config

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} (.+)$", re.MULTILINE)
FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """The names under which the headings of a document can be linked to, as GitHub makes them."""
    headings = (
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in HEADING.findall(FENCE.sub("", text))
    )
    return set(headings)


def resolve(document: str, target: str) -> str:
    """A relative link as a path from the top of the repository."""
    parts: list[str] = []
    for part in (PurePosixPath(document).parent / target).parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)


def targets_of(makefile: str) -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE))


@pytest.fixture
def documents(texts) -> dict[str, str]:
    return {path: text for path, text in texts.items() if path.endswith(".md")}


def test_relative_links_lead_to_files_and_headings(documents, root):
    broken = []
    for document, text in documents.items():
        for link in LINK.findall(FENCE.sub("", text)):
            if re.match(r"[a-z]+:", link):
                continue
            target, _, anchor = link.partition("#")
            path = resolve(document, target) if target else document
            if not (root / path).exists() or (anchor and anchor not in anchors(documents[path])):
                broken.append(f"{document}: {link}")
    assert broken == []


def test_every_page_is_in_the_index(documents):
    pages = {path for path in documents if path.startswith("docs/") and path != "docs/README.md"}
    linked = {resolve("docs/README.md", link) for link in LINK.findall(documents["docs/README.md"])}
    assert pages <= linked


def test_the_readme_starts_with_the_two_commands(texts):
    """A newcomer with Python and make needs no third command."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", texts["README.md"], re.MULTILINE | re.DOTALL)
    assert re.findall(r"^make \w+", blocks[0], re.MULTILINE) == ["make demo", "make test"]


def test_every_make_command_in_a_document_exists(documents, texts):
    known = targets_of(texts["Makefile"])
    named = {
        (path, target) for path, text in documents.items() for target in re.findall(r"(?:`|^)make ([a-z-]+)", text, re.MULTILINE)
    }
    assert {item for item in named if item[1] not in known} == set()


def test_every_phony_target_of_the_makefile_has_a_rule(texts):
    [phony] = re.findall(r"^\.PHONY: (.+)$", texts["Makefile"], re.MULTILINE)
    assert set(phony.split()) == targets_of(texts["Makefile"])


def test_the_layout_names_every_directory_of_tests(root, texts):
    there = {path.name for path in (root / "tests").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert there - set(re.findall(r"^\| `tests/(\w+)/` \|", texts["CONTRIBUTING.md"], re.MULTILINE)) == set()


def test_the_configs_shown_are_valid(documents):
    """Each block of YAML whose keys are those of a config is one."""
    keys = {info.alias or name for name, info in Config.model_fields.items()}
    blocks = [
        (path, yaml.safe_load(block))
        for path, text in documents.items()
        for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]
    shown = [(path, block) for path, block in blocks if block.keys() <= keys]
    assert {"README.md", "docs/security.md", "docs/sharing.md"} <= {path for path, _ in shown}
    for _, block in shown:
        Config.model_validate_json(json.dumps(block))


def test_the_settings_of_nvidias_runtime_are_toml(documents):
    """Without them an image that states `all` gets every GPU (NVIDIA/k8s-device-plugin#87); a broken file closes nothing."""
    [block] = re.findall(r"^```toml\n(.*?)^```$", documents["docs/security.md"], re.MULTILINE | re.DOTALL)
    assert tomllib.loads(block) == {
        "accept-nvidia-visible-devices-envvar-when-unprivileged": False,
        "accept-nvidia-visible-devices-as-volume-mounts": True,
    }


def test_the_licence_is_apache_2(texts):
    assert re.search(r"Apache License\s+Version 2\.0, January 2004", texts["LICENSE"])
    assert "END OF TERMS AND CONDITIONS" in texts["LICENSE"]


def test_the_change_log_names_the_version(texts):
    version = re.search(r'^version = "(.+)"$', texts["pyproject.toml"], re.MULTILINE)[1]
    assert re.search(rf"^## \[?(Unreleased|{re.escape(version)})\b", texts["CHANGELOG.md"], re.MULTILINE)
