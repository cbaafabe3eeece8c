"""argv and the environment -> what a command is to do. Options of the config come from its model; the process's own stand here."""

from __future__ import annotations

import argparse
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from device_plugin import __version__
from device_plugin.config.options import ConfigOption, OptionKind, options
from device_plugin.config.source import ConfigSource
from device_plugin.config.values import parse_duration
from device_plugin.errors import ConfigError
from device_plugin.logs import FORMATS, LEVELS
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.supervisor.settings import (
    DEFAULT_CDI_DIRECTORY,
    DEFAULT_KUBELET_SOCKET,
    DEFAULT_POD_RESOURCES_SOCKET,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

PROGRAM = "gpu-device-plugin"
CONFIG_DEST = "config:"  # argparse destinations of the config's options: this and the flag's first name

COMMANDS = {
    "run": "serve this node's GPUs to kubelet; what happens without a command",
    "plan": "show what this node would offer under a config, and every problem",
    "validate": "check config files without a node",
    "demo": "a simulated node and a stand-in kubelet, from discovery to what a container gets",
    "cdi": "write or list CDI specifications",
    "kubelet": "run the stand-in kubelet by hand, to try a plugin against",
}


@dataclass(frozen=True, slots=True)
class ProcessOption:
    """An option of the process rather than of the config: a flag, the variables that stand in for it, and its default."""

    flag: str
    variables: tuple[str, ...]
    default: str
    help: str
    metavar: str = "TEXT"
    choices: tuple[str, ...] = ()


CONFIG_SOURCE = (
    ProcessOption("config-file", ("CONFIG_FILE",), "", "the config file", "PATH"),
    ProcessOption("config-dir", ("CONFIG_DIR",), "", "a directory of config files, one for each key of a ConfigMap", "PATH"),
    ProcessOption("config-name", ("CONFIG_NAME",), "", "which file of --config-dir is this node's", "NAME"),
    ProcessOption("default-config", ("DEFAULT_CONFIG",), "", "the file of --config-dir to use without --config-name", "NAME"),
    ProcessOption(
        "fallback-strategies",
        ("FALLBACK_STRATEGIES",),
        "",
        "what to do with neither, in order: named (a file called default), single (the only file), empty (no config)",
        "LIST",
    ),
)
SIMULATION = (ProcessOption("simulate", (), "", "use simulated GPUs: the name of a shipped node profile, or a file", "PROFILE"),)
LOGS = (
    ProcessOption("log-level", ("LOG_LEVEL",), "info", "how much to log", choices=LEVELS),
    ProcessOption(
        "log-format", ("LOG_FORMAT",), "", "text on a terminal and json elsewhere, unless said otherwise", choices=FORMATS
    ),
)
CDI = (
    ProcessOption("cdi-feature-flags", ("CDI_FEATURE_FLAGS",), "", "switches for the content of CDI specifications", "LIST"),
    ProcessOption("cdi-disable-hooks", ("CDI_DISABLE_HOOKS",), "", "hooks to leave out of CDI specifications, or all", "LIST"),
)
CDI_DIRECTORY = (
    ProcessOption("cdi-directory", ("CDI_DIRECTORY",), str(DEFAULT_CDI_DIRECTORY), "where CDI specifications stand", "PATH"),
)
RUN = (
    ProcessOption(
        "kubelet-socket",
        ("KUBELET_SOCKET",),
        str(DEFAULT_KUBELET_SOCKET),
        "kubelet's socket; our own stand beside it. Empty: serve in the default directory and never register",
        "PATH",
    ),
    ProcessOption(
        "pod-resources-socket",
        ("POD_RESOURCES_SOCKET",),
        str(DEFAULT_POD_RESOURCES_SOCKET),
        "kubelet's pod-resources socket, which tells who holds what",
        "PATH",
    ),
    ProcessOption("config-poll-interval", ("CONFIG_POLL_INTERVAL",), "30s", "how often the config is read again", "DURATION"),
    ProcessOption(
        "file-notifications",
        ("FILE_NOTIFICATIONS",),
        "true",
        "let the kernel tell of changed files, so that polls come sooner; false: polls alone",
        choices=("true", "false"),
    ),
)


class Parser(argparse.ArgumentParser):
    """argparse with the exit status and the form of a Problem: usage errors name the word, not the whole usage."""

    def error(self, message: str) -> Any:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


class _Version(argparse.Action):
    """Prints two lines, which argparse's own action would fold into one."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(version_text())
        parser.exit()


def parse_arguments(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> argparse.Namespace:
    """The command's arguments; `command` names it. Without a command's name it is `run`, as NVIDIA's plugin is started."""
    environment = os.environ if environment is None else environment
    words = [_spelled_out(word) for word in argv]
    if not words or (words[0] not in COMMANDS and words[0] not in ("-h", "--help", "--version")):
        words.insert(0, "run")
    arguments = make_parser().parse_args(words)
    arguments.environment = dict(environment)
    return arguments


def make_parser() -> Parser:
    """The parser of all commands."""
    parser = Parser(
        prog=PROGRAM,
        description="A Kubernetes device plugin for NVIDIA GPUs. Without a command, or with flags only, it runs.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and the commit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=Parser)
    by_name = {
        name: commands.add_parser(name, help=text, description=f"{text[0].upper()}{text[1:]}.", allow_abbrev=False)
        for name, text in COMMANDS.items()
    }
    run, plan, demo, cdi, kubelet = (by_name[name] for name in ("run", "plan", "demo", "cdi", "kubelet"))
    run.add_argument("--version", action=_Version, nargs=0, help="print the version and the commit")
    for one in (run, plan):
        _add_process_options(one, *CONFIG_SOURCE, *SIMULATION, *LOGS, *CDI)
        _add_config_options(one)
    _add_process_options(run, *RUN, *CDI_DIRECTORY)
    plan.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table", help="default: table")
    validate = by_name["validate"]
    validate.add_argument("files", nargs="+", metavar="FILE", help="a config file")
    demo.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="default: auto, colour on a terminal")
    _add_process_options(kubelet, *LOGS)
    kubelet.add_argument("directory", metavar="DIR", help="where its kubelet.sock and the plugins' sockets stand")
    _add_cdi_commands(cdi)
    return parser


def _add_cdi_commands(cdi: argparse.ArgumentParser) -> None:
    actions = cdi.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions", parser_class=Parser)
    generate = actions.add_parser("generate", help="write this node's CDI specifications", allow_abbrev=False)
    _add_process_options(generate, *CONFIG_SOURCE, *SIMULATION, *LOGS, *CDI)
    _add_config_options(generate)
    generate.add_argument(
        "--output", metavar="FILE", default="-", help="a file, or a directory for all classes; default: standard output"
    )
    listing = actions.add_parser("list", help="list the device names that a container runtime would find", allow_abbrev=False)
    listing.add_argument(
        "--cdi-directory",
        action="append",
        metavar="PATH",
        help="where to look; may be repeated; default: /etc/cdi and /var/run/cdi",
    )


def version_text() -> str:
    """Two lines, as the peer prints: the version, and the commit that the image was built from, if it says so."""
    return f"{PROGRAM} {__version__}\ncommit: {os.environ.get('GPU_DEVICE_PLUGIN_COMMIT', 'unknown')}"


def process_value(arguments: argparse.Namespace, option: ProcessOption) -> str:
    """The flag if given, else the first variable present (even if empty), else the default."""
    given = getattr(arguments, _dest(option.flag), None)
    if given is not None:
        return str(given)
    present = next((name for name in option.variables if name in arguments.environment), None)
    value = option.default if present is None else arguments.environment[present]
    if option.choices and value and value not in option.choices:
        raise _wrong(present or f"--{option.flag}", f"expected one of {', '.join(option.choices)}, not {value!r}")
    return str(value)


def process_list(arguments: argparse.Namespace, option: ProcessOption) -> tuple[str, ...]:
    """A list given as a text with commas."""
    return tuple(item.strip() for item in process_value(arguments, option).split(",") if item.strip())


def process_duration(arguments: argparse.Namespace, option: ProcessOption) -> float:
    """Seconds. Raises ConfigError."""
    try:
        seconds = parse_duration(process_value(arguments, option))
    except ValueError as error:
        raise _wrong(f"--{option.flag}", str(error)) from error
    if seconds <= 0:
        raise _wrong(f"--{option.flag}", "expected more than 0")
    return seconds


def named(group: Sequence[ProcessOption], flag: str) -> ProcessOption:
    """The option of that flag in its group."""
    return next(option for option in group if option.flag == flag)


def config_source(arguments: argparse.Namespace) -> ConfigSource:
    """Where the config's text comes from. Raises ConfigError if both a file and a directory are named."""
    values = {option.flag: process_value(arguments, option) for option in CONFIG_SOURCE}
    if values["config-file"] and values["config-dir"]:
        raise _wrong("--config-dir", "give either --config-file or --config-dir, not both")
    return ConfigSource(
        file=values["config-file"],
        directory=values["config-dir"],
        name=values["config-name"],
        default=values["default-config"],
        fallbacks=process_list(arguments, named(CONFIG_SOURCE, "fallback-strategies")),
    )


def config_flags(arguments: argparse.Namespace) -> dict[str, object]:
    """What was given on the command line for the config, by the flag's first name."""
    return {
        key.removeprefix(CONFIG_DEST): value
        for key, value in vars(arguments).items()
        if key.startswith(CONFIG_DEST) and value is not None
    }


def _wrong(source: str, message: str) -> ConfigError:
    return ConfigError([Problem(Severity.ERROR, ProblemKind.CONFIG, message, Origin(source))])


def _spelled_out(word: str) -> str:
    """One dash is as good as two, and a switch without a value means true: both as NVIDIA's plugin takes them."""
    if word.startswith("-") and not word.startswith("--") and len(word) > 2:
        word = f"-{word}"
    return f"{word}=true" if word in _switches() else word


def _switches() -> frozenset[str]:
    return frozenset(f"--{flag}" for option in options() if option.kind is OptionKind.BOOL for flag in option.flags)


def _dest(flag: str) -> str:
    return flag.replace("-", "_")


def _add_process_options(parser: argparse.ArgumentParser, *group: ProcessOption) -> None:
    for option in group:
        variables = f" [{', '.join(option.variables)}]" if option.variables else ""
        default = f"; default: {option.default}" if option.default else ""
        parser.add_argument(
            f"--{option.flag}",
            dest=_dest(option.flag),
            metavar=None if option.choices else option.metavar,
            choices=option.choices or None,
            help=f"{option.help}{default}{variables}".replace("%", "%%"),
        )


def _add_config_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("config options", "each wins over its variable in brackets, which wins over the config file")
    for option in options():
        repeatable = option.kind in (OptionKind.LIST, OptionKind.INTS)
        group.add_argument(
            *(f"--{flag}" for flag in option.flags),
            dest=f"{CONFIG_DEST}{option.flags[0]}",
            action="append" if repeatable else "store",
            metavar=_metavar(option),
            help=f"{option.help} [{', '.join(option.variables)}]".replace("%", "%%"),
        )


def _metavar(option: ConfigOption) -> str:
    if option.choices:
        return "|".join(option.choices)
    return {OptionKind.BOOL: "true|false", OptionKind.STRING: "TEXT", OptionKind.LIST: "LIST", OptionKind.INTS: "LIST"}[option.kind]
