"""The options of the process, as opposed to those of the config: their names, their defaults, and what was stated for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from device_plugin.config.durations import parse_positive_duration
from device_plugin.config.options import OptionKind, parse_bool
from device_plugin.config.source import FALLBACKS, ConfigSource
from device_plugin.config.values import shown
from device_plugin.errors import ConfigError
from device_plugin.logs import FORMATS, LEVELS
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.records import record
from device_plugin.supervisor.settings import (
    DEFAULT_CDI_DIRECTORY,
    DEFAULT_KUBELET_SOCKET,
    DEFAULT_POD_RESOURCES_SOCKET,
)

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable


@record
class ProcessOption:
    """A flag (without dashes), the variables that stand in for it, of which the first one present wins, and its default."""

    flag: str
    variables: tuple[str, ...]
    default: str
    description: str
    metavar: str = "TEXT"
    kind: OptionKind = OptionKind.STRING
    choices: tuple[str, ...] = ()  # what it can be, or its list can hold; empty: anything

    @property
    def destination(self) -> str:
        """Where argparse leaves what the command line gives."""
        return self.flag.replace("-", "_")

    @property
    def help(self) -> str:
        """In the form of the config's options."""
        choices = f" One of {', '.join(self.choices)}." if self.choices else ""
        default = f" Default: {self.default}." if self.default else ""
        variables = f" [{', '.join(self.variables)}]" if self.variables else ""
        return f"{self.description}{choices}{default}{variables}"


CONFIG_FILE = ProcessOption("config-file", ("CONFIG_FILE",), "", "The config file.", "PATH")
CONFIG_DIR = ProcessOption(
    "config-dir", ("CONFIG_DIR",), "", "A directory of config files, one for each key of a mounted ConfigMap.", "PATH"
)
CONFIG_NAME = ProcessOption("config-name", ("CONFIG_NAME",), "", "Which file of --config-dir is this node's.", "NAME")
DEFAULT_CONFIG = ProcessOption(
    "default-config", ("DEFAULT_CONFIG",), "", "The file of --config-dir to use without --config-name.", "NAME"
)
FALLBACK_STRATEGIES = ProcessOption(
    "fallback-strategies",
    ("FALLBACK_STRATEGIES",),
    "",
    "What to do with neither, in order: the file called default, the only file, or no config.",
    "LIST",
    OptionKind.LIST,
    FALLBACKS,
)
SIMULATE = ProcessOption(
    "simulate",
    (),  # on purpose: a variable could be set by a workload's manifest or a Service's name
    "",
    "Use simulated GPUs: the name of a shipped node profile, or a file. Its files stand in for the driver root.",
    "PROFILE",
)
LOG_LEVEL = ProcessOption("log-level", ("LOG_LEVEL",), "info", "How much to log.", "NAME", choices=LEVELS)
LOG_FORMAT = ProcessOption("log-format", ("LOG_FORMAT",), "", "Unset: text on a terminal, json elsewhere.", "NAME", choices=FORMATS)
CDI_FEATURE_FLAGS = ProcessOption(
    "cdi-feature-flags", ("CDI_FEATURE_FLAGS",), "", "Switches for the content of CDI specifications.", "LIST", OptionKind.LIST
)
CDI_DISABLE_HOOKS = ProcessOption(
    "cdi-disable-hooks", ("CDI_DISABLE_HOOKS",), "", "Hooks to leave out of CDI specifications, or all.", "LIST", OptionKind.LIST
)
CDI_DIRECTORY = ProcessOption(
    "cdi-directory", ("CDI_DIRECTORY",), str(DEFAULT_CDI_DIRECTORY), "Where CDI specifications are written.", "PATH"
)
KUBELET_SOCKET = ProcessOption(
    "kubelet-socket",
    ("KUBELET_SOCKET",),
    str(DEFAULT_KUBELET_SOCKET),
    "Kubelet's socket; our own stand beside it. Empty: serve in the default directory and never register.",
    "PATH",
)
POD_RESOURCES_SOCKET = ProcessOption(
    "pod-resources-socket",
    ("POD_RESOURCES_SOCKET",),
    str(DEFAULT_POD_RESOURCES_SOCKET),
    "Kubelet's pod-resources socket, which tells who holds what.",
    "PATH",
)
CONFIG_POLL_INTERVAL = ProcessOption(
    "config-poll-interval", ("CONFIG_POLL_INTERVAL",), "30s", "How often the config is read again.", "DURATION"
)
FILE_NOTIFICATIONS = ProcessOption(
    "file-notifications",
    ("FILE_NOTIFICATIONS",),
    "true",
    "Let the kernel tell of changed files, so that polls come sooner; false: polls alone.",
    "true|false",
    OptionKind.BOOL,
)

CONFIG_SOURCE = (CONFIG_FILE, CONFIG_DIR, CONFIG_NAME, DEFAULT_CONFIG, FALLBACK_STRATEGIES)
LOGS = (LOG_LEVEL, LOG_FORMAT)
CDI = (CDI_FEATURE_FLAGS, CDI_DISABLE_HOOKS)
SERVING = (KUBELET_SOCKET, POD_RESOURCES_SOCKET, CDI_DIRECTORY, CONFIG_POLL_INTERVAL, FILE_NOTIFICATIONS)
PROCESS_OPTIONS = (*CONFIG_SOURCE, SIMULATE, *LOGS, *CDI, *SERVING)


def stated(arguments: argparse.Namespace, option: ProcessOption) -> tuple[str, str]:
    """The text that counts and where it was stated: the flag, else the first variable present, even if empty, else `default`."""
    given = getattr(arguments, option.destination, None)
    if given is not None:
        return (",".join(given) if isinstance(given, list) else str(given)), f"--{option.flag}"
    present = next((name for name in option.variables if name in arguments.environment), None)
    return (option.default, "default") if present is None else (arguments.environment[present], present)


def process_value(arguments: argparse.Namespace, option: ProcessOption) -> str:
    """The text that counts. Raises ConfigError where it is none of the option's choices."""
    value, source = stated(arguments, option)
    if option.choices and value not in (*option.choices, option.default):
        raise refusal(source, f"expected {_either(option.choices)}, not {shown(value)}")
    return value


def process_list(arguments: argparse.Namespace, option: ProcessOption) -> tuple[str, ...]:
    """A list: split at commas, each item trimmed, empty ones dropped. Raises ConfigError for an item that is no choice."""
    value, source = stated(arguments, option)
    items = tuple(item.strip() for item in value.split(",") if item.strip())
    for item in items:
        if option.choices and item not in option.choices:
            raise refusal(source, f"expected {_either(option.choices)}, not {shown(item)}")
    return items


def process_bool(arguments: argparse.Namespace, option: ProcessOption) -> bool:
    """A switch, in the spellings that the config's options take. Raises ConfigError."""
    value, source = stated(arguments, option)
    try:
        return parse_bool(value)
    except ValueError as error:
        raise refusal(source, str(error)) from error


def process_seconds(arguments: argparse.Namespace, option: ProcessOption) -> float:
    """A duration, in seconds. Raises ConfigError."""
    value, source = stated(arguments, option)
    try:
        return parse_positive_duration(value)
    except ValueError as error:
        raise refusal(source, str(error)) from error


def process_path(arguments: argparse.Namespace, option: ProcessOption) -> Path:
    """A path, made absolute from the working directory. Raises ConfigError for an empty one."""
    value, source = stated(arguments, option)
    if not value:
        raise refusal(source, "expected a path, not an empty text")
    return Path(value).absolute()


def config_source(arguments: argparse.Namespace) -> ConfigSource:
    """Where the config's text comes from. Raises ConfigError for a statement that contradicts another or could have no effect."""
    file, file_source = stated(arguments, CONFIG_FILE)
    directory, directory_source = stated(arguments, CONFIG_DIR)
    if file and directory:
        raise refusal(directory_source, f"names a directory while {file_source} names a file; give one of them")
    for option in (CONFIG_NAME, DEFAULT_CONFIG, FALLBACK_STRATEGIES):
        value, source = stated(arguments, option)
        if value and not directory:
            raise refusal(source, f"chooses among the files of --{CONFIG_DIR.flag} ({CONFIG_DIR.variables[0]}), which is not given")
    return ConfigSource(
        file=file,
        directory=directory,
        name=process_value(arguments, CONFIG_NAME),
        default=process_value(arguments, DEFAULT_CONFIG),
        fallbacks=process_list(arguments, FALLBACK_STRATEGIES),
    )


def as_stated(problems: Iterable[Problem], arguments: argparse.Namespace) -> list[Problem]:
    """The problems, those of a process option at the variable where it was stated there.

    What reads an option's value knows it by its flag only.
    """
    options = {f"--{option.flag}": option for option in PROCESS_OPTIONS}
    found = []
    for problem in problems:
        option = options.get(problem.origin.source)
        source = stated(arguments, option)[1] if option else "default"
        origin = problem.origin if source == "default" else replace(problem.origin, source=source)
        found.append(replace(problem, origin=origin))
    return found


def _either(choices: tuple[str, ...]) -> str:
    return f"{', '.join(choices[:-1])} or {choices[-1]}"


def refusal(source: str, message: str) -> ConfigError:
    """What is wrong with a value of the command line or the environment, at the flag or variable that gave it."""
    return ConfigError([Problem(Severity.ERROR, ProblemKind.CONFIG, message, Origin(source))])
