"""Every kind of broken config, with the exact words and, marked by a triangle in the text, the exact place."""

from __future__ import annotations

import contextlib
import time

import pytest

from device_plugin.config.load import load
from device_plugin.config.xids import XidClass
from device_plugin.errors import ConfigError
from device_plugin.hardware.model import Gpu, Inventory, MigAttributes, MigDevice
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.sharing.plan import plan

SLICING = "sharing: {timeSlicing: {resources: [%s]}}\n"
ENTRY = "sharing.timeSlicing.resources[0]"
SELECTOR = "expected an index, GPU-<uuid>, a PCI address or a product pattern such as *A100*"
ACTIONS = "ignore, untilReset, untilReboot or askDriver"
UUID = "00000000-0000-0000-0000-000000000000"
TAG = "has no meaning in this format; quote text, write other values as they are"

SYNTAX = [
    ("flags: [1\n▸", "not YAML: did not find expected ',' or ']', while parsing a flow sequence that starts at line 1, column 8"),
    ("a: b▸: c\n", "not YAML: mapping values are not allowed in this context"),
    ("flags: 'x\n▸", "not YAML: found unexpected end of stream, while scanning a quoted scalar that starts at line 1, column 8"),
    ("flags:\n▸\tmigStrategy: none\n", "a tab cannot indent in YAML; use spaces"),
    ("flags: ▸@x\n", "not YAML: found character that cannot start any token, while scanning for the next token"),
    ("▸%YAML 3.0\n---\n", "not YAML: found incompatible YAML document"),
    ("version: v1▸\x00\n", "the character U+0000 is not allowed in YAML"),
    ("version: v1\nflags:\n  ▸\x07", "the character U+0007 is not allowed in YAML"),
    ("version: ▸\ud800", "the character U+D800 is not allowed in YAML"),
    ("version: v1\n▸---\nversion: v1\n", "a second document starts here; a config is one document"),
    ("▸- version: v1\n", "expected keys and values, such as `version: v1`, not a list"),
    ("▸v1\n", "expected keys and values, such as `version: v1`, not 'v1'"),
    ("▸yes\n", "expected keys and values, such as `version: v1`, not 'yes'"),
    ("▸2.50\n", "expected keys and values, such as `version: v1`, not 2.50"),
    ("▸!a%0Ab {}\n", f"the tag '!a\\nb' {TAG}"),
    (f"▸!{'t' * 60} {{}}\n", f"the tag '!{'t' * 56}...' {TAG}"),
    ("▸!!map {version: v1}\n", f"the tag tag:yaml.org,2002:map {TAG}"),
    ("# A config.\n▸!config\nversion: v1\n", f"the tag !config {TAG}"),
    ("flags: ▸*f\n", "the alias *f has no anchor &f before it; quote it if it is text"),
    ("devices: {include: [▸*A100*]}\n", 'not YAML: a text that starts with * must be quoted, such as "*A100*"'),
    ("devices:\n  include:\n    - ▸*\n", 'not YAML: a text that starts with * must be quoted, such as "*A100*"'),
    ("flags: &f\n  plugin: ▸*f\n", "the alias *f stands inside what it names"),
    ("flags: [[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[▸[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", "nested deeper than 32 levels"),
]
YAML_SURPRISES = [
    (
        "flags: {failOnInitError: ▸yes}",
        "flags.failOnInitError",
        "yes may be read as true or false; write true or false, or quote it if it is text",
    ),
    (
        "flags: {gdsEnabled: ▸Off}",
        "flags.gdsEnabled",
        "Off may be read as true or false; write true or false, or quote it if it is text",
    ),
    (
        "flags: {gdsEnabled: ▸True}",
        "flags.gdsEnabled",
        "True may be read as true or false; write true or false, or quote it if it is text",
    ),
    (
        SLICING % "{name: ▸on, replicas: 2}",
        f"{ENTRY}.name",
        "on may be read as true or false; write true or false, or quote it if it is text",
    ),
    (
        SLICING % "{name: gpu, replicas: ▸010}",
        f"{ENTRY}.replicas",
        "010 may be read as different numbers; write it in plain decimal, or quote it if it is text",
    ),
    (
        SLICING % "{name: gpu, replicas: ▸0x10}",
        f"{ENTRY}.replicas",
        "0x10 may be read as different numbers; write it in plain decimal, or quote it if it is text",
    ),
    (
        SLICING % "{name: gpu, replicas: ▸1_0}",
        f"{ENTRY}.replicas",
        "1_0 may be read as different numbers; write it in plain decimal, or quote it if it is text",
    ),
    (SLICING % "{name: gpu, replicas: ▸12:30}", f"{ENTRY}.replicas", '12:30 may be read as a number of base 60; quote it: "12:30"'),
    (
        SLICING % "{name: gpu, replicas: 2, devices: [▸1:0]}",
        f"{ENTRY}.devices[0]",
        '1:0 may be read as a number of base 60; quote it: "1:0"',
    ),
    (
        "devices: {exclude: [▸0000:01:00.0]}",
        "devices.exclude[0]",
        '0000:01:00.0 may be read as a number of base 60; quote it: "0000:01:00.0"',
    ),
    (
        "flags: {migStrategy: ▸!!str none}",
        "flags.migStrategy",
        "the tag tag:yaml.org,2002:str has no meaning in this format; quote text, write other values as they are",
    ),
    ('flags: {? ▸[a] : 1, "gdsEnabled": true}', "flags", "expected a name as the key"),
    ("flags: {▸null: 1}", "flags.null", "expected a name as the key"),
    ("flags:\n  <<: ▸5\n", "flags.<<", "expected a mapping, or an alias of one, to merge"),
    (
        SLICING % f"{{name: gpu, replicas: ▸{'9' * 21}}}",
        f"{ENTRY}.replicas",
        f"{'9' * 20}... is too large a number; quote it if it is text",
    ),
    (
        SLICING % f"{{name: gpu, replicas: ▸-{'9' * 21}}}",
        f"{ENTRY}.replicas",
        f"-{'9' * 19}... is too large a number; quote it if it is text",
    ),
    (
        SLICING % f"{{name: gpu, replicas: ▸{'9' * 999}.5}}",
        f"{ENTRY}.replicas",
        f"{'9' * 20}... is too large a number; quote it if it is text",
    ),
]
KEYS = [
    ("▸flag: {}", "", "unknown key 'flag'; did you mean 'flags'?"),
    ("flags: {▸mig-strategy: none}", "flags.mig-strategy", "unknown key 'mig-strategy'; did you mean 'migStrategy'?"),
    ("flags: {▸migstrategy: none}", "flags.migstrategy", "unknown key 'migstrategy'; did you mean 'migStrategy'?"),
    ("flags: {▸mig_strategy: none}", "flags.mig_strategy", "unknown key 'mig_strategy'; did you mean 'migStrategy'?"),
    ("flags:\n  ▸migstrategy:\n", "flags.migstrategy", "unknown key 'migstrategy'; did you mean 'migStrategy'?"),
    ("▸migStrategy: none", "", "unknown key 'migStrategy' here; did you mean flags.migStrategy?"),
    (
        "flags: {▸deviceListStrategy: [envvar]}",
        "flags.deviceListStrategy",
        "unknown key 'deviceListStrategy' here; did you mean flags.plugin.deviceListStrategy?",
    ),
    ("imex: {▸xyz: 1}", "imex.xyz", "unknown key 'xyz'; expected channelIDs or required"),
    (SLICING % "{name: gpu, ▸replicaz: 2, replicas: 2}", f"{ENTRY}.replicaz", "unknown key 'replicaz'; did you mean 'replicas'?"),
    ("flags: {}\nimex: {}\n▸flags: {}\n", "", "duplicate key 'flags'; it stands in line 1 already"),
    (
        "flags: {<<: {migStrategy: none, ▸migStrategy: mixed}}",
        "flags.migStrategy",
        "duplicate key 'migStrategy'; it stands in line 1 already",
    ),
    (
        "flags:\n  <<: {migStrategy: none}\n  ▸<<: {migStrategy: mixed}\n",
        "flags.<<",
        "duplicate key '<<'; it stands in line 2 already",
    ),
    ('health: {xids: {48: ignore, ▸"48": ignore}}', "health.xids.48", "duplicate key '48'; it stands in line 1 already"),
    (
        SLICING % "▸{replicas: 2}",
        ENTRY,
        "the key 'name' is missing; it states: The resource to share, as it is called without sharing",
    ),
    (
        SLICING % "▸{name: gpu}",
        ENTRY,
        "the key 'replicas' is missing; it states: How many devices stand for each GPU or MIG device; 1: unshared",
    ),
    ("sharing: {timeSlicing: ▸{}}", "sharing.timeSlicing", "the key 'resources' is missing; it states: What is shared"),
    ("sharing:\n  ▸timeSlicing:\n", "sharing.timeSlicing", "the key 'resources' is missing; it states: What is shared"),
    ("sharing: {timeSlicing: {resources: ▸[]}}", "sharing.timeSlicing.resources", "expected at least one entry, not an empty list"),
    ("sharing: {timeSlicing: {resources: ▸{}}}", "sharing.timeSlicing.resources", "expected a list, not a mapping"),
]
VALUES = [
    ("version: ▸v2", "version", "expected \"v1\", the one format there is, not 'v2'"),
    ("version: ▸1", "version", 'expected "v1", the one format there is, not 1'),
    ("version: ▸[v1]", "version", 'expected "v1", the one format there is, not a list'),
    ("flags: ▸x", "flags", "expected keys and values, not 'x'"),
    ("health: {xids: ▸5}", "health.xids", "expected keys and values, not 5"),
    ("health: {classes: ▸[RESET_GPU]}", "health.classes", "expected keys and values, not a list"),
    ("devices: ▸devices", "devices", "expected keys and values, not 'devices'"),
    ("devices: {include: ▸0}", "devices.include", "expected a list, not 0"),
    ("resources: {gpus: ▸{pattern: a, name: b}}", "resources.gpus", "expected a list, not a mapping"),
    (
        "flags: {plugin: {deviceListStrategy: ▸5}}",
        "flags.plugin.deviceListStrategy",
        "expected envvar, volume-mounts, cdi-annotations, cdi-cri, or a list of these, not 5",
    ),
    ("flags: {migStrategy: ▸bogus}", "flags.migStrategy", "expected none, single or mixed, not 'bogus'"),
    ("flags: {migStrategy: ▸mxied}", "flags.migStrategy", "expected none, single or mixed, not 'mxied'; did you mean 'mixed'?"),
    ('flags: {migStrategy: ▸""}', "flags.migStrategy", "expected none, single or mixed, not an empty text"),
    ('flags: {failOnInitError: ▸"true"}', "flags.failOnInitError", "expected true or false, not 'true'"),
    ("flags: {failOnInitError: ▸1}", "flags.failOnInitError", "expected true or false, not 1"),
    ("flags: {nvidiaDriverRoot: ▸run/nvidia}", "flags.nvidiaDriverRoot", "expected an absolute path, not 'run/nvidia'"),
    ("flags: {gfd: {outputFile: ▸5}}", "flags.gfd.outputFile", "expected text, not 5; quote it"),
    (
        "flags: {gfd: {sleepInterval: ▸soon}}",
        "flags.gfd.sleepInterval",
        "expected a duration with a unit, such as 30s, 5m or 1h30m, not 'soon'",
    ),
    (
        'flags: {plugin: {deviceListStrategy: ▸"envvar,cdi-cri"}}',
        "flags.plugin.deviceListStrategy",
        "expected envvar, volume-mounts, cdi-annotations or cdi-cri, not 'envvar,cdi-cri'; several are written as a list",
    ),
    (
        "flags: {plugin: {deviceListStrategy: ▸[]}}",
        "flags.plugin.deviceListStrategy",
        "expected at least one entry, not an empty list",
    ),
    (
        "flags: {plugin: {cdiAnnotationPrefix: ▸cdi.k8s.io}}",
        "flags.plugin.cdiAnnotationPrefix",
        "expected a lower-case domain that ends with a slash, such as cdi.k8s.io/, not 'cdi.k8s.io'",
    ),
    (SLICING % "{name: gpu, replicas: ▸0}", f"{ENTRY}.replicas", "expected at least 1, not 0"),
    (SLICING % '{name: gpu, replicas: ▸"2"}', f"{ENTRY}.replicas", "expected a whole number, not '2'"),
    (SLICING % "{name: gpu, replicas: ▸2.0}", f"{ENTRY}.replicas", "expected a whole number, not 2.0"),
    (
        "flags: {gfd: {sleepInterval: ▸[]}}",
        "flags.gfd.sleepInterval",
        'expected a duration such as 60s, a number of nanoseconds, or "infinite", not an empty list',
    ),
    (SLICING % "{name: gpu, replicas: ▸1e3}", f"{ENTRY}.replicas", "expected a whole number, not 1e3"),
    (SLICING % f"{{name: gpu, replicas: ▸1.{'0' * 99}}}", f"{ENTRY}.replicas", f"expected a whole number, not 1.{'0' * 55}..."),
    ("devices: {include: [▸true]}", "devices.include[0]", f"true chooses no GPU; {SELECTOR}"),
    ("devices: {exclude: [▸2.50]}", "devices.exclude[0]", f"2.50 chooses no GPU; {SELECTOR}"),
    (
        "health: {probeInterval: ▸6e+1}",
        "health.probeInterval",
        "expected a duration with a unit, such as 30s, 5m or 1h30m, not 6e+1",
    ),
    ("health: {probeInterval: ▸-5s}", "health.probeInterval", "expected a duration that is not negative, such as 30s, not '-5s'"),
    ("health: {probeInterval: ▸-}", "health.probeInterval", "expected a duration with a unit, such as 30s, 5m or 1h30m, not '-'"),
    (
        "flags: {gfd: {sleepInterval: ▸-1h30m}}",
        "flags.gfd.sleepInterval",
        "expected a duration that is not negative, such as 30s, not '-1h30m'",
    ),
    (SLICING % "{name: gpu, replicas: ▸2.5}", f"{ENTRY}.replicas", "expected a whole number, not 2.5"),
    (SLICING % "{name: gpu, replicas: ▸two}", f"{ENTRY}.replicas", "expected a whole number, not 'two'"),
    (SLICING % "{name: ▸5, replicas: 2}", f"{ENTRY}.name", "expected a resource name such as nvidia.com/gpu, not 5"),
    (
        SLICING % "{name: ▸bad name, replicas: 2}",
        f"{ENTRY}.name",
        (
            "resource name 'bad name': the part after the domain must be letters, digits, '-', '_' or '.', and start and end with "
            "a letter or digit"
        ),
    ),
    (
        SLICING % "{name: gpu, replicas: 2, rename: ▸kubernetes.io/gpu}",
        f"{ENTRY}.rename",
        "resource name 'kubernetes.io/gpu': kubelet refuses the domain kubernetes.io and names starting with requests.",
    ),
    (
        SLICING % "{name: gpu, replicas: 2, devices: ▸some}",
        f"{ENTRY}.devices",
        "expected \"all\", a count above 0, or a list of devices, not 'some'",
    ),
    (
        SLICING % "{name: ▸a.example/b/c, replicas: 2}",
        f"{ENTRY}.name",
        "resource name 'a.example/b/c' has more than one '/'; expected domain/name",
    ),
    (
        'resources: {mig: [{pattern: "*", name: ▸Example.com/gpu}]}',
        "resources.mig[0].name",
        "resource name 'Example.com/gpu': the domain must be lower-case letters, digits, '-' and '.' (a DNS-1123 subdomain)",
    ),
    (
        SLICING % f"{{name: ▸{'d' * 245}/gpu, replicas: 2}}",
        f"{ENTRY}.name",
        f"resource name '{'d' * 245}/gpu': the domain has 245 characters, at most 244 are allowed",
    ),
    (
        SLICING % f"{{name: gpu, replicas: 2, rename: ▸{'g' * 64}}}",
        f"{ENTRY}.rename",
        f"resource name '{'g' * 64}': the part after the domain has 64 characters, at most 63 are allowed",
    ),
    (SLICING % "{name: gpu, replicas: 2, devices: ▸-2}", f"{ENTRY}.devices", "expected a count above 0, not -2"),
    (
        SLICING % "{name: gpu, replicas: 2, devices: ▸2.0}",
        f"{ENTRY}.devices",
        'expected "all", a count above 0, or a list of devices, not 2.0',
    ),
    (
        SLICING % "{name: gpu, replicas: 2, ▸devices: }",
        f"{ENTRY}.devices",
        'expected "all", a count above 0, or a list of devices, not nothing',
    ),
    (
        SLICING % "{name: gpu, replicas: 2, devices: [0, ▸GPU-UUID]}",
        f"{ENTRY}.devices[1]",
        "'GPU-UUID' names no device; expected an index (0), a MIG index (\"0:1\"), GPU-<uuid> or MIG-<uuid>",
    ),
    (SLICING % '{name: gpu, replicas: 2, devices: [0, ▸"0"]}', f"{ENTRY}.devices[1]", "device 0 is named twice in this list"),
    (
        "sharing: {mps: ▸{resources: [{name: gpu, replicas: 2}]}}",
        "sharing.mps",
        "sharing through MPS is not supported; remove it, or share by sharing.timeSlicing, which isolates nothing",
    ),
    ("imex: {channelIDs: ▸[2]}", "imex.channelIDs", "expected [] or [0], not [2]"),
    (
        "imex: {channelIDs: ▸[0, 1, 2, 3, 4, 5, 6, 7, 8]}",
        "imex.channelIDs",
        "expected [] or [0], not [0, 1, 2, 3, 4, 5, 6, 7, ...]",
    ),
    (
        "imex: {channelIDs: [▸0x0]}",
        "imex.channelIDs[0]",
        "0x0 may be read as different numbers; write it in plain decimal, or quote it if it is text",
    ),
    ("imex: {channelIDs: ▸0}", "imex.channelIDs", "expected [] or [0], not 0"),
    ("imex: {channelIDs: ▸[false]}", "imex.channelIDs", "expected [] or [0], not [false]"),
    (
        'resources: {gpus: [{pattern: ▸"", name: gpu}]}',
        "resources.gpus[0].pattern",
        "expected at least one character, not an empty text",
    ),
    (
        "devices: {include: [▸1.5]}",
        "devices.include[0]",
        f"1.5 chooses no GPU; {SELECTOR}",
    ),
    (
        'devices: {include: [0, ▸"0:1"]}',
        "devices.include[1]",
        f"'0:1' means a MIG device, and whole GPUs are chosen here; {SELECTOR}",
    ),
    (
        f"devices: {{exclude: [▸MIG-{UUID}]}}",
        "devices.exclude[0]",
        f"'MIG-{UUID}' means a MIG device, and whole GPUs are chosen here; {SELECTOR}",
    ),
    ("health: {probeInterval: ▸30}", "health.probeInterval", "expected a duration with a unit, such as 30s, 5m or 1h30m, not 30"),
    ("health: {probeInterval: ▸0s}", "health.probeInterval", "expected a duration longer than 0s, not '0s'"),
    ("health: {probeInterval: ▸9999999h}", "health.probeInterval", "expected a duration of at most 292 years, not '9999999h'"),
    ("health: {policy: ▸gcp}", "health.policy", "expected catalogue, nvidia-device-plugin or gke, not 'gcp'"),
    (
        "health: {classes: {▸RESET: ignore}}",
        "health.classes.RESET",
        f"expected {', '.join(list(XidClass)[:-1])} or UNKNOWN, not 'RESET'; did you mean 'RESET_GPU'?",
    ),
    ("health: {xids: {79: ▸fatal}}", "health.xids.79", "expected ignore, untilReset, untilReboot or askDriver, not 'fatal'"),
    ("health: {xids: {▸79: }}", "health.xids.79", f"expected {ACTIONS}, not nothing"),
    ("health:\n  classes:\n    ▸RESET_GPU:\n", "health.classes.RESET_GPU", f"expected {ACTIONS}, not nothing"),
    ("health: {xids: {▸x79: ignore}}", "health.xids.x79", "'x79' is no XID; expected its number, such as 79"),
    ("health: {disableXids: [79, ▸x]}", "health.disableXids[1]", "'x' is no XID; expected its number, such as 79, or \"all\""),
    ("health: {enableXids: ▸79}", "health.enableXids", 'expected "all" or a list of XIDs, not 79'),
]
CONTRADICTIONS = [
    (
        SLICING % "{name: other, replicas: 2}, {name: gpu, replicas: 2, devices: [1]}, {name: gpu, replicas: 3, devices: [▸1]}",
        "sharing.timeSlicing.resources[2].devices[0]",
        "device 1 of nvidia.com/gpu is claimed by another entry already, at c.yaml:1:100",
    ),
    (
        SLICING % "{name: gpu, replicas: 2, devices: [0, 1]}, {name: gpu, replicas: 3, devices: [▸1]}",
        "sharing.timeSlicing.resources[1].devices[0]",
        "device 1 of nvidia.com/gpu is claimed by another entry already, at c.yaml:1:75",
    ),
    (
        SLICING % "{name: gpu, replicas: 2}, ▸{name: nvidia.com/gpu, replicas: 3, devices: [1]}",
        "sharing.timeSlicing.resources[1]",
        "nothing of nvidia.com/gpu is left for this entry: an earlier one takes all, at c.yaml:1:37; put this one before it",
    ),
    (
        SLICING % "{name: gpu, replicas: 2, devices: 1, allocationPolicy: packed}, {name: gpu, replicas: 2, devices: 1}, "
        "{name: gpu, replicas: 3, allocationPolicy: ▸distinct}",
        "sharing.timeSlicing.resources[2].allocationPolicy",
        "nvidia.com/gpu cannot be allocated both distinct and packed, stated at c.yaml:1:92",
    ),
    (
        SLICING % "{name: gpu, replicas: 2, rename: a, devices: 1, allocationPolicy: packed}, "
        "{name: gpu, replicas: 2, rename: b, devices: 1, allocationPolicy: distinct}, "
        "{name: gpu, replicas: 3, rename: b, allocationPolicy: ▸packed}",
        "sharing.timeSlicing.resources[2].allocationPolicy",
        "nvidia.com/b cannot be allocated both packed and distinct, stated at c.yaml:1:178",
    ),
    (
        "sharing:\n  timeSlicing:\n    resources:\n    - &x {name: gpu, replicas: 2, devices: [0]}\n    - ▸*x\n",
        "sharing.timeSlicing.resources[1].devices[0]",
        "device 0 of nvidia.com/gpu is claimed by another entry already, at c.yaml:4:45",
    ),
    (
        "sharing:\n  timeSlicing:\n    resources:\n    - &x {name: gpu, replicas: 2}\n    - ▸*x\n",
        "sharing.timeSlicing.resources[1]",
        "nothing of nvidia.com/gpu is left for this entry: an earlier one takes all, at c.yaml:4:7; put this one before it",
    ),
    (
        SLICING % "{name: gpu, replicas: 2, devices: &d [0]}, {name: gpu, replicas: 3, devices: ▸*d}",
        "sharing.timeSlicing.resources[1].devices[0]",
        "device 0 of nvidia.com/gpu is claimed by another entry already, at c.yaml:1:75",
    ),
    (
        SLICING % "&x {name: gpu, replicas: 2, devices: [0]}, {<<: ▸*x, replicas: 3}",
        "sharing.timeSlicing.resources[1].devices[0]",
        "device 0 of nvidia.com/gpu is claimed by another entry already, at c.yaml:1:75",
    ),
]


def expected_and_found(marked, path, message):
    """The one line that a text should give, without a path where that is empty, and the problems that it gives."""
    before, _, after = marked.partition("▸")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    with pytest.raises(ConfigError) as caught:
        load(before + after, file="c.yaml")
    return [f"c.yaml:{line}:{column}: error: {path}: {message}".replace(": : ", ": ")], caught.value.problems


@pytest.mark.parametrize(("marked", "message"), SYNTAX)
def test_what_is_wrong_with_the_whole_text_has_a_place_and_no_path(marked, message):
    expected, problems = expected_and_found(marked, "", message)
    assert expected == [str(problem) for problem in problems]
    assert problems[0].kind is ProblemKind.CONFIG


@pytest.mark.parametrize(("marked", "path", "message"), [*YAML_SURPRISES, *KEYS, *VALUES])
def test_one_fault_gives_one_problem_at_its_place(marked, path, message):
    expected, problems = expected_and_found(marked, path, message)
    assert expected == [str(problem) for problem in problems]
    assert problems[0].kind is ProblemKind.CONFIG


@pytest.mark.parametrize(("marked", "path", "message"), CONTRADICTIONS)
def test_a_contradiction_names_both_places(marked, path, message):
    expected, problems = expected_and_found(marked, path, message)
    assert expected == [str(problem) for problem in problems]
    assert problems[0].kind is ProblemKind.CONTRADICTION


@pytest.mark.parametrize("strategy", ["none", "single", "mixed"])
@pytest.mark.parametrize("beside", ["", ", timeSlicing: {resources: [{name: gpu, replicas: 2}]}"])
def test_mps_is_refused_before_any_device_is_looked_at(strategy, beside):
    """One program of the peer refused MPS on MIG devices, another ignored it (NVIDIA/k8s-device-plugin#537,
    NVIDIA/k8s-device-plugin#713), and beside time-slicing it won without a word: here there is one judge of a file, and it says no.
    """
    expected, problems = expected_and_found(
        f"flags: {{migStrategy: {strategy}}}\nsharing: {{mps: ▸{{resources: [{{name: mig-1g.5gb, replicas: 2}}]}}{beside}}}",
        "sharing.mps",
        "sharing through MPS is not supported; remove it, or share by sharing.timeSlicing, which isolates nothing",
    )
    assert expected == [str(problem) for problem in problems]


def test_a_name_that_the_suffix_makes_too_long_is_refused():
    """The peer checks the name without `.shared`, and kubelet then refuses the registration for ever
    (koordinator-sh/koordinator#1025)."""
    name = "g" * 60
    expected, problems = expected_and_found(
        f"sharing: {{timeSlicing: {{renameByDefault: true, resources: [{{name: ▸{name}, replicas: 2}}]}}}}",
        f"{ENTRY}.name",
        f"with the suffix of renameByDefault, resource name 'nvidia.com/{name}.shared': the part after the domain has 67 "
        "characters, at most 63 are allowed; give it a shorter `rename`",
    )
    assert expected == [str(problem) for problem in problems]


def test_every_problem_is_reported_at_once_in_file_order():
    """A misspelt key was silently ignored, one fault at a time (Project-HAMi/HAMi#2940)."""
    text = """\
version: v2
sharing:
  timeSlicing:
    renameByDefalt: true
    resources:
    - name: gpu
      replicas: 2
      devices: [0, 5.0, x, 1:0]
    - name: gpu
      replicas: 0
    - name: gpu
      replicas: 2
    - name: gpu
      replicas: 4
flags:
  failOnInitError: yes
  failOnInitError: maybe
  plugin: {deviceListStrategy: [envar]}
---
version: v1
"""
    with pytest.raises(ConfigError) as caught:
        load(text, file="c.yaml", environment={"MIG_STRATEGY": "most"}, flags={"gds-enabled": "perhaps"})
    assert [str(problem).split(" error: ")[0] for problem in caught.value.problems] == [
        "c.yaml:1:10:", "c.yaml:4:5:", "c.yaml:8:20:", "c.yaml:8:25:", "c.yaml:8:28:", "c.yaml:10:17:", "c.yaml:13:7:",
        "c.yaml:16:20:", "c.yaml:17:3:", "c.yaml:18:33:", "c.yaml:19:1:", "--gds-enabled:", "MIG_STRATEGY:",
    ]  # fmt: skip
    assert {problem.severity for problem in caught.value.problems} == {Severity.ERROR}
    assert str(caught.value).splitlines() == [str(problem) for problem in caught.value.problems]


def test_a_wrong_key_and_its_wrong_value_are_two_problems():
    """The value is refused while the text is read, the key later on."""
    with pytest.raises(ConfigError) as caught:
        load("flags:\n  migStrategi: yes\n", file="c.yaml")
    assert [str(problem) for problem in caught.value.problems] == [
        "c.yaml:2:3: error: flags.migStrategi: unknown key 'migStrategi'; did you mean 'migStrategy'?",
        "c.yaml:2:16: error: flags.migStrategi: yes may be read as true or false; write true or false, or quote it if it is text",
    ]


def test_a_problem_knows_its_path_in_the_format():
    with pytest.raises(ConfigError) as caught:
        load(SLICING % "{name: gpu, replicas: 1, devices: 1}, {name: gpu, replicas: 2, devices: [x]}", file="c.yaml")
    assert [problem.origin.path for problem in caught.value.problems] == [
        "sharing.timeSlicing.resources[1].devices[0]",
    ]


def test_an_entry_behind_a_broken_one_keeps_its_place_and_path():
    with pytest.raises(ConfigError) as caught:
        load(SLICING % "{name: gpu}, {name: gpu, replicas: 2}, {name: gpu, replicas: 3}", file="c.yaml")
    assert [problem.origin.path for problem in caught.value.problems] == [
        "sharing.timeSlicing.resources[0]",
        "sharing.timeSlicing.resources[2]",
    ]


def test_an_alias_behind_a_broken_entry_contradicts_at_its_own_place_too():
    with pytest.raises(ConfigError) as caught:
        load(SLICING % "&x {name: gpu, replicas: 2, devices: [0]}, {name: gpu}, *x", file="c.yaml")
    assert [(problem.origin.column, problem.origin.path) for problem in caught.value.problems] == [
        (80, "sharing.timeSlicing.resources[1]"),
        (93, "sharing.timeSlicing.resources[2].devices[0]"),
    ]


def test_what_comes_through_an_alias_several_times_is_said_once():
    with pytest.raises(ConfigError) as caught:
        load("resources:\n  gpus: &list\n  - {pattern: a, name: $}\n  mig: *list\n", file="c.yaml")
    assert [(problem.origin.line, problem.origin.column, problem.origin.path) for problem in caught.value.problems] == [
        (3, 24, "resources.gpus[0].name")
    ]


LARGE = [
    lambda count: "".join(f"key{number}: 1\n" for number in range(count)),
    lambda count: SLICING % f"{{name: gpu, replicas: 2, devices: [{', '.join(map(str, range(count)))}]}}",
    lambda count: SLICING % f"{{name: gpu, replicas: 2, devices: [{', '.join(['x'] * count)}]}}",
    lambda count: SLICING % ", ".join("{name: gpu, replicas: 0, replicas: 1}" for _ in range(count // 4)),
    lambda count: "resources:\n  gpus:\n" + "".join(f"  - {{pattern: A{number}, name: a}}\n" for number in range(count // 2)),
]


@pytest.mark.parametrize("text", LARGE, ids=["unknown keys", "devices", "wrong devices", "entries wrong twice", "patterns"])
def test_the_time_for_a_text_does_not_grow_with_the_square_of_its_length(text):
    """A config is read on the loop that answers kubelet: what grew so would keep pods waiting."""

    def seconds(count):
        began = time.process_time()
        with contextlib.suppress(ConfigError):
            load(text(count), file="c.yaml")
        return time.process_time() - began

    seconds(10)  # what is made at the first use
    assert seconds(8000) < 8 * seconds(2000) + 0.5, "four times as long where each line costs the same, sixteen for the square"


@pytest.mark.parametrize("text", ["\n" * 100_000, "\n{ " * 30_000], ids=["empty lines", "brackets"])
def test_a_large_variable_takes_no_long_time(text):
    """Every variable of the container is looked at for a config that came there by mistake."""
    began = time.process_time()
    load(None, environment={"OF_SOMEBODY_ELSE": text})
    assert time.process_time() - began < 4


BLOWN_UP = "more than 20000 values, counting each alias as often as it is used"


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        (
            "flags:\n- &l0 [x]\n" + "".join(f"- &l{n} [{', '.join([f'*l{n - 1}'] * 10)}]\n" for n in range(1, 9)),
            "2:8",
            BLOWN_UP,
        ),
        ("devices:\n  include:\n" + "  - a\n" * 20_000, "19998:5", BLOWN_UP),
        (
            "flags:\n  l0: &l0 {a: 1}\n"
            + "".join(f"  l{n}: &l{n} {{<<: [{', '.join([f'*l{n - 1}'] * 10)}]}}\n" for n in range(1, 12)),
            "2:7",
            BLOWN_UP,
        ),
        (
            "flags:\n- &l {" + ", ".join(f"k{n}: 1" for n in range(3000)) + "}\n- {<<: [" + ", ".join(["*l"] * 3000) + "]}\n",
            "2:3",
            BLOWN_UP,
        ),
        (
            "flags:\n- &l0 [x]\n" + "".join(f"- &l{n} [*l{n - 1}]\n" for n in range(1, 3000)),
            "2:8",
            "nested deeper than 32 levels",
        ),
    ],
    ids=["aliases", "plain values", "merge keys", "a wide merge", "a chain of aliases"],
)
def test_what_grows_out_of_a_text_is_refused_rather_than_followed(text, place, message):
    began = time.process_time()
    with pytest.raises(ConfigError) as caught:
        load(text, file="c.yaml")
    assert time.process_time() - began < 4
    assert [str(problem) for problem in caught.value.problems] == [f"c.yaml:{place}: error: {message}"]


def test_nesting_without_end_is_refused():
    with pytest.raises(ConfigError):
        load(f"flags: {'[' * 5000}{']' * 5000}")


def node(count, *split):
    """GPUs 0 to `count` - 1; those in `split` have one MIG device each."""
    attributes = MigAttributes(14, 1, 0, 0, 0, 0, 1, 1, 4864)
    mig = {index: MigDevice(f"MIG-{index}", 0, 7, 0, "1g.5gb", attributes) for index in split}
    return Inventory(
        gpus=tuple(
            Gpu(index, UUID_OF % index, "NVIDIA A100", mig_enabled=index in mig, mig_devices=(mig[index],) if index in mig else ())
            for index in range(count)
        )
    )


UUID_OF = f"GPU-{UUID[:-1]}%d"
LISTED = "let one entry claim it, and put lists of devices before counts and all"
PLANNED = [
    (
        SLICING % f"{{name: gpu, replicas: 2, devices: [0, ▸{UUID_OF % 0}]}}",
        node(2),
        ("warning", ProblemKind.CONFIG),
        f"{ENTRY}.devices[1]",
        f"'{UUID_OF % 0}' names device 0 ({UUID_OF % 0}) a second time",
    ),
    (
        SLICING % f"{{name: gpu, replicas: 2, devices: [0]}}, {{name: gpu, replicas: 3, devices: [▸{UUID_OF % 0}]}}",
        node(2),
        ("error", ProblemKind.CONTRADICTION),
        "sharing.timeSlicing.resources[1].devices[0]",
        f"device 0 ({UUID_OF % 0}) is claimed by {ENTRY} (c.yaml:1:37) already, which keeps it; {LISTED}",
    ),
    (
        (
            "sharing:\n  timeSlicing:\n    resources:\n    - {name: gpu, replicas: 2, devices: 1}\n"
            "    - name: gpu\n      replicas: 3\n      devices:\n      - ▸0\n"
        ),
        node(2),
        ("error", ProblemKind.CONTRADICTION),
        "sharing.timeSlicing.resources[1].devices[0]",
        f"device 0 ({UUID_OF % 0}) is claimed by {ENTRY} (c.yaml:4:7) already, which keeps it; {LISTED}",
    ),
    (
        "flags: {migStrategy: mixed}\n" + SLICING % "{name: gpu, replicas: 2, rename: a, allocationPolicy: packed}, "
        "{name: mig-1g.5gb, replicas: 2, rename: a, allocationPolicy: ▸distinct}",
        node(2, 1),
        ("error", ProblemKind.CONTRADICTION),
        "sharing.timeSlicing.resources[1].allocationPolicy",
        f"nvidia.com/a cannot be distinct and packed: {ENTRY} (c.yaml:2:37) says the latter, which holds",
    ),
    (
        SLICING % "{name: gpu, replicas: 1, devices: 1}, {name: gpu, replicas: ▸100000}",
        node(2),
        ("error", ProblemKind.TOO_LARGE),
        "sharing.timeSlicing.resources[1].replicas",
        (
            "the list of nvidia.com/gpu would take 6188945 bytes, and kubelet takes 4194304 at most: at most 67828 replicas of "
            "each of its 2 devices fit. As they are, the first 1 of 100001 do"
        ),
    ),
    (
        "version: v1\nflags:\n  migStrategy: ▸single\n",
        node(2, 1),
        ("error", ProblemKind.MIG_SINGLE),
        "flags.migStrategy",
        (
            "the MIG strategy single needs all GPUs split alike, or none, but GPU 0: no MIG mode; GPU 1: 1 x 1g.5gb; nothing is "
            "offered. Split them alike, hide some with devices.exclude, or choose the MIG strategy mixed"
        ),
    ),
]


@pytest.mark.parametrize(("marked", "inventory", "kinds", "path", "message"), PLANNED)
def test_what_only_a_node_brings_out_has_its_place_in_the_file(marked, inventory, kinds, path, message):
    before, _, after = marked.partition("▸")
    line, column = before.count("\n") + 1, len(before) - before.rfind("\n")
    severity, kind = kinds
    offer = plan(inventory, load(before + after, file="c.yaml").config)
    found = [problem for problem in offer.problems if problem.kind is kind and problem.severity == severity]
    assert [f"c.yaml:{line}:{column}: {severity}: {path}: {message}"] == [str(problem) for problem in found]


@pytest.mark.parametrize(
    ("path", "message", "shown"),
    [
        ("", "there is no such file", "there is no such file"),
        ("flag", "unknown key 'flag'", "unknown key 'flag'"),
        ("flags", "expected keys and values, not 'flags'", "flags: expected keys and values, not 'flags'"),
        ("imex.required", "imex.required has no effect", "imex.required has no effect"),
        ("devices", "devices.include hides nothing", "devices: devices.include hides nothing"),
        ("resources.gpus", "here: resources.gpus[0].name", "resources.gpus: here: resources.gpus[0].name"),
        ("resources.gpus", "here: resources.gpus, devices", "here: resources.gpus, devices"),
        ("resources.gpus", "look at resources.gpus.", "look at resources.gpus."),
        ("gpus", "see resources.gpus", "gpus: see resources.gpus"),
    ],
)
def test_a_line_names_the_path_once(path, message, shown):
    problem = Problem(Severity.ERROR, ProblemKind.CONFIG, message, Origin("c.yaml", 2, 3, path))
    assert str(problem) == f"c.yaml:2:3: error: {shown}"


@pytest.mark.parametrize(
    ("key", "path"),
    [('"a\\nb"', r"flags.'a\nb'"), ('""', "flags"), (f'"{"k" * 99}"', f"flags.'{'k' * 57}...'"), ("ä.b", "flags.ä.b")],
)
def test_no_key_spoils_the_line_that_names_it(key, path):
    """A line break in a key made two lines of one problem."""
    with pytest.raises(ConfigError) as caught:
        load(f"flags: {{{key}: 1}}", file="c.yaml")
    [line] = str(caught.value).splitlines()
    assert line.startswith(f"c.yaml:1:9: error: {path}: unknown key ")
