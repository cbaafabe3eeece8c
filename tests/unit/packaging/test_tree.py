"""What no file of the repository may hold: the place it was written at, and the place its packages came from."""

from __future__ import annotations

import configparser
import re
from pathlib import Path

import pytest
from pip._internal.models.index import PyPI

URL_HOST = re.compile(r"\bhttps?://(?:[^\s/@\"'<>]*@)?([A-Za-z0-9.-]+)")
# A host whose name says that it serves packages or images: registry.example.org, mirror3.example.org, docker-registry.example.org.
REGISTRY_LIKE = re.compile(r"(?:[a-z0-9-]+-)?(?:registry|mirrors?|pypi|artifactory|nexus|index)(?:[0-9-][a-z0-9-]*)?\.[a-z0-9.-]+")
# A home directory, or a working directory at the top of the file system. GKE keeps the driver below /home/kubernetes.
DEVELOPER_PATH = re.compile(r"(?<![\w.$}-])/(?:root|work|Users/\w+|home/(?!kubernetes\b)\w+)/[\w.-]")


def registry_hosts_of_this_machine() -> set[str]:
    """The hosts that pip and apt are told to use here, none of which is written down in this file."""
    hosts = {PyPI.netloc, PyPI.file_storage_domain}
    for path in (Path("/etc/pip.conf"), Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"):
        parser = configparser.ConfigParser(interpolation=None)
        parser.read(path)
        values = [value for section in parser.values() for key, value in section.items() if "index" in key or "host" in key]
        hosts |= {host for value in values for host in URL_HOST.findall(value)}
    sources = [Path("/etc/apt/sources.list"), *Path("/etc/apt/sources.list.d").glob("*")]
    hosts |= {host for path in sources if path.is_file() for host in URL_HOST.findall(path.read_text(errors="replace"))}
    return {host for host in hosts if "." in host}


@pytest.fixture(scope="module")
def registry_hosts() -> set[str]:
    return registry_hosts_of_this_machine()


def test_the_walk_finds_the_repository_and_no_build_output(texts):
    assert {"README.md", "device_plugin/errors.py", ".ci/run", "requirements/dev.lock"} <= texts.keys()
    assert not any(path.startswith((".venv", ".git/")) or "__pycache__" in path for path in texts)


def test_no_file_names_a_package_registry(texts, registry_hosts):
    """Where packages come from is the machine's own setting; a host in the tree would override it or break behind a mirror."""
    found = [f"{path}: {host}" for path, text in texts.items() for host in registry_hosts if host in text]
    found += [
        f"{path}: {host}"
        for path, text in texts.items()
        for host in URL_HOST.findall(text)
        if REGISTRY_LIKE.fullmatch(host.lower())
    ]
    assert found == []


@pytest.mark.parametrize(
    ("host", "is_registry"),
    [
        ("registry.example.org", True),
        ("mirror3.example.org", True),
        ("my-pypi.example.org", True),
        ("github.com", False),
        ("kubernetes.io", False),
    ],
)
@pytest.mark.parametrize("prefix", ["http:" + "//", "https:" + "//user:secret@"])
def test_registries_are_told_from_documentation(host, prefix, is_registry):
    assert URL_HOST.findall(f"see {prefix}{host}/some/page.") == [host]
    assert (REGISTRY_LIKE.fullmatch(host) is not None) is is_registry


def test_no_file_names_a_developers_directory(texts):
    found = [f"{path}: {match[0]}" for path, text in texts.items() for match in DEVELOPER_PATH.finditer(text)]
    assert found == []


@pytest.mark.parametrize(
    ("text", "is_developers"),
    [
        ("open('/home/" + "ada/project/file')", True),
        ("see /ro" + "ot/.cache", True),
        ("/home/kubernetes/bin/nvidia", False),
        ("/driver-root/usr/lib64", False),
        ("the container's root/etc", False),
    ],
)
def test_developer_paths_are_told_from_paths_on_a_node(text, is_developers):
    assert bool(DEVELOPER_PATH.search(text)) is is_developers


def test_text_files_end_in_one_line_break_and_carry_no_stray_spaces(texts):
    """Python files are the formatter's business."""
    generated = (".py", ".lock", ".pyi", ".json", "LICENSE")
    for path, text in texts.items():
        if text and not path.endswith(generated):
            assert text.endswith("\n"), path
            assert not text.endswith("\n\n"), path
            assert "\r" not in text, path
            assert [line for line in text.splitlines() if line != line.rstrip()] == [], path
