"""The version a document states is the lowest that carries its fields; what is written has one order."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from device_plugin.cdi.spec import Edits, MountEdit, NodeEdit, complete_document, encode, is_device_name

VERSIONS = ["0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0"]


def document(kind: str = "example.com/gpu", name: str = "one", common: dict[str, Any] | None = None, **device: Any):
    edits = {"deviceNodes": [{"path": "/dev/one"}]}
    return complete_document(kind, [{"name": name, "containerEdits": edits} | device], common or {})


@pytest.mark.parametrize(
    ("made", "version"),
    [
        (document(), "0.3.0"),
        (document(common={"mounts": [{"hostPath": "/a", "containerPath": "/a", "type": "none"}]}), "0.4.0"),
        (document(name="0:1"), "0.5.0"),
        (document(common={"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}), "0.5.0"),
        (document(containerEdits={"deviceNodes": [{"path": "/dev/a", "hostPath": "/dev/b"}]}), "0.5.0"),
        (document(annotations={"a": "b"}), "0.6.0"),
        (document(kind="example.com/gpu.shared"), "0.6.0"),
        (document(common={"additionalGids": [44]}), "0.7.0"),
        (document(containerEdits={"additionalGids": [44]}), "0.7.0"),
    ],
)
def test_the_lowest_version_that_carries_the_fields_is_stated(made, version, validate):
    """The schema of that version takes the document, the schema of the one before does not."""
    assert made["cdiVersion"] == version
    validate(made)
    if version != VERSIONS[0]:
        with pytest.raises(jsonschema.ValidationError):
            validate(made, VERSIONS[VERSIONS.index(version) - 1])


def test_the_schemas_refuse_what_a_runtime_refuses(validate):
    """A file without devices, a device that does nothing, a field nobody knows."""
    for broken in (document() | {"devices": []}, document(containerEdits={}), document() | {"containeredits": {}}):
        with pytest.raises(jsonschema.ValidationError):
            validate(broken)


def test_edits_are_brought_into_order():
    """Variables by name, nodes and mounts by depth and path, each once."""
    node, deep = NodeEdit("/dev/z", "/dev/z"), NodeEdit("/dev/a/b", "/dev/a/b")
    first, second = MountEdit.read_only("/z", "/z"), MountEdit.read_only("/a/b", "/a/b")
    tidied = Edits(env=("B=1", "A=1", "B=1"), nodes=(deep, node, node), mounts=(second, first, second)).tidied()
    assert tidied == Edits(env=("A=1", "B=1"), nodes=(node, deep), mounts=(first, second))


def test_what_every_device_gets_is_not_repeated_unless_nothing_were_left():
    """An empty device is invalid."""
    common, own = NodeEdit("/dev/c", "/dev/c"), NodeEdit("/dev/o", "/dev/o")
    assert Edits(nodes=(common, own)).without(Edits(nodes=(common,))) == Edits(nodes=(own,))
    assert Edits(nodes=(common,)).without(Edits(nodes=(common,))) == Edits(nodes=(common,))


@pytest.mark.parametrize(
    ("name", "allowed"),
    [("0", True), ("0:1", True), ("GPU-1", True), ("all", True), ("", False), ("a/b", False), ("-a", False), ("a-", False)],
)
def test_device_names_are_cdis(name, allowed):
    """Letters, digits, dashes, underscores, dots and colons, with a letter or digit at both ends."""
    assert is_device_name(name) is allowed


def test_zeros_are_left_out_and_paths_kept():
    """As the specification's reference implementation writes them."""
    assert NodeEdit("/dev/a", "/dev/a", major=195, minor=0).document() == {"path": "/dev/a", "hostPath": "/dev/a", "major": 195}
    assert encode(document()).endswith(b"}\n")
