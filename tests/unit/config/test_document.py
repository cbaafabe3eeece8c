"""The text as plain data with places."""

from __future__ import annotations

import pytest
import yaml

from device_plugin.config.document import Place, config_path, decode, read_document
from device_plugin.errors import ConfigError


def test_the_parser_is_the_one_in_c():
    """The pure one takes ten times as long; the wheel has both."""
    assert yaml.__with_libyaml__
    assert issubclass(yaml.CSafeLoader, yaml.cyaml.CParser)


def test_every_key_and_value_has_its_place():
    document = read_document("a:\n  b: [1, x]\n  'c':\n", "f")
    assert document.data == {"a": {"b": [1, "x"], "c": None}}
    assert document.keys == {("a",): Place(1, 1), ("a", "b"): Place(2, 3), ("a", "c"): Place(3, 3)}
    assert document.values[("a", "b", 1)] == Place(2, 10)
    assert document.values[("a", "c")] == Place(3, 3)


def test_columns_count_characters():
    assert read_document("a: ['µ€𝄞', 1]", "f").values[("a", 1)] == Place(1, 12)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5), ("-5", -5), ("0", 0), ("1.5", 1.5), ("1e3", 1000.0), ("true", True), ("false", False), ("~", None), ("", None),
        ("null", None), ("'true'", "true"), ('"5"', "5"), ("none", "none"), ("1g.10gb", "1g.10gb"), ("60s", "60s"),
        ("2024-01-31", "2024-01-31"),
        ("|-\n  text", "text"), ("0000:3b:00.0", "0000:3b:00.0"),
    ],
)  # fmt: skip
def test_scalars(text, value):
    assert read_document(f"a: {text}\n", "f").data == {"a": value}


def test_paths_are_shown_as_people_write_them():
    assert config_path(("sharing", "timeSlicing", "resources", 0, "devices", 2)) == "sharing.timeSlicing.resources[0].devices[2]"
    assert config_path(()) == ""


def test_bytes_that_are_not_utf8_are_refused_at_their_place():
    with pytest.raises(ConfigError) as caught:
        decode("version: v1\nflags: µ".encode() + b"\xff", "c.yaml")
    assert str(caught.value) == "c.yaml:2:9: error: byte 0xff is not UTF-8"


def test_a_byte_order_mark_is_no_part_of_the_text():
    assert decode(b"\xef\xbb\xbfversion: v1", "c.yaml") == "version: v1"
