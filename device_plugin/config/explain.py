"""What pydantic found wrong, in words for the person who wrote the file: found, expected, and the nearest valid key."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from device_plugin.config.options import ModelField, fields
from device_plugin.config.values import InvalidItems, shown, shown_fraction
from device_plugin.problems import nearest
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

    from device_plugin.config.document import Path


@record
class Explanation:
    """One thing wrong. `path` leads to it; `at_key` says whether its key is wrong, or its value."""

    path: Path
    message: str
    at_key: bool = False


def explain(error: ValidationError, fractions: Mapping[Path, str]) -> Iterator[Explanation]:
    """Every single thing that a validation found wrong, `fractions` shown as they were written: `1e3` rather than 1000.0."""
    for found in _explanations(error):
        text = fractions.get(found.path)
        yield found if text is None else replace(found, message=found.message.replace(shown(float(text)), shown_fraction(text)))


def _explanations(error: ValidationError) -> Iterator[Explanation]:
    for detail in error.errors(include_url=False):
        if detail["type"] == "too_short" and detail["input"]:
            continue  # pydantic counts the valid items only; the wrong ones are reported themselves
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, InvalidItems):
            yield from (Explanation((*detail["loc"], index), message) for index, message in cause.items.items())
        else:
            yield _explain(detail)


_EXPECTED = {
    "bool_type": "true or false",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "model_type": "keys and values",
    "dict_type": "keys and values",
    "greater_than_equal": "at least {ge}",
    "too_short": "at least one entry",
    "string_too_short": "at least one character",
}


def _explain(detail: ErrorDetails) -> Explanation:
    path, kind, context = detail["loc"], detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        return Explanation(path, _unknown_key(path), at_key=True)
    if kind == "missing":
        return Explanation(path[:-1], f"the key {shown(path[-1])} is missing{_meaning(path)}")
    if kind == "value_error":
        message = str(context["error"])
    elif kind == "enum":
        choices = [choice.strip("'") for choice in context["expected"].replace(" or ", ", ").split(", ")]
        message = f"expected {_either(choices)}, not {shown(detail['input'])}{_did_you_mean(detail['input'], choices)}"
    else:
        expected = _EXPECTED.get(kind)
        message = f"expected {expected.format(**context)}, not {shown(detail['input'])}" if expected else detail["msg"]
        if kind == "string_type" and isinstance(detail["input"], (bool, int, float)):
            message += "; quote it"
    at_key = path[-1] == "[key]"
    return Explanation(path[:-1] if at_key else path, message, at_key)


def _unknown_key(path: Path) -> str:
    """Names the key meant: one that differs in case or dashes only, one of another place, or the nearest of this place."""
    key, parents = str(path[-1]), tuple(part for part in path[:-1] if isinstance(part, str))
    known = {field.keys[-1]: field for field in fields() if field.keys[:-1] == parents}
    plain = {_plain(name): name for name in known}
    elsewhere = [field.path for field in fields() if _plain(field.keys[-1]) == _plain(key)]
    message = f"unknown key {shown(key)}"
    if _plain(key) in plain:
        return f"{message}; did you mean {shown(plain[_plain(key)])}?"
    if len(elsewhere) == 1:
        return f"{message} here; did you mean {elsewhere[0]}?"
    if hint := _did_you_mean(key, known):
        return message + hint
    return f"{message}; expected {_either(sorted(known))}"


def _meaning(path: Path) -> str:
    names = [part for part in path if isinstance(part, str)]
    field: ModelField | None = next((field for field in fields() if list(field.keys) == names), None)
    first_sentence = ((field and field.info.description) or "").split(". ")[0].rstrip(".")
    return f"; it states: {first_sentence}" if first_sentence else ""


def _plain(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


def _did_you_mean(found: Any, choices: Iterable[str]) -> str:
    if isinstance(found, str) and "," in found:
        return "; several are written as a list"
    by_plain = {_plain(choice): choice for choice in choices}
    near = nearest(_plain(str(found)), by_plain) if found is not None else None
    return f"; did you mean {shown(by_plain[near])}?" if near is not None else ""


def _either(choices: Sequence[str]) -> str:
    return choices[0] if len(choices) == 1 else f"{', '.join(choices[:-1])} or {choices[-1]}"
