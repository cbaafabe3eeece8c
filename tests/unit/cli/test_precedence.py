"""Which statement of an option counts: command line, variable, file, default, for each by itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from device_plugin.cli.arguments import config_flags, parse_arguments
from device_plugin.cli.process_options import (
    CONFIG_POLL_INTERVAL,
    PROCESS_OPTIONS,
    config_source,
    process_seconds,
)
from device_plugin.cli.run import settings_from
from device_plugin.config.load import load
from device_plugin.config.options import options
from device_plugin.errors import ConfigError

# The options of NVIDIA's plugin, v0.20: flags, variables, path in the file, default; then two other values as text, each with what
# the file would hold.
PEERS_OPTIONS = [
    (["mig-strategy"], ["MIG_STRATEGY"], "flags.migStrategy", "none", ("mixed", "mixed"), ("single", "single")),
    (["fail-on-init-error"], ["FAIL_ON_INIT_ERROR"], "flags.failOnInitError", True, ("F", False), ("0", False)),
    (["driver-root", "nvidia-driver-root"], ["NVIDIA_DRIVER_ROOT"], "flags.nvidiaDriverRoot", "/", ("/a", "/a"), ("/b", "/b")),
    (["dev-root", "nvidia-dev-root"], ["NVIDIA_DEV_ROOT"], "flags.nvidiaDevRoot", None, ("/a", "/a"), ("/b", "/b")),
    (["pass-device-specs"], ["PASS_DEVICE_SPECS"], "flags.plugin.passDeviceSpecs", False, ("T", True), ("1", True)),
    (
        ["device-list-strategy"],
        ["DEVICE_LIST_STRATEGY"],
        "flags.plugin.deviceListStrategy",
        ["envvar"],
        ("envvar, volume-mounts", ["envvar", "volume-mounts"]),
        ("cdi-cri", ["cdi-cri"]),
    ),
    (["device-id-strategy"], ["DEVICE_ID_STRATEGY"], "flags.plugin.deviceIDStrategy", "uuid", ("index", "index"), ("uuid", "uuid")),
    (["gdrcopy-enabled"], ["GDRCOPY_ENABLED"], "flags.gdrcopyEnabled", False, ("true", True), ("TRUE", True)),
    (["gds-enabled"], ["GDS_ENABLED"], "flags.gdsEnabled", False, ("True", True), ("t", True)),
    (["mofed-enabled"], ["MOFED_ENABLED"], "flags.mofedEnabled", False, ("true", True), ("1", True)),
    (
        ["cdi-annotation-prefix"],
        ["CDI_ANNOTATION_PREFIX"],
        "flags.plugin.cdiAnnotationPrefix",
        "cdi.k8s.io/",
        ("a.cdi.k8s.io/", "a.cdi.k8s.io/"),
        ("b.cdi.k8s.io/", "b.cdi.k8s.io/"),
    ),
    (
        ["nvidia-cdi-hook-path", "nvidia-ctk-path"],
        ["NVIDIA_CDI_HOOK_PATH", "NVIDIA_CTK_PATH"],
        "flags.plugin.nvidiaCTKPath",
        "/usr/bin/nvidia-ctk",
        ("/a", "/a"),
        ("/b", "/b"),
    ),
    (
        ["driver-root-ctr-path", "container-driver-root"],
        ["DRIVER_ROOT_CTR_PATH", "CONTAINER_DRIVER_ROOT"],
        "flags.plugin.containerDriverRoot",
        "/driver-root",
        ("/a", "/a"),
        ("/b", "/b"),
    ),
    (["mps-root"], ["MPS_ROOT"], "flags.mpsRoot", None, ("/a", "/a"), ("/b", "/b")),
    (
        ["shared-devices-allocation-policy"],
        ["SHARED_DEVICES_ALLOCATION_POLICY"],
        "flags.plugin.sharedDevicesAllocationPolicy",
        "distributed",
        ("packed", "packed"),
        ("distinct", "distinct"),
    ),
    (
        ["device-discovery-strategy"],
        ["DEVICE_DISCOVERY_STRATEGY"],
        "flags.deviceDiscoveryStrategy",
        "auto",
        ("nvml", "nvml"),
        ("auto", "auto"),
    ),
    (["imex-channel-ids"], ["IMEX_CHANNEL_IDS"], "imex.channelIDs", [], ("0", [0]), ("0", [0])),
    (["imex-required"], ["IMEX_REQUIRED"], "imex.required", False, ("true", True), ("1", True)),
]
PEERS_PROCESS_OPTIONS = {
    "kubelet-socket": ("KUBELET_SOCKET", "/var/lib/kubelet/device-plugins/kubelet.sock"),
    "config-file": ("CONFIG_FILE", ""),
    "cdi-feature-flags": ("CDI_FEATURE_FLAGS", ""),
    "cdi-disable-hooks": ("CDI_DISABLE_HOOKS", ""),
}
NEEDED_BESIDE = {"imex.required": ("--imex-channel-ids=0",)}  # alone it would contradict itself


def value_at(path: str, argv: list[str], environment: dict[str, str], text: str | None = None) -> object:
    """What a config holds at a path under this command line, this environment and this file."""
    argv += [word for word in NEEDED_BESIDE.get(path, ()) if word not in argv]
    loaded = load(text, file="c.yaml", environment=environment, flags=config_flags(parse_arguments(argv, {})))
    value = loaded.config.model_dump(mode="json", by_alias=True)
    for key in path.split("."):
        value = value[key]
    return value


def in_file(path: str, value: object) -> str:
    for key in reversed(path.split(".")):
        value = {key: value}
    import json

    return json.dumps(value)


@pytest.mark.parametrize(
    ("flags", "variables", "path", "default", "first", "second"), PEERS_OPTIONS, ids=lambda value: str(value)[:30]
)
def test_every_option_of_nvidias_plugin_works_from_everywhere(flags, variables, path, default, first, second):
    """Its flags with all aliases, its variables, its key and its default; each statement over those behind it."""
    assert value_at(path, [], {}) == default
    assert value_at(path, [], {}, in_file(path, first[1])) == first[1]
    for variable in variables:
        assert value_at(path, [], {variable: first[0]}) == first[1]
        assert value_at(path, [], {variable: second[0]}, in_file(path, first[1])) == second[1]
    for flag in flags:
        assert value_at(path, [f"--{flag}={first[0]}"], {}) == first[1]
        assert value_at(path, [f"-{flag}={second[0]}"], dict.fromkeys(variables, first[0]), in_file(path, first[1])) == second[1]


def test_the_table_is_the_peers_and_nothing_of_it_is_missing():
    ours = {option.flags: option.variables for option in options()}
    for flags, variables, path, *_ in PEERS_OPTIONS:
        assert ours.pop(tuple(flags)) == tuple(variables), path
    assert sorted(ours.values()) == [("DP_DISABLE_HEALTHCHECKS",), ("DP_ENABLE_HEALTHCHECKS",)]
    assert {option.flag: (*option.variables, option.default) for option in PROCESS_OPTIONS}.items() >= PEERS_PROCESS_OPTIONS.items()


@pytest.mark.parametrize("option", [option for option in options() if len(option.variables) > 1], ids=lambda option: option.path)
def test_of_several_variables_the_first_one_present_wins(option):
    first, second = option.variables
    assert value_at(option.path, [], {second: "/b", first: "/a"}) == "/a"


def test_a_variable_that_is_empty_counts_as_given():
    """Empty text for text, false for a switch, unset for a list of numbers; of two variables the empty first one wins."""
    assert value_at("flags.failOnInitError", [], {"FAIL_ON_INIT_ERROR": ""}) is False
    assert value_at("imex.channelIDs", [], {"IMEX_CHANNEL_IDS": ""}, "imex: {channelIDs: [0]}") == [0]
    with pytest.raises(ConfigError, match=r"^MIG_STRATEGY: error: .*an empty text"):
        value_at("flags.migStrategy", [], {"MIG_STRATEGY": ""})
    with pytest.raises(ConfigError, match=r"^NVIDIA_CDI_HOOK_PATH: "):
        value_at("flags.plugin.nvidiaCTKPath", [], {"NVIDIA_CDI_HOOK_PATH": "", "NVIDIA_CTK_PATH": "/a"})


@pytest.mark.parametrize("text", ["1", "t", "T", "TRUE", "true", "True"])
def test_the_peers_spellings_of_true(text):
    assert value_at("flags.gdsEnabled", [f"--gds-enabled={text}"], {}) is True
    assert value_at("flags.gdsEnabled", [], {"GDS_ENABLED": text}) is True


@pytest.mark.parametrize("text", ["0", "f", "F", "FALSE", "false", "False"])
def test_the_peers_spellings_of_false(text):
    assert value_at("flags.failOnInitError", [f"--fail-on-init-error={text}"], {}) is False
    assert value_at("flags.failOnInitError", [], {"FAIL_ON_INIT_ERROR": text}) is False


@pytest.mark.parametrize(
    ("argv", "environment", "source"), [(["--gds-enabled=yes"], {}, "--gds-enabled"), ([], {"GDS_ENABLED": "yes"}, "GDS_ENABLED")]
)
def test_another_spelling_is_refused_where_it_was_given(argv, environment, source):
    with pytest.raises(
        ConfigError, match=rf"^{source}: error: flags.gdsEnabled: expected true or false \(also 1, t, 0, f\), not 'yes'$"
    ):
        value_at("flags.gdsEnabled", argv, environment)


def settings(*argv: str, **environment: str):
    return settings_from(parse_arguments(argv, environment), Path("/"))


def test_the_process_has_the_peers_defaults():
    found = settings()
    assert str(found.kubelet_socket) == "/var/lib/kubelet/device-plugins/kubelet.sock"
    assert found.socket_directory == found.kubelet_socket.parent
    assert (found.config_poll_seconds, found.notifications) == (30.0, True)


def test_options_of_the_process_follow_the_same_precedence():
    found = settings("--kubelet-socket=/f/kubelet.sock", KUBELET_SOCKET="/v/kubelet.sock", CDI_DIRECTORY="/v/cdi")
    assert (str(found.kubelet_socket), str(found.socket_directory)) == ("/f/kubelet.sock", "/f")
    assert str(found.cdi_directory) == "/v/cdi"
    assert settings(CONFIG_POLL_INTERVAL="1m30s").config_poll_seconds == 90.0
    assert settings("--config-poll-interval=500ms", CONFIG_POLL_INTERVAL="x").config_poll_seconds == 0.5
    assert settings("--cdi-disable-hooks=all", CDI_DISABLE_HOOKS="chmod").cdi_disabled_hooks == ("all",)
    assert settings(CDI_DISABLE_HOOKS="chmod, update-ldcache").cdi_disabled_hooks == ("chmod", "update-ldcache")


@pytest.mark.parametrize("text", ["false", "False", "0", "f", ""])
def test_a_switch_of_the_process_takes_the_same_spellings(text):
    assert settings(FILE_NOTIFICATIONS=text).notifications is False
    assert settings("--file-notifications", FILE_NOTIFICATIONS=text).notifications is True


@pytest.mark.parametrize(
    ("argv", "environment"), [(("--kubelet-socket=",), {}), ((), {"KUBELET_SOCKET": ""}), (("--kubelet-socket", ""), {})]
)
def test_an_empty_kubelet_socket_means_to_serve_in_the_default_directory_and_never_to_register(argv, environment):
    found = settings(*argv, **environment)
    assert found.kubelet_socket is None
    assert str(found.socket_directory) == "/var/lib/kubelet/device-plugins"


def test_relative_paths_are_taken_from_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    found = settings("--kubelet-socket=plugins/kubelet.sock", "--cdi-directory=cdi", POD_RESOURCES_SOCKET="pods.sock")
    assert found.socket_directory == tmp_path / "plugins"
    assert found.kubelet_socket == tmp_path / "plugins/kubelet.sock"
    assert found.cdi_directory == tmp_path / "cdi"
    assert found.pod_resources_socket == tmp_path / "pods.sock"


@pytest.mark.parametrize(
    ("flag", "variable", "value", "message"),
    [
        ("config-poll-interval", "CONFIG_POLL_INTERVAL", "5", "expected a duration with a unit, such as 30s, 5m or 1h30m, not '5'"),
        ("config-poll-interval", "CONFIG_POLL_INTERVAL", "0s", "expected a duration longer than 0s, not '0s'"),
        (
            "config-poll-interval",
            "CONFIG_POLL_INTERVAL",
            "-1s",
            "expected a duration that is not negative, such as 30s, not '-1s'",
        ),
        (
            "config-poll-interval",
            "CONFIG_POLL_INTERVAL",
            "",
            "expected a duration with a unit, such as 30s, 5m or 1h30m, not ''",
        ),
        ("file-notifications", "FILE_NOTIFICATIONS", "off", "expected true or false (also 1, t, 0, f), not 'off'"),
        ("cdi-directory", "CDI_DIRECTORY", "", "expected a path, not an empty text"),
        ("pod-resources-socket", "POD_RESOURCES_SOCKET", "", "expected a path, not an empty text"),
        ("log-level", "LOG_LEVEL", "loud", "expected debug, info, warning or error, not 'loud'"),
        ("log-level", "LOG_LEVEL", "", "expected debug, info, warning or error, not an empty text"),
        ("log-format", "LOG_FORMAT", "xml", "expected text or json, not 'xml'"),
        ("config-name", "CONFIG_NAME", "a", "chooses among the files of --config-dir (CONFIG_DIR), which is not given"),
        ("default-config", "DEFAULT_CONFIG", "a", "chooses among the files of --config-dir (CONFIG_DIR), which is not given"),
        (
            "fallback-strategies",
            "FALLBACK_STRATEGIES",
            "named",
            "chooses among the files of --config-dir (CONFIG_DIR), which is not given",
        ),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_at_the_flag_or_variable_that_gave_it(run_command, flag, variable, value, message):
    text = ["--log-format=text"] if flag != "log-format" else []
    refused = run_command("run", f"--{flag}={value}", *text, environment={variable: "whatever"})
    assert (refused.status, refused.err.splitlines()[-1]) == (1, f"--{flag}: error: {message}")
    refused = run_command("run", *text, environment={variable: value})
    assert (refused.status, refused.err.splitlines()[-1]) == (1, f"{variable}: error: {message}")


def test_only_what_counts_is_checked():
    """A broken variable behind a flag that wins is no reason to refuse."""
    assert (
        process_seconds(parse_arguments(["--config-poll-interval=5s"], {"CONFIG_POLL_INTERVAL": "x"}), CONFIG_POLL_INTERVAL) == 5.0
    )


def test_a_directory_of_configs_with_all_that_chooses_among_them():
    argv = ["--config-dir=/configs", "--config-name=a", "--fallback-strategies=named,single"]
    found = config_source(parse_arguments(argv, {"DEFAULT_CONFIG": "b", "CONFIG_NAME": "c", "CONFIG_FILE": ""}))
    assert (found.file, found.directory, found.name, found.default) == ("", "/configs", "a", "b")
    assert found.fallbacks == ("named", "single")


@pytest.mark.parametrize(
    ("argv", "environment", "message"),
    [
        (
            ["--config-dir=/d", "--config-file=/f"],
            {},
            "--config-dir: error: names a directory while --config-file names a file; give one of them",
        ),
        (
            ["--config-dir=/d"],
            {"CONFIG_FILE": "/f"},
            "--config-dir: error: names a directory while CONFIG_FILE names a file; give one of them",
        ),
        (
            ["--config-file=/f"],
            {"CONFIG_DIR": "/d"},
            "CONFIG_DIR: error: names a directory while --config-file names a file; give one of them",
        ),
        (
            ["--config-dir=/d"],
            {"FALLBACK_STRATEGIES": "named,last"},
            "FALLBACK_STRATEGIES: error: expected named, single or empty, not 'last'",
        ),
    ],
)
def test_statements_about_the_configs_place_that_contradict_each_other_are_refused(argv, environment, message):
    with pytest.raises(ConfigError) as refused:
        config_source(parse_arguments(argv, environment))
    assert str(refused.value) == message


@pytest.mark.parametrize("command", ["run", "plan", "cdi generate"])
@pytest.mark.parametrize("option", ["cdi-disable-hooks", "cdi-feature-flags"])
def test_what_others_refuse_by_the_flags_name_is_shown_at_the_variable_that_gave_it(run_command, command, option):
    """Under every strategy: a switch that nobody knows would otherwise be found when CDI is switched on, or never."""
    words, variable = [*command.split(), "--simulate=t4"], option.replace("-", "_").upper()
    quiet = {"LOG_LEVEL": "error", "LOG_FORMAT": "text"}
    refused = run_command(*words, environment={variable: "everything", **quiet})
    assert refused.status == 1
    assert refused.err.startswith(f"{variable}: error: 'everything' is unknown; known are ")
    refused = run_command(*words, f"--{option}=everything", environment=quiet)
    assert refused.err.startswith(f"--{option}: error: 'everything' is unknown; known are ")


def test_a_config_that_is_not_in_the_directory_is_named_at_the_variable(run_command, tmp_path):
    (tmp_path / "a").write_text("version: v1\n")
    refused = run_command(
        "plan", "--simulate=t4", f"--config-dir={tmp_path}", environment={"CONFIG_NAME": "../b", "LOG_LEVEL": "error"}
    )
    assert (refused.status, refused.err) == (1, "CONFIG_NAME: error: the config '../b' does not exist; there are a\n")
