"""Schema, reference and examples: made from the model, current, and true of each other."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from device_plugin.config import schema
from device_plugin.config.load import load
from device_plugin.config.options import fields, options
from device_plugin.errors import ConfigError
from device_plugin.problems import Severity

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted((ROOT / "config").glob("*.yaml"))
VALIDATOR = jsonschema.Draft202012Validator(json.loads(schema.config_schema()))


def test_the_schema_in_the_tree_is_current():
    assert (ROOT / schema.SCHEMA_FILE).read_text(encoding="utf-8") == schema.config_schema(), "run `make schema`"


def test_the_reference_in_the_docs_is_current():
    page = (ROOT / schema.REFERENCE_FILE).read_text(encoding="utf-8")
    assert page == schema.with_reference(page), "run `make schema`"


def test_both_are_written_into_a_checkout(tmp_path):
    for file in (schema.SCHEMA_FILE, schema.REFERENCE_FILE):
        (tmp_path / file).parent.mkdir()
    page = "# Title\n\n<!-- reference: begin, made by `make schema` -->\nold\n<!-- reference: end -->\n\nAfter.\n"
    (tmp_path / schema.REFERENCE_FILE).write_text(page)
    schema.write(tmp_path)
    written = (tmp_path / schema.REFERENCE_FILE).read_text()
    assert (tmp_path / schema.SCHEMA_FILE).read_text() == schema.config_schema()
    assert schema.reference_table() in written
    assert written.startswith("# Title\n")
    assert written.endswith("\n\nAfter.\n")
    assert "\nold\n" not in written


def test_the_schema_is_one():
    VALIDATOR.check_schema(VALIDATOR.schema)


def test_the_reference_has_every_setting_with_its_names():
    table = schema.reference_table()
    for option in options():
        row = next(row for row in table.splitlines() if row.startswith(f"| `{option.path}` "))
        assert all(f"`--{flag}`" in row for flag in option.flags)
        assert all(f"`{variable}`" in row for variable in option.variables)


def test_the_reference_states_defaults_as_a_file_would():
    rows = {row.split("`")[1]: row.split("|")[2].strip() for row in schema.reference_table().splitlines()[2:]}
    assert rows["health.recoverAfter"] == "`5m`"
    assert rows["flags.plugin.deviceListStrategy"] == '`["envvar"]`'
    assert rows["sharing.timeSlicing.resources[].name"] == "required"
    assert rows["flags.nvidiaDevRoot"] == ""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_an_example_loads_and_fits_the_schema(path):
    text = path.read_text(encoding="utf-8")
    loaded = load(text, file=path.name)
    assert {problem.severity for problem in loaded.problems} <= {Severity.INFO}
    VALIDATOR.validate(yaml.safe_load(text))


def test_the_examples_show_every_block_of_the_format():
    shown = {key for path in EXAMPLES for key in yaml.safe_load(path.read_text(encoding="utf-8"))}
    assert shown == {field.keys[0] for field in fields()}


@pytest.mark.parametrize(
    "text",
    [
        "flag: {}",
        "version: v2",
        "flags: {migStrategy: bogus}",
        "flags: {failOnInitError: 1}",
        "flags: {nvidiaDriverRoot: relative}",
        "sharing: {timeSlicing: {}}",
        "sharing: {timeSlicing: {resources: [{name: gpu}]}}",
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 0}]}}",
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [x]}]}}",
        "sharing: {mps: {}}",
        "imex: {channelIDs: [2]}",
        "imex: {channelIDs: [0, 0]}",
        "resources: {gpus: [{pattern: a, name: requests.example.com/gpu}]}",
        "resources: {gpus: [{pattern: a, name: x.kubernetes.io/gpu}]}",
        f"resources: {{gpus: [{{pattern: a, name: {'g' * 64}}}]}}",
        f"resources: {{gpus: [{{pattern: a, name: {'d' * 245}/gpu}}]}}",
        "flags: {plugin: {deviceListStrategy: []}}",
        "flags: {plugin: {deviceListStrategy: [null]}}",
        "devices: {include: [null]}",
        "health: {enableXids: [null]}",
        "imex: {channelIDs: [null]}",
        "sharing: {timeSlicing: {resources: [null]}}",
        "sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [null]}]}}",
        "flags: {plugin: {cdiAnnotationPrefix: Example.com/}}",
        "flags: {plugin: {cdiAnnotationPrefix: /}}",
        "health: {probeInterval: 30}",
        "health: {probeInterval: 0s}",
        "health: {classes: {RESET: ignore}}",
        "health: {probeInterval: -5s}",
        "health: {xids: 79}",
        "flags: {plugin: {deviceListStrategy: 5}}",
        "devices: {include: 0}",
        'devices: {include: ["0:1"]}',
        "devices: {exclude: [MIG-00000000-0000-0000-0000-000000000000]}",
        'devices: {exclude: [" "]}',
    ],
)
def test_the_schema_refuses_too(text):
    with pytest.raises(ConfigError):
        load(text)
    assert not VALIDATOR.is_valid(yaml.safe_load(text))


# One of everything that a list or a mapping of the format can hold.
FILLED = """
resources: {gpus: [{pattern: a, name: b}], mig: [{pattern: a, name: b}]}
sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}
health: {classes: {RESET_GPU: ignore}, xids: {"79": ignore}}
"""
NEED_VALUE = {
    "resources.gpus.pattern",
    "resources.gpus.name",
    "resources.mig.pattern",
    "resources.mig.name",
    "sharing.timeSlicing",
    "sharing.timeSlicing.resources",
    "sharing.timeSlicing.resources.name",
    "sharing.timeSlicing.resources.replicas",
    "sharing.timeSlicing.resources.devices",
    "health.classes.RESET_GPU",
    "health.xids.79",
    "unknown",
    "devices.unknown",
    "resources.gpus.unknown",
    "sharing.timeSlicing.devices",
}
KEYS = {field.path for field in fields()} | NEED_VALUE


@pytest.mark.parametrize("path", sorted(KEYS))
def test_a_key_without_a_value_is_the_same_to_both(path):
    """An editor that follows the schema marks what the loader refuses, and no key that the loader takes for absent."""
    data = yaml.safe_load(FILLED)
    *parents, key = path.split(".")
    place = data
    for parent in parents:
        inner = place.setdefault(parent, {})
        place = inner[0] if isinstance(inner, list) else inner
    place[key] = None
    try:
        load(yaml.safe_dump(data))
    except ConfigError:
        is_taken = False
    else:
        is_taken = True
    assert (is_taken, VALIDATOR.is_valid(data)) == (path not in NEED_VALUE,) * 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "flags: {plugin: {deviceListStrategy: envvar}}",
        "flags: {gfd: {sleepInterval: infinite}}",
        "sharing: {mps: null}",
        'sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0, "0:1"]}]}}',
        "imex: {channelIDs: [0]}",
        f"resources: {{gpus: [{{pattern: a, name: {'d' * 244}/{'g' * 63}}}]}}",
        "resources: {gpus: [{pattern: a, name: requests.gpu}]}",
        "flags: {plugin: {cdiAnnotationPrefix: cdi.example.com/}}",
        'devices: {include: [0, "17:00.0", "0000:3b:00.0", "NVIDIA A100*", GPU-00000000-0000-0000-0000-000000000000]}',
        "reconcile: {leavingGrace: 0, rediscoveryInterval: 1.5h}",
        'health: {enableXids: all, disableXids: [48], probeInterval: 1m30s, recoverAfter: "0"}',
    ],
)
def test_the_schema_takes_what_the_loader_takes(text):
    load(text)
    VALIDATOR.validate(yaml.safe_load(text))
