"""From a text, the environment and the flags to a Config: flag over variable over file over default, for each setting by itself."""

from __future__ import annotations

import copy
import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from device_plugin.config.checks import find_contradictions
from device_plugin.config.document import Document, Path, config_path, read_document
from device_plugin.config.explain import explain
from device_plugin.config.model import Config
from device_plugin.config.notices import find_notices
from device_plugin.config.options import fields, options
from device_plugin.config.values import shown
from device_plugin.config.xids import XidSet, sift_xids
from device_plugin.errors import ConfigError
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Mapping

    from device_plugin.config.options import ConfigOption


@record
class Loaded:
    """A Config that can be used, what should be said about it, and the hash of the text it came from."""

    config: Config
    problems: tuple[Problem, ...]
    hash: str


def text_hash(text: str | None) -> str:
    """What tells one text from another: its SHA-256 in hexadecimal; empty where there is no text."""
    return "" if text is None else hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def load(
    text: str | None,
    *,
    file: str = "",
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, object] | None = None,
) -> Loaded:
    """The Config that file, environment and flags state together.

    `text` is the content of `file`, None where there is no file. `environment` may hold anything; only the variables of settings
    are read. `flags` hold what was given on the command line, by name without dashes: a text, the texts of a repeated flag, or a
    bool. Raises ConfigError with everything that is wrong: the file's problems by line, then those of variables and flags.
    """
    stated = _read(text, file)
    overlay = _overlay(environment or {}, flags or {})
    _validate(stated)
    _validate(overlay)
    if stated.problems or overlay.problems:
        raise ConfigError([*_in_file_order([*stated.problems, *_contradictions_beside(stated)]), *overlay.problems])
    both = _laid_over(stated, overlay)
    config = _validated(both.data).with_origins(_default_origins() | both.origins())
    if contradictions := find_contradictions(config):
        raise ConfigError(_in_file_order([_at_alias(problem, stated) for problem in contradictions]))
    notices = find_notices(config, {} if text is not None else environment or {})
    return Loaded(config, (*overlay.warnings, *notices), text_hash(text))


@dataclass(slots=True)
class _Statement:
    """Data in the shape of the file, and where each path's value and key were stated."""

    data: dict[str, Any] = field(default_factory=dict)
    values: dict[Path, Origin] = field(default_factory=dict)
    keys: dict[Path, Origin] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    spoiled: set[Path] = field(default_factory=set)  # what `problems` are about already
    aliases: dict[str, Origin] = field(default_factory=dict)  # by config path
    fractions: dict[Path, str] = field(default_factory=dict)

    def origin(self, path: Path, *, at_key: bool = False) -> Origin:
        """Where the path was stated, or the nearest path above it."""
        if at_key and path in self.keys:
            return self.keys[path]
        while path and path not in self.values:
            path = path[:-1]
        return self.values.get(path, Origin("default"))

    def origins(self) -> dict[str, Origin]:
        return {config_path(path): origin for path, origin in self.values.items() if path}


def _read(text: str | None, file: str) -> _Statement:
    document = read_document(text or "", file)

    def origin(path: Path, line: int, column: int) -> Origin:
        return Origin(file, line, column, config_path(path))

    problems = [_error(message, origin(path, place.line, place.column)) for path, place, message in document.problems]
    if document.second is not None:
        place = document.second
        problems.append(_error("a second document starts here; a config is one document", origin((), place.line, place.column)))
    return _Statement(
        data=_without_null(document),
        values={path: origin(path, place.line, place.column) for path, place in document.values.items()},
        keys={path: origin(path, place.line, place.column) for path, place in document.keys.items()},
        problems=problems,
        spoiled={path for path, _, _ in document.problems},
        aliases={config_path(path): origin(path, place.line, place.column) for path, place in document.aliases.items()},
        fractions=document.fractions,
    )


def _without_null(document: Document) -> dict[str, Any]:
    """The data without the known keys that have no value and may be so."""
    spoiled = {path for path, _, _ in document.problems}
    may_be_empty = {item.keys for item in fields() if item.may_be_empty}

    def is_absent(path: Path) -> bool:
        keys = tuple(part for part in path if isinstance(part, str))
        return path not in spoiled and keys in may_be_empty

    def cleaned(value: Any, path: Path) -> Any:
        if isinstance(value, list):
            return [cleaned(item, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return {} if path == ("sharing", "timeSlicing") and value is None else value
        return {
            key: cleaned(inner, (*path, key)) for key, inner in value.items() if inner is not None or not is_absent((*path, key))
        }

    data: dict[str, Any] = cleaned(document.data, ())
    return data


def _overlay(environment: Mapping[str, str], flags: Mapping[str, object]) -> _Statement:
    """What flags and variables state, in the shape of the file."""
    overlay = _Statement()
    known = {name for option in options() for name in option.flags}
    overlay.problems += [_error(f"unknown flag --{name}", Origin(f"--{name}")) for name in sorted(set(flags) - known)]
    for option in options():
        given = _given(option, environment, flags)
        if given is None:
            continue
        raw, source = given
        origin = Origin(source, path=option.path)
        try:
            value = option.parse(raw)
            if isinstance(option.default, XidSet) and source in option.variables:
                value = _sifted(value, origin, overlay)
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            overlay.problems.append(_error("expected text in UTF-8", origin))
        except ValueError as error:
            overlay.problems.append(_error(str(error), origin))
        else:
            if value is not None:
                _put(overlay.data, option.keys, value)
                overlay.values[option.keys] = origin
    return overlay


def _sifted(items: Any, origin: Origin, overlay: _Statement) -> list[str]:
    """The XIDs in a variable: manifests come from NVIDIA's plugin, which skips what is none."""
    taken, skipped = sift_xids(items)
    overlay.warnings += [
        _warning(f'{shown(item)} is no XID and is skipped; expected its number, such as 79, or "all"', origin)
        for item in dict.fromkeys(skipped)
    ]
    return taken


def _given(option: ConfigOption, environment: Mapping[str, str], flags: Mapping[str, object]) -> tuple[object, str] | None:
    for name in option.flags:
        if name in flags:
            return flags[name], f"--{name}"
    for name in option.variables:
        if name in environment:
            return environment[name], name
    return None


def _put(data: dict[str, Any], keys: Path, value: object) -> None:
    for key in keys[:-1]:
        data = data.setdefault(str(key), {})
    data[str(keys[-1])] = value


def _laid_over(stated: _Statement, overlay: _Statement) -> _Statement:
    data = copy.deepcopy(stated.data)
    values = dict(stated.values)
    for keys in overlay.values:
        value: Any = overlay.data
        for key in keys:
            value = value[key]
        _put(data, keys, value)
        values = {path: origin for path, origin in values.items() if path[: len(keys)] != keys}
    return _Statement(data=data, values=values | overlay.values)


def _validated(data: dict[str, Any]) -> Config:
    return Config.model_validate_json(json.dumps(data), by_alias=True, by_name=False)


def _validate(statement: _Statement) -> None:
    """Adds what the model refuses in a statement, but for what is known to be spoiled."""
    try:
        _validated(statement.data)
    except ValidationError as error:
        found = [
            wrong
            for wrong in explain(error, statement.fractions)
            if not _is_spoiled(wrong.path[:-1] if wrong.at_key else wrong.path, statement.spoiled)  # a key stands before its value
        ]
        statement.problems += [_error(wrong.message, statement.origin(wrong.path, at_key=wrong.at_key)) for wrong in found]
        statement.spoiled |= {wrong.path for wrong in found}


def _is_spoiled(path: Path, spoiled: set[Path]) -> bool:
    """Whether what is wrong there was said already: of the path itself, of something around it, or of an item of that list."""
    return not spoiled.isdisjoint(_with_parents(path)) or any(
        known[: len(path)] == path and len(known) == len(path) + 1 and isinstance(known[-1], int) for known in spoiled
    )


def _with_parents(path: Path) -> list[Path]:
    return [path[:length] for length in range(len(path) + 1)]


def _contradictions_beside(statement: _Statement) -> list[Problem]:
    """Contradictions in what remains of a file without what is wrong with it, so that one look at it tells everything."""
    remains = _without(statement, {_dropped_with(path) for path in statement.spoiled})
    try:
        config = _validated(remains.data)
    except ValidationError:
        return []  # something needed went with what was wrong
    return [_at_alias(problem, statement) for problem in find_contradictions(config.with_origins(remains.origins()))]


def _at_alias(problem: Problem, statement: _Statement) -> Problem:
    """A contradiction of what came through an alias, at the alias: where the value was written is the other place."""
    if problem.kind is not ProblemKind.CONTRADICTION:
        return problem
    alias, path = problem.origin, problem.origin.path
    while path:
        alias = statement.aliases.get(path, alias)
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
    return replace(problem, origin=replace(alias, path=problem.origin.path))


def _dropped_with(path: Path) -> Path:
    """What says nothing any more if that path is wrong: the whole entry of a list of blocks, the whole of another list."""
    index = next((position for position, part in enumerate(path) if isinstance(part, int)), len(path))
    is_block = any(item.keys == path[:index] and item.is_list and item.model is not None for item in fields())
    return path[: index + 1] if is_block else path[:index]


def _without(statement: _Statement, dropped: set[Path]) -> _Statement:
    """A statement without some paths. Entries of lists move up; each value keeps the origin it had."""
    remains = _Statement()

    def kept(value: Any, old: Path, new: Path) -> Any:
        if old in statement.values:
            remains.values[new] = statement.values[old]
        if isinstance(value, dict):
            return {key: kept(inner, (*old, key), (*new, key)) for key, inner in value.items() if (*old, key) not in dropped}
        if isinstance(value, list):
            indices = [index for index in range(len(value)) if (*old, index) not in dropped]
            return [kept(value[index], (*old, index), (*new, position)) for position, index in enumerate(indices)]
        return value

    remains.data = kept(statement.data, (), ())
    return remains


def _default_origins() -> dict[str, Origin]:
    return {item.path: Origin("default", path=item.path) for item in fields() if item.model is None and not item.in_list}


def _error(message: str, origin: Origin) -> Problem:
    return Problem(Severity.ERROR, ProblemKind.CONFIG, message, origin)


def _warning(message: str, origin: Origin) -> Problem:
    return Problem(Severity.WARNING, ProblemKind.CONFIG, message, origin)


def _in_file_order(problems: list[Problem]) -> list[Problem]:
    """By place. What came through an alias several times stands in the file once, and is said once."""
    once: dict[tuple[int, int, str], Problem] = {}
    for problem in problems:
        once.setdefault((problem.origin.line, problem.origin.column, problem.message), problem)
    return sorted(once.values(), key=lambda problem: (problem.origin.line, problem.origin.column))
