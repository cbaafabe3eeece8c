"""YAML with the place of each value, so that a mistake in a profile is reported where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

from device_plugin.config.document import check_characters
from device_plugin.config.values import shown_word
from device_plugin.errors import ConfigError
from device_plugin.problems import Origin, Problem, ProblemKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator


class PlacedYaml:
    """A parsed document: `data` as plain values, `origin(path)` where each of them stands. Raises `ConfigError` for bad syntax."""

    def __init__(self, text: str, source: str) -> None:
        self._source = source
        check_characters(text, source)
        try:
            loader = yaml.CSafeLoader(text)
            self._root = loader.get_single_node()
            duplicates = list(self._duplicate_keys(self._root, (), set()))
            self.data: Any = loader.construct_document(self._root) if self._root is not None else None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            origin = Origin(source, mark.line + 1, mark.column + 1) if mark else Origin(source)
            raise ConfigError([_problem(f"not YAML: {error.problem}", origin)]) from error
        except (yaml.YAMLError, ValueError) as error:  # a ValueError is of a date that there is not, as 2020-13-45
            raise ConfigError([_problem(f"not YAML: {error}", Origin(source))]) from error
        if duplicates:
            raise ConfigError(duplicates)

    def origin(self, path: tuple[str | int, ...]) -> Origin:
        """The place of the value at that path, or of the nearest thing around it that stands in the text.

        Steps that are not in the text are passed over: a validator's path also names the alternatives that it has tried.
        """
        node, standing = self._root, []
        for number, step in enumerate(path, 1):
            found = _child(node, step)
            if found is not None:
                node = found
            if found is not None or number == len(path):
                standing.append(step)
        path = tuple(standing)
        text = "".join(f"[{step}]" if isinstance(step, int) else f".{shown_word(str(step))}" for step in path).lstrip(".")
        if node is None:
            return Origin(self._source, 1, 1, text)  # the text is empty
        return Origin(self._source, node.start_mark.line + 1, node.start_mark.column + 1, text)

    def _duplicate_keys(self, node: yaml.Node | None, path: tuple[str | int, ...], looked_at: set[int]) -> Iterator[Problem]:
        """Each node once, however many aliases lead to it, be it from inside itself."""
        if id(node) in looked_at:
            return
        looked_at.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            for index, child in enumerate(node.value):
                yield from self._duplicate_keys(child, (*path, index), looked_at)
        if isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, child in node.value:
                name = str(key.value)
                if name in seen:
                    mark = key.start_mark
                    yield _problem(
                        f"the key {name!r} stands here twice",
                        Origin(self._source, mark.line + 1, mark.column + 1, shown_word(name)),
                    )
                seen.add(name)
                yield from self._duplicate_keys(child, (*path, name), looked_at)


def _child(node: yaml.Node | None, step: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
        child: yaml.Node = node.value[step]
        return child
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if str(key.value) == step), None)
    return None


def _problem(message: str, origin: Origin) -> Problem:
    return Problem(Severity.ERROR, ProblemKind.CONFIG, message, origin)
