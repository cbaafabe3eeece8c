"""argv: commands, dashes, switches, lists, and what is said about words that mean nothing."""

from __future__ import annotations

import pytest

from device_plugin.cli.arguments import COMMANDS, config_flags, parse_arguments
from device_plugin.cli.process_options import CDI_FEATURE_FLAGS, FALLBACK_STRATEGIES, PROCESS_OPTIONS, process_list
from device_plugin.config.options import options


def flags(*argv: str) -> dict[str, object]:
    return config_flags(parse_arguments(argv, {}))


@pytest.mark.parametrize("argv", [(), ("--mig-strategy=mixed",), ("-mig-strategy", "mixed"), ("--gds-enabled",), ("run",)])
def test_without_a_command_it_runs_as_nvidias_plugin_is_started(argv):
    assert parse_arguments(argv, {}).command == "run"


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_a_command_is_the_first_word(command):
    rest = {"validate": ["x.yaml"], "cdi": ["list"], "kubelet": ["dir"]}.get(command, [])
    assert parse_arguments([command, *rest], {}).command == command


@pytest.mark.parametrize(
    "argv",
    [
        ("--mig-strategy=mixed",),
        ("--mig-strategy", "mixed"),
        ("-mig-strategy=mixed",),
        ("-mig-strategy", "mixed"),
        ("--mig-strategy=single", "--mig-strategy=mixed"),
    ],
)
def test_one_dash_is_as_good_as_two_and_the_last_one_counts(argv):
    assert flags(*argv) == {"mig-strategy": "mixed"}


@pytest.mark.parametrize("argv", [("--gds-enabled",), ("-gds-enabled",), ("--gds-enabled=true",), ("-gds-enabled=true",)])
def test_a_switch_without_a_value_means_true(argv):
    assert flags(*argv) == {"gds-enabled": "true"}


def test_a_switch_of_the_process_needs_no_value_either():
    assert parse_arguments(["--file-notifications", "--log-level=debug"], {}).file_notifications == "true"


def test_what_stands_behind_an_equals_sign_may_be_empty_or_look_like_anything():
    assert flags("--dev-root=", "--mps-root=-x=y --z") == {"dev-root": "", "mps-root": "-x=y --z"}


def test_a_list_may_be_repeated_and_hold_commas():
    assert flags("--device-list-strategy=envvar,cdi-cri", "--device-list-strategy", " volume-mounts ") == {
        "device-list-strategy": ["envvar,cdi-cri", " volume-mounts "]
    }
    arguments = parse_arguments(["--cdi-feature-flags=a, b", "-cdi-feature-flags", "c,,", "--fallback-strategies=single"], {})
    assert process_list(arguments, CDI_FEATURE_FLAGS) == ("a", "b", "c")
    assert process_list(arguments, FALLBACK_STRATEGIES) == ("single",)


@pytest.mark.parametrize("word", ["-o=json", "-ojson", "--output=json", "-output=json"])
def test_the_output_of_plan_can_be_asked_for_as_in_kubectl(word):
    assert parse_arguments(["plan", word], {}).output == "json"


def test_words_behind_two_dashes_are_files_however_they_look():
    assert parse_arguments(["validate", "--", "-mig-strategy", "--gds-enabled"], {}).files == ["-mig-strategy", "--gds-enabled"]


@pytest.mark.parametrize("argv", [("--",), ("--mig-strategy=mixed", "--"), ("run", "--")])
def test_two_dashes_with_nothing_behind_them_say_nothing(argv):
    """As NVIDIA's plugin takes them."""
    assert parse_arguments(argv, {}).command == "run"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("--mig-stratgy=mixed",), "gpu-device-plugin run: unknown flag --mig-stratgy (did you mean --mig-strategy?)"),
        (("--migStrategy", "mixed"), "gpu-device-plugin run: unknown flag --migStrategy (did you mean --mig-strategy?)"),
        (("--MIG_STRATEGY=mixed",), "gpu-device-plugin run: unknown flag --MIG_STRATEGY (did you mean --mig-strategy?)"),
        (("plan", "-mig-strat", "mixed"), "gpu-device-plugin plan: unknown flag --mig-strat (did you mean --mig-strategy?)"),
        (("validate", "--zzz", "x"), "gpu-device-plugin validate: unknown flag --zzz"),
        (("demo", "--kubelet-socket=x"), "gpu-device-plugin demo: unknown flag --kubelet-socket"),
        (("--zzz", "--yyy=1"), "gpu-device-plugin run: unknown flag --zzz; unknown flag --yyy"),
        (("--zzz", "value", "stray"), "gpu-device-plugin run: unknown flag --zzz; 'stray' is no command and no flag's value"),
        (("--gds-enabled", "false"), "gpu-device-plugin run: 'false' belongs to nothing: write --gds-enabled=false"),
        (("plan", "-gds-enabled", "F"), "gpu-device-plugin plan: 'F' belongs to nothing: write --gds-enabled=F"),
        (("--file-notifications", "0"), "gpu-device-plugin run: '0' belongs to nothing: write --file-notifications=0"),
        (("--gds-enabled", "no"), "gpu-device-plugin run: 'no' is no command and no flag's value"),
        (("plna",), "gpu-device-plugin run: 'plna' is no command and no flag's value (did you mean plan?)"),
        (
            ("--mig-strategy=mixed", "plan"),
            "gpu-device-plugin run: the command plan comes first: gpu-device-plugin plan [OPTION...]",
        ),
        (("--config-file",), "gpu-device-plugin run: argument --config-file: expected one argument"),
        (("validate",), "gpu-device-plugin validate: the following arguments are required: FILE"),
        (("cdi",), "gpu-device-plugin cdi: the following arguments are required: ACTION"),
        (("cdi", "generate", "--outptu=x"), "gpu-device-plugin cdi generate: unknown flag --outptu (did you mean --output?)"),
        (("--", "plan"), "gpu-device-plugin run: the command plan comes first: gpu-device-plugin plan [OPTION...]"),
        (("",), "gpu-device-plugin run: an empty text is no command and no flag's value"),
    ],
)
def test_a_word_that_means_nothing_is_an_error_that_says_what_was_meant(run_command, argv, message):
    """Nothing on the command line is accepted and ignored; NVIDIA's plugin takes `--flag false` for true and goes on."""
    finished = run_command(*argv)
    program = message.partition(":")[0]
    assert (finished.status, finished.out, finished.err) == (2, "", f"{message}; see {program} --help\n")


def test_plan_takes_every_option_that_run_takes():
    """So that a manifest's arguments can be tried as they are."""
    taken = [option.flag for option in PROCESS_OPTIONS] + [flag for option in options() for flag in option.flags]
    run, plan = (vars(parse_arguments([command, *(f"--{flag}=x" for flag in taken)], {})) for command in ("run", "plan"))
    assert plan == {**run, "command": "plan", "output": "table"}


@pytest.mark.parametrize("argv", [("--version",), ("-version",), ("run", "--version")])
def test_the_version_is_two_lines(run_command, argv):
    finished = run_command(*argv, environment={"GPU_DEVICE_PLUGIN_COMMIT": "0123abc"})
    first, second = finished.out.splitlines()
    assert finished.status == 0
    assert first.startswith("gpu-device-plugin ")
    assert second == "commit: 0123abc"


def test_without_a_commit_the_version_says_so(run_command):
    assert run_command("--version").out.splitlines()[1] == "commit: unknown"


@pytest.mark.parametrize("argv", [("--help",), ("-h",), ("-help",), ("run", "-h"), ("cdi", "generate", "--help")])
def test_help_goes_to_standard_output(run_command, argv):
    finished = run_command(*argv)
    assert (finished.status, finished.err) == (0, "")
    assert finished.out.startswith("usage: gpu-device-plugin")
