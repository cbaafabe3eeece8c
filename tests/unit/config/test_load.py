"""Where values come from, what the peer's files and variables mean, and what a Config remembers of its origins."""

from __future__ import annotations

import csv
import hashlib
from pathlib import Path
from typing import Literal

import pytest
from pydantic import BaseModel, ValidationError

from device_plugin import health
from device_plugin.config.durations import FOREVER
from device_plugin.config.explain import Explanation, explain
from device_plugin.config.load import load, text_hash
from device_plugin.config.model import Config, Health
from device_plugin.config.values import AllocationPolicy, DeviceListStrategy, MigStrategy, XidAction
from device_plugin.config.xids import XidClass, XidPolicy, XidSet
from device_plugin.errors import ConfigError
from device_plugin.problems import Origin


def config(text=None, **given):
    return load(text, file="c.yaml", **given).config


def values_of(config):
    """What a Config states, without where it was stated."""
    return config.model_dump()


def messages(text=None, **given):
    with pytest.raises(ConfigError) as caught:
        load(text, file="c.yaml", **given)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    "text",
    [None, "", "\n", "# nothing\n", "{}", "null", "~", "---\n", "--- \n...\n", "version: v1", 'version: ""', "\ufeffversion: v1"],
)
def test_an_empty_config_is_all_defaults(text):
    assert values_of(config(text)) == values_of(Config())


def test_json_is_yaml():
    text = '{\n\t"version": "v1",\n\t"flags": {"migStrategy": "mixed"}\n}\n'
    assert config(text).flags.mig_strategy is MigStrategy.MIXED


def test_keys_without_values_count_as_absent():
    """As for the peer, whose templates leave such keys behind."""
    text = "flags: {migStrategy: , failOnInitError: null, plugin: , gfd: ~}\nresources:\nsharing:\n  mps:\nimex: {channelIDs: }\n"
    text += "devices:\nhealth: {xids: , classes: , probeInterval: }\n"
    assert values_of(config(text)) == values_of(Config())


class TestPrecedence:
    FILE = "flags: {migStrategy: single, plugin: {deviceListStrategy: [envvar, volume-mounts]}}"

    def test_each_setting_is_decided_by_itself(self):
        result = config(
            self.FILE + "\nimex: {required: true}",
            environment={"MIG_STRATEGY": "mixed", "GDS_ENABLED": "true"},
            flags={"gds-enabled": "false"},
        )
        assert result.flags.mig_strategy is MigStrategy.MIXED
        assert result.flags.gds_enabled is False
        assert result.imex.required is True
        assert result.flags.plugin.device_list_strategy == (DeviceListStrategy.ENVVAR, DeviceListStrategy.VOLUME_MOUNTS)

    def test_a_list_replaces_the_one_below(self):
        result = config(self.FILE, flags={"device-list-strategy": "cdi-cri"})
        assert result.flags.plugin.device_list_strategy == (DeviceListStrategy.CDI_CRI,)
        assert result.origin("flags.plugin.deviceListStrategy[0]").source == "--device-list-strategy"

    def test_the_first_variable_present_wins_even_if_empty(self):
        environment = {"NVIDIA_CDI_HOOK_PATH": "", "NVIDIA_CTK_PATH": "/usr/bin/other"}
        assert messages(environment=environment) == [
            "NVIDIA_CDI_HOOK_PATH: error: flags.plugin.nvidiaCTKPath: expected an absolute path, not an empty text"
        ]

    @pytest.mark.parametrize("flag", ["nvidia-driver-root", "driver-root"])
    def test_a_flag_answers_to_all_its_names(self, flag):
        result = config("flags: {nvidiaDriverRoot: /a}", environment={"NVIDIA_DRIVER_ROOT": "/b"}, flags={flag: "/c"})
        assert result.flags.nvidia_driver_root == "/c"
        assert result.origin("flags.nvidiaDriverRoot") == Origin(f"--{flag}", path="flags.nvidiaDriverRoot")

    def test_a_file_is_checked_even_where_it_is_overruled(self):
        assert messages("flags: {migStrategy: most}", environment={"MIG_STRATEGY": "mixed"}) == [
            "c.yaml:1:22: error: flags.migStrategy: expected none, single or mixed, not 'most'"
        ]

    def test_what_is_no_setting_in_the_environment_is_nobodys_business(self):
        assert config(environment={"PATH": "\udcff", "KUBELET_SOCKET": "x", "migStrategy": "mixed"}).flags == Config().flags


class TestEnvironment:
    @pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
    def test_spellings_of_true(self, text):
        assert config(environment={"PASS_DEVICE_SPECS": text}).flags.plugin.pass_device_specs is True

    @pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False", ""])
    def test_spellings_of_false(self, text):
        assert config(environment={"FAIL_ON_INIT_ERROR": text}).flags.fail_on_init_error is False

    @pytest.mark.parametrize("text", ["yes", "on", "tRUE", " true", "2"])
    def test_other_spellings_are_refused(self, text):
        assert messages(environment={"GDS_ENABLED": text}) == [
            f"GDS_ENABLED: error: flags.gdsEnabled: expected true or false (also 1, t, 0, f), not {text!r}"
        ]

    def test_lists_are_split_and_trimmed(self):
        strategies = config(environment={"DEVICE_LIST_STRATEGY": " envvar , cdi-cri"}).flags.plugin.device_list_strategy
        assert strategies == (DeviceListStrategy.ENVVAR, DeviceListStrategy.CDI_CRI)

    def test_an_empty_list_of_names_is_refused(self):
        assert messages(environment={"DEVICE_LIST_STRATEGY": ""}) == [
            (
                "DEVICE_LIST_STRATEGY: error: flags.plugin.deviceListStrategy: expected envvar, volume-mounts, cdi-annotations or "
                "cdi-cri, not an empty text"
            )
        ]

    def test_an_empty_list_of_numbers_is_as_if_unset(self):
        assert config("imex: {channelIDs: [0]}", environment={"IMEX_CHANNEL_IDS": ""}).imex.channel_ids == (0,)

    def test_numbers(self):
        assert config(environment={"IMEX_CHANNEL_IDS": "0"}).imex.channel_ids == (0,)
        assert messages(environment={"IMEX_CHANNEL_IDS": "2"}) == [
            "IMEX_CHANNEL_IDS: error: imex.channelIDs: expected [] or [0], not [2]"
        ]
        assert messages(environment={"IMEX_CHANNEL_IDS": "0,x"}) == [
            "IMEX_CHANNEL_IDS: error: imex.channelIDs: expected whole numbers, not 'x'"
        ]

    def test_empty_roots_mean_what_they_mean_to_the_peer(self):
        result = config(environment={"NVIDIA_DRIVER_ROOT": "", "NVIDIA_DEV_ROOT": "", "MPS_ROOT": "", "CONTAINER_DRIVER_ROOT": ""})
        assert (result.flags.nvidia_driver_root, result.flags.dev_root, result.flags.mps_root) == ("/", "/", None)
        assert result.flags.plugin.container_driver_root == "/"

    def test_text_that_is_not_utf8_is_refused(self):
        assert messages(environment={"NVIDIA_DRIVER_ROOT": "/\udcff"}) == [
            "NVIDIA_DRIVER_ROOT: error: flags.nvidiaDriverRoot: expected text in UTF-8"
        ]


class TestFlags:
    def test_a_flag_may_be_repeated(self):
        strategies = config(flags={"device-list-strategy": ["envvar", "cdi-cri,volume-mounts"]}).flags.plugin.device_list_strategy
        assert [strategy.value for strategy in strategies] == ["envvar", "cdi-cri", "volume-mounts"]

    def test_of_repeated_single_values_the_last_wins(self):
        assert config(flags={"mig-strategy": ["single", "mixed"]}).flags.mig_strategy is MigStrategy.MIXED
        assert config(flags={"gds-enabled": ["true", "false"]}).flags.gds_enabled is False

    def test_a_bool_may_be_given_as_such(self):
        assert config(flags={"gds-enabled": True}).flags.gds_enabled is True

    def test_errors_name_the_flag(self):
        assert messages(flags={"mig-strategy": "bogus", "no-such": "1"}) == [
            "--no-such: error: unknown flag --no-such",
            "--mig-strategy: error: flags.migStrategy: expected none, single or mixed, not 'bogus'",
        ]


class TestOrigins:
    def test_every_value_knows_where_it_was_stated(self):
        text = "flags:\n  migStrategy: mixed\nsharing:\n  timeSlicing:\n    resources:\n    - name: gpu\n      replicas: 2\n"
        result = config(text, environment={"GDS_ENABLED": "1"})
        assert result.origin("flags.migStrategy") == Origin("c.yaml", 2, 16, "flags.migStrategy")
        assert result.origin("flags.gdsEnabled") == Origin("GDS_ENABLED", path="flags.gdsEnabled")
        assert result.origin("flags.mofedEnabled") == Origin("default", path="flags.mofedEnabled")
        assert result.origin("sharing.timeSlicing.resources[0].replicas").line == 7

    def test_an_unstated_value_of_an_entry_has_the_place_of_the_entry(self):
        result = config("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}")
        assert result.origin("sharing.timeSlicing.resources[0].devices") == Origin(
            "c.yaml", 1, 37, "sharing.timeSlicing.resources[0]"
        )

    def test_a_value_that_came_by_an_alias_has_the_place_where_it_was_written(self):
        text = "devices:\n  include: &list [7]\n  exclude: *list\n"
        result = config(text)
        assert (result.devices.include, result.devices.exclude) == (("7",), ("7",))
        assert result.origin("devices.exclude[0]") == Origin("c.yaml", 2, 19, "devices.exclude[0]")


def test_merge_keys_give_what_the_mapping_does_not_have_itself():
    text = """\
sharing:
  timeSlicing:
    resources:
    - &base {name: gpu, replicas: 4, devices: [0]}
    - <<: *base
      devices: [1]
"""
    first, second = config(text).sharing.time_slicing.resources
    assert (second.name, second.replicas) == (first.name, first.replicas) == ("nvidia.com/gpu", 4)
    assert (first.devices, second.devices) == (("0",), ("1",))


def test_sharing_of_one_node_in_several_ways():
    """All GPUs became shared when one was named (NVIDIA/k8s-device-plugin#628), and the new name was ignored
    (NVIDIA/k8s-device-plugin#353)."""
    text = """\
sharing:
  timeSlicing:
    resources:
    - {name: gpu, rename: gpu.shared, devices: [0], replicas: 10, allocationPolicy: distinct}
    - {name: nvidia.com/gpu, devices: 1, replicas: 2}
    - {name: nvidia.com/gpu, replicas: 1}
"""
    slicing = config(text).sharing.time_slicing
    assert [(entry.name, entry.devices, entry.replicas) for entry in slicing.resources] == [
        ("nvidia.com/gpu", ("0",), 10),
        ("nvidia.com/gpu", 1, 2),
        ("nvidia.com/gpu", "all", 1),
    ]
    assert slicing.resources[0].allocation_policy is AllocationPolicy.DISTINCT
    assert slicing.offered_name(slicing.resources[0]) == "nvidia.com/gpu.shared"


@pytest.mark.parametrize(
    ("replicas", "rename", "name"), [(2, "", "nvidia.com/gpu.shared"), (1, "", "nvidia.com/gpu"), (2, "rename: x/y, ", "x/y")]
)
def test_the_name_on_offer_under_rename_by_default(replicas, rename, name):
    text = f"sharing: {{timeSlicing: {{renameByDefault: true, resources: [{{name: gpu, {rename}replicas: {replicas}}}]}}}}"
    slicing = config(text).sharing.time_slicing
    assert slicing.offered_name(slicing.resources[0]) == name


class TestTheOtherProgramsKeys:
    @pytest.mark.parametrize(
        ("text", "nanoseconds"),
        [
            ("0", 0),
            ('"0"', 0),
            ('"0s"', 0),
            ("5", 5),
            ('"5s"', 5 * 10**9),
            ("60s", 60 * 10**9),
            ("infinite", FOREVER),
            ("1h30m", 5400 * 10**9),
        ],
    )
    def test_intervals(self, text, nanoseconds):
        assert config(f"flags: {{gfd: {{sleepInterval: {text}}}}}").flags.gfd.sleep_interval == nanoseconds

    @pytest.mark.parametrize(("text", "printed"), [("5", '"5ns"'), ("infinite", '"infinite"')])
    def test_intervals_are_printed_as_the_peer_does(self, text, printed):
        assert f'"sleepInterval":{printed}' in config(f"flags: {{gfd: {{sleepInterval: {text}}}}}").model_dump_json(by_alias=True)

    def test_an_empty_block_states_nothing(self):
        gfd = config("flags: {gfd: {}}").flags.gfd
        assert gfd is not None
        assert set(gfd.model_dump().values()) == {None}


@pytest.mark.parametrize(
    ("text", "expected"), [('"envvar"', ["envvar"]), ('["envvar","cdi-annotations"]', ["envvar", "cdi-annotations"])]
)
def test_list_strategies_of_the_file(text, expected):
    assert [
        s.value for s in config(f"flags: {{plugin: {{deviceListStrategy: {text}}}}}").flags.plugin.device_list_strategy
    ] == expected


@pytest.mark.parametrize(("text", "ids"), [("{}", ()), ("null", ()), ("{channelIDs: []}", ()), ("{channelIDs: [0]}", (0,))])
def test_imex_channels(text, ids):
    assert config(f"imex: {text}").imex.channel_ids == ids


class TestHealth:
    def test_classes_and_single_xids(self):
        health = config('health: {classes: {RESET_GPU: ignore}, xids: {48: untilReboot, "79": askDriver}}').health
        assert health.classes == {XidClass.RESET_GPU: XidAction.IGNORE}
        assert health.xids == {48: XidAction.UNTIL_REBOOT, 79: XidAction.ASK_DRIVER}

    @pytest.mark.parametrize(("text", "policy"), [("gke", XidPolicy.GKE), ("nvidia-device-plugin", XidPolicy.NVIDIA_DEVICE_PLUGIN)])
    def test_either_vendors_default_is_one_setting(self, text, policy):
        """The vendors' defaults are opposite; the policy has to be one setting away
        (GoogleCloudPlatform/container-engine-accelerators#262)."""
        assert config(f"health: {{policy: {text}}}").health.policy is policy

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("", XidSet()),
            ("48, 79,,48", XidSet(xids=(48, 79))),
            ("0", XidSet(xids=(0,))),
            ("ALL", XidSet(all=True)),
            ("xids", XidSet(all=True)),
            ("13,all", XidSet(all=True)),
            ("048,00", XidSet(xids=(0, 48))),
        ],
    )
    def test_the_peers_variables(self, text, expected):
        """0 is a number here; to the peer it meant everything."""
        health = config(environment={"DP_DISABLE_HEALTHCHECKS": text, "DP_ENABLE_HEALTHCHECKS": text}).health
        assert (health.disable_xids, health.enable_xids) == (expected, expected)

    @pytest.mark.parametrize("item", ["x", "-1", "1.5", "18446744073709551616"])
    def test_what_is_no_xid_is_refused(self, item):
        wrong = f'{item!r} is no XID; expected its number, such as 79, or "all"'
        assert messages(f'health: {{enableXids: ["48", "{item}"]}}') == [f"c.yaml:1:29: error: health.enableXids[1]: {wrong}"]
        assert messages(flags={"enable-xids": f"48,{item}"}) == [f"--enable-xids: error: health.enableXids: {wrong}"]

    @pytest.mark.parametrize("item", ["x", "-1", "1.5", "18446744073709551616", "0all", "4 8", "\udcff"])
    def test_what_is_no_xid_in_the_peers_variables_is_skipped(self, item):
        """Fault: a manifest with which NVIDIA's plugin runs, since it skips what is no number, ended the start."""
        environment = {"DP_DISABLE_HEALTHCHECKS": f"68,{item},67,{item}", "DP_ENABLE_HEALTHCHECKS": item}
        loaded = load("health: {enableXids: [48]}", environment=environment)
        assert loaded.config.health.disable_xids == XidSet(xids=(67, 68))
        assert loaded.config.health.enable_xids == XidSet()
        wrong = f'{item!r} is no XID and is skipped; expected its number, such as 79, or "all"'
        assert list(map(str, loaded.problems)) == [
            f"DP_DISABLE_HEALTHCHECKS: warning: health.disableXids: {wrong}",
            f"DP_ENABLE_HEALTHCHECKS: warning: health.enableXids: {wrong}",
        ]

    def test_a_flag_in_place_of_such_a_variable_leaves_nothing_to_say(self):
        loaded = load(None, environment={"DP_DISABLE_HEALTHCHECKS": "x"}, flags={"disable-xids": "48"})
        assert (loaded.config.health.disable_xids, loaded.problems) == (XidSet(xids=(48,)), ())

    def test_a_set_of_xids_holds_its_numbers_or_everything(self):
        assert 48 in XidSet(xids=(48,))
        assert 79 not in XidSet(xids=(48,))
        assert 79 in XidSet(all=True)
        assert XidSet(xids=(0,))
        assert not XidSet()


def test_the_hash_is_of_the_text():
    text = "version: v1\n"
    assert load(text).hash == text_hash(text) == hashlib.sha256(text.encode()).hexdigest()
    assert load(None).hash == ""


def test_a_config_reads_back_from_its_own_dump():
    text = """\
flags: {migStrategy: mixed, gfd: {sleepInterval: 90s}, plugin: {deviceListStrategy: cdi-cri}}
sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2, devices: [0, "1:0"]}]}}
health: {disableXids: [79, 48], enableXids: all, probeInterval: 1m30s, xids: {63: ignore}}
devices: {include: [0, "*A100*"]}
"""
    once = config(text)
    assert values_of(config(once.model_dump_json(by_alias=True, exclude_none=True))) == values_of(once)


def test_the_classes_are_those_of_the_catalogue_and_one_for_the_rest():
    catalogue = Path(health.__file__).with_name("xids.csv").read_text().splitlines()
    classes = {row["immediate_action"] for row in csv.DictReader(line for line in catalogue if not line.startswith("#"))}
    assert set(XidClass) == classes | {"UNKNOWN"}


def test_a_config_made_in_code_takes_the_same_values():
    made = Health(disable_xids=XidSet(xids=(48,)), probe_interval="1m")
    assert (made.disable_xids, made.probe_interval) == (XidSet(xids=(48,)), 60)


def test_a_complaint_of_pydantic_without_words_of_ours_is_passed_on():
    class Model(BaseModel):
        field: Literal["a"]

    with pytest.raises(ValidationError) as caught:
        Model(field="b")
    assert list(explain(caught.value, {})) == [Explanation(("field",), "Input should be 'a'")]
