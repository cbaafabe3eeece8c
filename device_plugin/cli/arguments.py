"""argv -> what a command is to do. The options of the config come from its model, those of the process from `process_options`."""

from __future__ import annotations

import argparse
import itertools
import os
import textwrap
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

from device_plugin import __version__
from device_plugin.cli.process_options import CDI, CONFIG_SOURCE, LOGS, PROCESS_OPTIONS, SERVING, SIMULATE
from device_plugin.config.options import ConfigOption, OptionKind, options, parse_bool
from device_plugin.config.values import shown
from device_plugin.problems import nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from device_plugin.cli.process_options import ProcessOption

PROGRAM = "gpu-device-plugin"
CONFIG_DEST = "config:"  # argparse destinations of the config's options: this and the flag's first name
OUTPUTS = ("table", "json", "yaml")

COMMANDS = {
    "run": "serve this node's GPUs to kubelet; what happens without a command",
    "plan": "show what this node would offer under a config, and every problem",
    "validate": "check config files without a node",
    "demo": "a simulated node and a stand-in kubelet, from discovery to what a container gets",
    "cdi": "write or list CDI specifications",
    "kubelet": "run the stand-in kubelet by hand, to try a plugin against",
}
CDI_ACTIONS = {
    "generate": "print or write this node's CDI specifications",
    "list": "list the device names that a container runtime would find",
}


class Formatter(argparse.HelpFormatter):
    """An option's names and then its value, once: the same text under every version of Python."""

    def __init__(self, prog: str, width: int | None = None) -> None:
        super().__init__(prog, max_help_position=28, width=width)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        if not action.option_strings or action.nargs == 0:
            return super()._format_action_invocation(action)
        return f"{', '.join(action.option_strings)} {action.metavar}"

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)  # paths and flags stay whole


class Parser(argparse.ArgumentParser):
    """argparse that says of a word it cannot place what was meant, and in one line."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(add_help=False, allow_abbrev=False, **settings)
        self.add_argument("-h", "--help", action="help", help="Print this text.")

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Every parser answers for its own words: the one of a command knows the flags that were meant."""
        found, strange = super().parse_known_args(args, namespace)
        if any(word != "--" for word in strange):  # which ends the flags, and may stand there with nothing behind it
            self.error("; ".join(self._explained(list(args or ()), strange)))
        return found, []

    def _explained(self, words: Sequence[str], strange: Sequence[str]) -> Iterable[str]:
        before = ""
        for word in strange:
            if word == "--":
                pass
            elif word.startswith("-"):
                flag = word.partition("=")[0]
                known = [name for action in self._actions for name in action.option_strings]
                yield f"unknown flag {flag}{_did_you_mean(flag.lower().replace('_', '-'), known)}"
            elif not before.startswith("-") or before == "--" or "=" in before:  # else it is the value of the unknown flag
                yield _explained_word(words, word)
            before = word


class _Version(argparse.Action):
    """Prints two lines, which argparse's own action would fold into one."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        print(version_text())
        parser.exit()


def parse_arguments(argv: Sequence[str], environment: Mapping[str, str] | None = None) -> argparse.Namespace:
    """The command's arguments; `command` names it. Without a command's name it is `run`, as NVIDIA's plugin is started."""
    words = _spelled_out(argv)
    if not words or (words[0] not in COMMANDS and words[0] not in ("-h", "--help", "--version")):
        words.insert(0, "run")
    arguments = make_parser(only=words[0] if words[0] in COMMANDS else None).parse_args(words)
    arguments.environment = dict(os.environ if environment is None else environment)
    return arguments


def config_flags(arguments: argparse.Namespace) -> dict[str, object]:
    """What was given on the command line for the config, by the flag's first name."""
    return {
        key.removeprefix(CONFIG_DEST): value
        for key, value in vars(arguments).items()
        if key.startswith(CONFIG_DEST) and value is not None
    }


def version_text() -> str:
    """Two lines, as the peer prints: the version, and the commit that the image was built from, if it says so."""
    return f"{PROGRAM} {__version__}\ncommit: {os.environ.get('GPU_DEVICE_PLUGIN_COMMIT', 'unknown')}"


def make_parser(columns: int | None = None, *, only: str | None = None) -> Parser:
    """The parser of all commands, or of `only` one. Its help is as wide as the terminal, or has `columns`."""
    shape: dict[str, Any] = {"formatter_class": partial(Formatter, width=columns)}
    parser = Parser(
        prog=PROGRAM,
        usage="%(prog)s [COMMAND] [OPTION...]",
        description="A Kubernetes device plugin for NVIDIA GPUs. Without a command, or with flags only, it runs.",
        epilog=f"Each command has its own: {PROGRAM} COMMAND --help.",
        **shape,
    )
    _add_version(parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands", prog=PROGRAM)
    for name in (only,) if only else COMMANDS:
        text, usage = COMMANDS[name], f"%(prog)s {_USAGES.get(name, '[OPTION...]')}"
        command = commands.add_parser(name, help=text, description=_sentence(text), usage=usage, **shape)
        _FILLERS[name](command, shape)
    return parser


def _add_version(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--version", action=_Version, nargs=0, help="Print the version and the commit.")


def _fill_run(run: argparse.ArgumentParser, _: dict[str, Any]) -> None:
    _add_version(run)
    _add_options(run, *CONFIG_SOURCE, SIMULATE, *LOGS, *CDI, *SERVING)
    _add_config_options(run)


def _fill_plan(plan: argparse.ArgumentParser, _: dict[str, Any]) -> None:
    plan.add_argument("-o", "--output", choices=OUTPUTS, default="table", metavar="|".join(OUTPUTS), help="Default: table.")
    _add_options(plan, *CONFIG_SOURCE, SIMULATE, *LOGS)
    _add_config_options(plan)
    unused = plan.add_argument_group(
        "options of run that change nothing here", "Taken and checked, so that a manifest's arguments can be given as they are."
    )
    _add_options(unused, *CDI, *SERVING)


def _fill_validate(validate: argparse.ArgumentParser, _: dict[str, Any]) -> None:
    validate.add_argument("files", nargs="+", metavar="FILE", help="A config file, or - for standard input.")


def _fill_demo(demo: argparse.ArgumentParser, _: dict[str, Any]) -> None:
    colours = ("auto", "always", "never")
    demo.add_argument(
        "--color", choices=colours, default="auto", metavar="|".join(colours), help="Default: auto, colour on a terminal."
    )


def _fill_kubelet(kubelet: argparse.ArgumentParser, _: dict[str, Any]) -> None:
    _add_options(kubelet, *LOGS)
    kubelet.add_argument("directory", metavar="DIR", help="Where its kubelet.sock and the plugins' sockets stand.")


def _fill_cdi(cdi: argparse.ArgumentParser, shape: dict[str, Any]) -> None:
    actions = cdi.add_subparsers(dest="action", metavar="ACTION", required=True, title="actions", prog=cdi.prog)
    generate, listing = (
        actions.add_parser(name, help=text, description=_sentence(text), usage="%(prog)s [OPTION...]", **shape)
        for name, text in CDI_ACTIONS.items()
    )
    generate.add_argument(
        "--output",
        metavar="FILE",
        default="-",
        help="A file for the class of GPUs, or a directory for all classes. Default: standard output.",
    )
    _add_options(generate, *CONFIG_SOURCE, SIMULATE, *LOGS, *CDI)
    _add_config_options(generate)
    listing.add_argument(
        "--cdi-directory",
        action="append",
        metavar="PATH",
        help="Where to look; may be repeated, the last one wins. Default: /etc/cdi and /var/run/cdi.",
    )


_FILLERS: dict[str, Callable[[argparse.ArgumentParser, dict[str, Any]], None]] = {
    "run": _fill_run,
    "plan": _fill_plan,
    "validate": _fill_validate,
    "demo": _fill_demo,
    "cdi": _fill_cdi,
    "kubelet": _fill_kubelet,
}
_USAGES = {"validate": "FILE...", "cdi": "ACTION [OPTION...]", "kubelet": "[OPTION...] DIR"}


def _add_options(parser: argparse._ActionsContainer, *group: ProcessOption) -> None:
    for option in group:
        parser.add_argument(
            f"--{option.flag}",
            dest=option.destination,
            action="append" if option.kind is OptionKind.LIST else "store",
            metavar=option.metavar,
            help=_escaped(option.help),
        )


def _add_config_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "options of the config", "Each wins over its variable in brackets, which wins over the config file."
    )
    for option in options():
        repeatable = option.kind in (OptionKind.LIST, OptionKind.INTS)
        group.add_argument(
            *(f"--{flag}" for flag in option.flags),
            dest=f"{CONFIG_DEST}{option.flags[0]}",
            action="append" if repeatable else "store",
            metavar=_metavar(option),
            help=_escaped(option.help),
        )


def _metavar(option: ConfigOption) -> str:
    kinds = {OptionKind.BOOL: "true|false", OptionKind.STRING: "TEXT", OptionKind.LIST: "LIST", OptionKind.INTS: "LIST"}
    return "NAME" if option.choices and option.kind is OptionKind.STRING else kinds[option.kind]


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _escaped(text: str) -> str:
    return text.replace("%", "%%")  # argparse formats help texts


def _spelled_out(argv: Sequence[str]) -> list[str]:
    """One dash is as good as two, and a switch without a value means true: both as NVIDIA's plugin takes them."""
    end = list(argv).index("--") if "--" in argv else len(argv)
    return [*map(_spelled_out_word, argv[:end]), *argv[end:]]


def _spelled_out_word(word: str) -> str:
    if word.startswith("-o") and word[2:].lstrip("=") in OUTPUTS:
        return word  # -ojson, a habit from kubectl
    if len(word) > 2 and word[0] == "-" and word[1].isalpha():
        word = f"-{word}"
    return f"{word}=true" if word in _switches() else word


@cache
def _switches() -> frozenset[str]:
    names = [flag for option in options() if option.kind is OptionKind.BOOL for flag in option.flags]
    names += [option.flag for option in PROCESS_OPTIONS if option.kind is OptionKind.BOOL]
    return frozenset(f"--{name}" for name in names)


def _explained_word(words: Sequence[str], word: str) -> str:
    """What a word that belongs to nothing was likely meant to be."""
    for before, this in itertools.pairwise(words):
        switch = before.removesuffix("=true")
        if this == word and switch in _switches() and _is_bool(word):
            return f"{shown(word)} belongs to nothing: write {switch}={word}"
    if word in COMMANDS:
        return f"the command {word} comes first: {PROGRAM} {word} [OPTION...]"
    return f"{shown(word)} is no command and no flag's value{_did_you_mean(word, COMMANDS)}"


def _is_bool(word: str) -> bool:
    try:
        parse_bool(word)
    except ValueError:
        return False
    return True


def _did_you_mean(found: str, known: Iterable[str]) -> str:
    near = nearest(found, known)
    return f" (did you mean {near}?)" if near else ""
