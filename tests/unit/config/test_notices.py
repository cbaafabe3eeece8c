"""What is valid and deserves a word."""

from __future__ import annotations

import pytest

from device_plugin.config.load import load
from device_plugin.config.notices import find_differences
from device_plugin.problems import ProblemKind, Severity


def notices(text=None, **given):
    return [str(problem) for problem in load(text, file="c.yaml" if text is not None else "", **given).problems]


def test_the_default_needs_no_words():
    assert notices("version: v1", environment={"PATH": "/bin"}) == []


def test_settings_of_the_label_program_are_named_once():
    text = "flags:\n  useNodeFeatureAPI: true\n  gfd: {oneshot: false, machineTypeFile: /x}\n"
    assert notices(text) == [
        (
            "c.yaml:2:22: info: settings of GPU Feature Discovery, without effect on this program: flags.useNodeFeatureAPI, "
            "flags.gfd.oneshot, flags.gfd.machineTypeFile"
        )
    ]


def test_the_root_for_mps_has_no_effect():
    assert notices(environment={"MPS_ROOT": "/run/nvidia/mps"}) == [
        "MPS_ROOT: info: flags.mpsRoot has no effect: nothing is shared through MPS"
    ]


def test_both_cdi_strategies_at_once_are_doubtful():
    """Kubelet maps its CDI field to annotations too, so that both inject everything twice (NVIDIA/k8s-device-plugin#573)."""
    assert notices("flags: {plugin: {deviceListStrategy: [cdi-annotations, cdi-cri]}}") == [
        (
            "c.yaml:1:38: warning: flags.plugin.deviceListStrategy: cdi-annotations and cdi-cri together name each device to the "
            "runtime twice; take cdi-cri where the runtime has it, else cdi-annotations"
        )
    ]


def test_ids_by_index_are_a_risk():
    """After a reboot one GPU was given to two pods (NVIDIA/k8s-device-plugin#135)."""
    assert notices(flags={"device-id-strategy": "index"}) == [
        (
            "--device-id-strategy: warning: flags.plugin.deviceIDStrategy: with deviceIDStrategy index a container keeps a number "
            "that can mean another GPU after a reboot, and two pods may end up on one GPU; uuid has no such risk"
        )
    ]


def test_device_specs_beside_cdi_alone_do_nothing():
    assert notices("flags: {plugin: {passDeviceSpecs: true, deviceListStrategy: cdi-cri}}") == [
        (
            "c.yaml:1:35: warning: flags.plugin.passDeviceSpecs has no effect: CDI brings the device nodes, and every "
            "deviceListStrategy is a CDI one"
        )
    ]
    assert notices("flags: {plugin: {passDeviceSpecs: true, deviceListStrategy: [cdi-cri, envvar]}}") == []


@pytest.mark.parametrize("strategy", ["envvar", "cdi-cri"])
def test_a_prefix_needs_annotations(strategy):
    """Said and no more: one file may serve nodes of several strategies."""
    text = f"flags: {{plugin: {{cdiAnnotationPrefix: a.example/, deviceListStrategy: {strategy}}}}}"
    message = "flags.plugin.cdiAnnotationPrefix has no effect without cdi-annotations in deviceListStrategy"
    assert notices(text) == [f"c.yaml:1:39: info: {message}"]
    assert notices(text.replace(strategy, "cdi-annotations")) == []


def test_a_hook_program_needs_cdi():
    assert notices(environment={"NVIDIA_CTK_PATH": "/usr/bin/nvidia-ctk"}) == [
        "NVIDIA_CTK_PATH: info: flags.plugin.nvidiaCTKPath has no effect without cdi-annotations or cdi-cri in deviceListStrategy"
    ]
    assert notices("flags: {plugin: {deviceListStrategy: cdi-cri, nvidiaCTKPath: /x}}") == []


def test_a_required_channel_needs_a_channel():
    assert notices("imex: {required: true}") == ["c.yaml:1:18: warning: imex.required has no effect without imex.channelIDs: [0]"]


def test_a_gpu_included_and_excluded_is_not_offered():
    assert notices("devices: {include: [1, 0], exclude: [0]}") == [
        "c.yaml:1:24: warning: devices.include[1]: 0 is also excluded, at c.yaml:1:38; it is not offered"
    ]


def test_a_pattern_spoils_no_line():
    """A line break in a pattern made two lines of one notice."""
    assert notices('devices: {include: ["a\\nb"], exclude: ["a\\nb"]}') == [
        r"c.yaml:1:21: warning: devices.include[0]: 'a\nb' is also excluded, at c.yaml:1:40; it is not offered"
    ]


@pytest.mark.parametrize("later", ["NVIDIA A100*", "NVIDIA A100-SXM4-40GB", "NVIDIA A100*40GB", "NVIDIA *A100"])
def test_a_pattern_behind_a_wider_one_is_never_reached(later):
    text = f'resources: {{gpus: [{{pattern: "NVIDIA *A100*", name: a}}, {{pattern: "{later}", name: b}}]}}'
    assert notices(text)[0] == (
        "c.yaml:1:67: warning: resources.gpus[1].pattern: this pattern is never reached: 'NVIDIA *A100*' at c.yaml:1:30 matches "
        "all that it does"
    )


@pytest.mark.parametrize("later", ["*", "NVIDIA *", "*A100*", "Tesla A100", "NVIDIA H100"])
def test_a_pattern_that_another_leaves_something_is_fine(later):
    text = f'resources: {{mig: [{{pattern: "NVIDIA *A100*", name: a}}, {{pattern: "{later}", name: b}}]}}'
    assert not any("never reached" in notice for notice in notices(text))


def test_keys_that_mean_more_here_are_named_once():
    """The peer reads and ignores them (NVIDIA/k8s-device-plugin#353, NVIDIA/k8s-device-plugin#1020). `load` leaves them to `plan`,
    which knows more."""
    text = """\
resources: {gpus: [{pattern: "*", name: a}]}
sharing: {timeSlicing: {resources: [{name: a, replicas: 2, devices: 1}, {name: a, replicas: 3, rename: b}]}}
"""
    loaded = load(text, file="c.yaml")
    problems = find_differences(loaded.config)
    assert loaded.problems == ()
    assert [str(problem) for problem in problems] == [
        (
            "c.yaml:1:19: info: here these take effect, while NVIDIA's plugin ignores them: resources.gpus, "
            "sharing.timeSlicing.resources[0].devices, sharing.timeSlicing.resources[1].rename"
        )
    ]
    assert (problems[0].kind, problems[0].severity) == (ProblemKind.DIFFERENCE, Severity.INFO)


@pytest.mark.parametrize(
    "value",
    [
        "version: v1\nsharing:\n  timeSlicing:\n    resources: []\n",
        "flags:\n  migStrategy: mixed\n",
        "# ours\nsharing: {timeSlicing: {}}",
        '{"version": "v1", "flags": {}}',
    ],
)
def test_a_config_in_a_variable_is_noticed(value):
    """A ConfigMap given by envFrom was ignored without a word (NVIDIA/k8s-device-plugin#615)."""
    assert notices(environment={"config.yaml": value, "HOME": "/"}) == [
        (
            "config.yaml: warning: the variable config.yaml holds what looks like a config, which is not read from variables; "
            "mount the ConfigMap and name its file with --config-file (CONFIG_FILE)"
        )
    ]


def test_a_config_in_a_variable_beside_a_file_is_nobodys_business():
    assert notices("version: v1", environment={"OTHER": "version: v1\n"}) == []


@pytest.mark.parametrize("value", ["v1", "--flags", "https://example.com/flags:", "flags", "version: 1"])
def test_ordinary_variables_are_no_configs(value):
    assert notices(environment={"X": value}) == []
