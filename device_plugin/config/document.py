"""A config text as plain data, with the place of every key and value, and without the surprises of YAML 1.1.

PyYAML's parser gives events; what they mean is decided here, because PyYAML's own reading loses what an operator needs: it takes
the last of two equal keys, reads `no` as false, `0777` as 511 and `12:30` as 750, and forgets where things stood. Aliases and
merge keys are read as NVIDIA's plugin reads them; a value that came through one has the place where it was written.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from device_plugin.config.values import shown, shown_fraction, shown_word
from device_plugin.errors import ConfigError
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.records import record

Path = tuple[str | int, ...]
"""Keys and list indices that lead to a value."""

_MAX_DEPTH = 32  # the format needs 6
_MAX_NODES = 20_000  # what aliases can blow a text up to; a list of 10,000 devices is half of it

_NULL = {"", "~", "null", "Null", "NULL"}
_INTEGER = r"-?(0|[1-9][0-9]{0,19})"
_FLOAT = r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]{1,2})?"
_BOOLEAN_LOOK = r"y|n|yes|no|on|off|true|false"
_NUMBER_LOOK = r"[-+]?(\.?[0-9][0-9_]*(\.[0-9_]*)?([eE][-+]?[0-9]+)?|0x[0-9a-fA-F_]+|0o[0-7_]+|0b[01_]+|\.inf|\.nan)"
_BASE_60_LOOK = r"[-+]?[0-9][0-9_]*(:[0-9]+)+(\.[0-9_]*)?"
# What YAML takes as text at all; libyaml would tell these by an offset in bytes.
_FORBIDDEN = "[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"


@record
class Place:
    """A line and a column, both counted from 1."""

    line: int
    column: int


@record
class Document:
    """The data of one text, where each path's value and key stand, and problems, each with the path whose value it spoils.

    `aliases` are the places of the aliases and merged aliases that values came through, `fractions` the texts of numbers that are
    not whole. `second` is where another document starts in the text; it is not read.
    """

    data: dict[str, Any]
    values: dict[Path, Place]
    keys: dict[Path, Place]
    problems: tuple[tuple[Path, Place, str], ...]
    aliases: dict[Path, Place]
    fractions: dict[Path, str]
    second: Place | None


@dataclass(slots=True)
class _Node:
    """A value as it was written: text, a list, or pairs of keys and values."""

    place: Place
    text: str = ""
    plain: bool = False
    tag: str | None = None
    items: list[_Node] | None = None
    pairs: list[tuple[_Node, _Node]] | None = None
    closed: bool = True
    alias: Place | None = None

    @property
    def is_name(self) -> bool:
        """Whether this can be a key."""
        return self.items is None and self.pairs is None and self.tag is None and not (self.plain and self.text in _NULL)


def config_path(path: Path) -> str:
    """The path as people write it: `sharing.timeSlicing.resources[0].name`. A key that would spoil a line is quoted."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{shown_word(part)}" for part in path if part != "").removeprefix(
        "."
    )


def decode(content: bytes, file: str) -> str:
    """The text of a file's bytes. Raises ConfigError where they are not UTF-8."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8", errors="replace")
        raise ConfigError([_problem(file, _place_after(before), f"byte 0x{content[error.start]:02x} is not UTF-8")]) from error


def check_characters(text: str, file: str) -> None:
    """Raises ConfigError at the first character that no YAML may hold."""
    if bad := re.search(_FORBIDDEN, text):
        raise ConfigError(
            [_problem(file, _place_after(text[: bad.start()]), f"the character U+{ord(bad[0]):04X} is not allowed in YAML")]
        )


def read_document(text: str, file: str) -> Document:
    """The data of a config text; an empty one is an empty mapping. Raises ConfigError where it is no YAML, or not one mapping."""
    text = text.removeprefix("\ufeff")
    check_characters(text, file)
    reader = _Reader()
    try:
        root, second = _compose(text)
        data = {} if root is None else reader.value(root, ())
    except yaml.MarkedYAMLError as error:
        raise ConfigError([_problem(file, *_explained(error, text))]) from error
    except _Refused as refused:
        raise ConfigError([_problem(file, refused.place, str(refused))]) from refused
    if data is None and not reader.problems:
        data = {}
    if not isinstance(data, dict):
        place = root.place if root else Place(1, 1)
        if root is not None and root.tag is not None:
            raise ConfigError([_problem(file, place, message) for _, place, message in reader.problems])
        fraction = reader.fractions.get(())
        found = shown_fraction(fraction) if fraction else shown(root.text if root is not None and data is None else data)
        raise ConfigError([_problem(file, place, f"expected keys and values, such as `version: v1`, not {found}")])
    return Document(data, reader.values, reader.keys, tuple(reader.problems), reader.aliases, reader.fractions, second)


class _Refused(Exception):
    """The text is YAML, but of a kind that this format has no use for."""

    def __init__(self, place: Place, message: str) -> None:
        self.place = place
        super().__init__(message)


def _problem(file: str, place: Place, message: str) -> Problem:
    return Problem(Severity.ERROR, ProblemKind.CONFIG, message, Origin(file, place.line, place.column))


def _place_after(text: str) -> Place:
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return Place(len(lines), len(lines[-1]) + 1)


def _mark(mark: Any) -> Place:
    return Place(mark.line + 1, mark.column + 1)


def _explained(error: yaml.MarkedYAMLError, text: str) -> tuple[Place, str]:
    mark = error.problem_mark or error.context_mark
    place = _mark(mark) if mark else Place(1, 1)
    lines = text.splitlines()
    if error.context == "while scanning an alias" and error.context_mark is not None:
        return _mark(error.context_mark), 'not YAML: a text that starts with * must be quoted, such as "*A100*"'
    if place.line <= len(lines) and lines[place.line - 1][place.column - 1 : place.column] == "\t":
        return place, "a tab cannot indent in YAML; use spaces"
    message = f"not YAML: {error.problem or error.context}"
    if error.problem and error.context:
        message += f", {error.context}"
        if error.context_mark and _mark(error.context_mark) != place:
            message += f" that starts at line {error.context_mark.line + 1}, column {error.context_mark.column + 1}"
    return place, message


def _compose(text: str) -> tuple[_Node | None, Place | None]:
    """The nodes of the text's first document, None if it has none, and where a second one starts.

    Iterative, so that no depth of nesting can hurt.
    """
    root: _Node | None = None
    parents: list[tuple[_Node, list[_Node]]] = []
    anchors: dict[str, _Node] = {}
    for event in yaml.parse(text, Loader=yaml.CSafeLoader):
        if isinstance(event, yaml.CollectionEndEvent):
            _close(*parents.pop())
            continue
        if isinstance(event, yaml.DocumentStartEvent) and root is not None:
            return root, _mark(event.start_mark)
        if isinstance(event, yaml.AliasEvent):
            node = _aliased(event, anchors)
        elif isinstance(event, (yaml.ScalarEvent, yaml.CollectionStartEvent)):
            node = _node(event)
        else:
            continue
        if parents:
            parents[-1][1].append(node)
        root = root or node
        if not isinstance(event, yaml.AliasEvent):
            if event.anchor is not None:
                anchors[event.anchor] = node
            if isinstance(event, yaml.CollectionStartEvent):
                parents.append((node, []))
    return root, None


def _node(event: yaml.ScalarEvent | yaml.CollectionStartEvent) -> _Node:
    place = _mark(event.start_mark)
    if isinstance(event, yaml.ScalarEvent):
        return _Node(place, text=event.value, plain=event.implicit[0], tag=event.tag)
    if isinstance(event, yaml.SequenceStartEvent):
        return _Node(place, tag=event.tag, items=[], closed=False)
    return _Node(place, tag=event.tag, pairs=[], closed=False)


def _aliased(event: yaml.AliasEvent, anchors: dict[str, _Node]) -> _Node:
    node = anchors.get(event.anchor or "")
    if node is None:
        raise _Refused(
            _mark(event.start_mark), f"the alias *{event.anchor} has no anchor &{event.anchor} before it; quote it if it is text"
        )
    if not node.closed:
        raise _Refused(_mark(event.start_mark), f"the alias *{event.anchor} stands inside what it names")
    return replace(node, alias=_mark(event.start_mark))


def _close(node: _Node, children: list[_Node]) -> None:
    node.closed = True
    if node.items is not None:
        node.items = children
    else:
        node.pairs = list(zip(children[::2], children[1::2], strict=True))


@dataclass(slots=True)
class _Reader:
    """Turns nodes into data, keeping places and problems on the way."""

    values: dict[Path, Place] = field(default_factory=dict)
    keys: dict[Path, Place] = field(default_factory=dict)
    problems: list[tuple[Path, Place, str]] = field(default_factory=list)
    aliases: dict[Path, Place] = field(default_factory=dict)
    fractions: dict[Path, str] = field(default_factory=dict)
    nodes: int = 0

    def value(self, node: _Node, path: Path) -> Any:
        self._count(node, len(path))
        self.values[path] = node.place
        if node.alias is not None:
            self.aliases[path] = node.alias
        if node.tag is not None:
            tag = shown_word(node.tag)
            self._refuse(
                path, node.place, f"the tag {tag} has no meaning in this format; quote text, write other values as they are"
            )
            return None
        if node.items is not None:
            return [self.value(item, (*path, index)) for index, item in enumerate(node.items)]
        if node.pairs is not None:
            return self._mapping(node, path)
        return self._scalar(node, path) if node.plain else node.text

    def _count(self, node: _Node, depth: int, nodes: int = 1) -> None:
        self.nodes += nodes
        if self.nodes > _MAX_NODES:
            raise _Refused(node.place, f"more than {_MAX_NODES} values, counting each alias as often as it is used")
        if depth > _MAX_DEPTH:
            raise _Refused(node.place, f"nested deeper than {_MAX_DEPTH} levels")

    def _refuse(self, path: Path, place: Place, message: str) -> None:
        self.problems.append((path, place, message))

    def _mapping(self, node: _Node, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in self._merged(node, path):
            inner = (*path, key.text)
            if not key.is_name:
                self._refuse(inner, key.place, "expected a name as the key")
                continue
            self.keys[inner] = key.place
            data[key.text] = self.value(value, inner)
            if value.plain and value.text == "":
                self.values[inner] = key.place  # where nothing stands, the key is the place to look at
        return data

    def _merged(self, node: _Node, path: Path, depth: int = 0) -> list[tuple[_Node, _Node]]:
        """The mapping's pairs, then those of the mappings under its merge keys (`<<`) that it does not have itself."""
        self._count(node, depth)
        own: list[tuple[_Node, _Node]] = []
        merged: list[tuple[_Node, _Node]] = []
        first: dict[tuple[bool, str], Place] = {}
        for key, value in node.pairs or ():
            is_merge = key.plain and key.text == "<<"
            if (is_merge, key.text) in first and key.is_name:
                line = first[is_merge, key.text].line
                self._refuse((*path, key.text), key.place, f"duplicate key {shown(key.text)}; it stands in line {line} already")
                continue
            if key.is_name:
                first[is_merge, key.text] = key.place
            if not is_merge:
                own.append((key, value))
                continue
            for source in value.items if value.items is not None else [value]:
                if source.pairs is None:
                    self._refuse((*path, "<<"), source.place, "expected a mapping, or an alias of one, to merge")
                else:
                    alias = value.alias or source.alias
                    pairs = self._merged(source, path, depth + 1)
                    self._count(source, depth, len(pairs))
                    merged.extend((inner, replace(item, alias=alias) if alias else item) for inner, item in pairs)
        have = {key.text for key, _ in own}
        for key, value in merged:
            if key.text not in have:
                have.add(key.text)
                own.append((key, value))
        return own

    def _scalar(self, node: _Node, path: Path) -> Any:
        text = node.text
        if text in _NULL:
            return None
        if text in ("true", "false"):
            return text == "true"
        if re.fullmatch(_INTEGER, text):
            return int(text)
        if re.fullmatch(_FLOAT, text) and not text.lstrip("-").isdigit() and math.isfinite(float(text)):
            self.fractions[path] = text
            return float(text)
        if re.fullmatch(_FLOAT, text):
            self._refuse(path, node.place, f"{text[:20]}... is too large a number; quote it if it is text")
        elif re.fullmatch(_BOOLEAN_LOOK, text, re.IGNORECASE):
            self._refuse(path, node.place, f"{text} may be read as true or false; write true or false, or quote it if it is text")
        elif re.fullmatch(_BASE_60_LOOK, text):
            self._refuse(path, node.place, f'{text} may be read as a number of base 60; quote it: "{text}"')
        elif re.fullmatch(_NUMBER_LOOK, text, re.IGNORECASE):
            self._refuse(
                path, node.place, f"{text} may be read as different numbers; write it in plain decimal, or quote it if it is text"
            )
        else:
            return text
        return None
