"""The settings that can be given as flags and environment variables as well: found by walking the model, read from text here."""

from __future__ import annotations

from enum import Enum, StrEnum
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_origin

from pydantic import BaseModel

from device_plugin.config.model import Config, Option
from device_plugin.config.values import shown
from device_plugin.config.xids import XidSet
from device_plugin.records import record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pydantic.fields import FieldInfo

T = TypeVar("T")

# With nothing under it, sharing lacks its resources (the peer says so too), and an entry's empty `devices` is more likely a mistake
# than the wish to share everything.
_NEED_VALUE = ("sharing.timeSlicing", "sharing.timeSlicing.resources.devices")


class OptionKind(StrEnum):
    """What a setting's text is read as."""

    BOOL = "bool"
    STRING = "string"
    LIST = "list"  # split at commas; the flag may be repeated
    INTS = "ints"  # the same, of whole numbers


@record
class ModelField:
    """One field of the model: its name in code, its keys from the top of the file, and what pydantic knows about it."""

    name: str
    keys: tuple[str, ...]
    info: FieldInfo
    model: type[BaseModel] | None  # the model that its value is, or that its value's items are
    in_list: bool = False  # whether it belongs to a list's items

    @property
    def path(self) -> str:
        return ".".join(self.keys)

    @property
    def is_list(self) -> bool:
        return get_origin(self.info.annotation) is tuple

    @property
    def is_mapping(self) -> bool:
        return get_origin(self.info.annotation) is dict

    @property
    def may_be_empty(self) -> bool:
        """Whether its key without a value counts as absent, as for the peer."""
        return self.path not in _NEED_VALUE

    @property
    def choices(self) -> tuple[str, ...]:
        """The names that its value can be, that its list can hold, or that the keys of its mapping can be; empty: anything."""
        choices = _first(get_args(self.info.annotation)[0] if self.is_mapping else self.info.annotation, Enum)
        return tuple(str(choice.value) for choice in choices) if choices else ()


@cache
def fields() -> tuple[ModelField, ...]:
    """Every field of the model in order, each before the fields inside it. What is inside a list's items has the list's keys."""
    return tuple(_walk(Config, (), in_list=False))


def _walk(model: type[BaseModel], keys: tuple[str, ...], *, in_list: bool) -> Iterator[ModelField]:
    for name, info in model.model_fields.items():
        field = ModelField(name, (*keys, info.alias or name), info, _first(info.annotation, BaseModel), in_list)
        yield field
        if field.model is not None:
            yield from _walk(field.model, field.keys, in_list=in_list or field.is_list)


def _first(annotation: Any, wanted: type[T]) -> type[T] | None:
    """The first class of that kind in a type such as `C`, `C | None` or `tuple[C, ...]`."""
    if isinstance(annotation, type) and issubclass(annotation, wanted):
        return annotation
    return next((found for part in get_args(annotation) if (found := _first(part, wanted)) is not None), None)


@record
class ConfigOption:
    """A setting with its names. `flags` are without dashes, the one to show first; of `variables` the first one present wins."""

    keys: tuple[str, ...]
    flags: tuple[str, ...]
    variables: tuple[str, ...]
    kind: OptionKind
    choices: tuple[str, ...]  # what it can be, or hold; empty: anything
    description: str
    default: Any

    @property
    def path(self) -> str:
        return ".".join(self.keys)

    @property
    def help(self) -> str:
        """The description with the choices, the default and the variables, as `--help` shows it."""
        choices = f" One of {', '.join(self.choices)}." if self.choices else ""
        default = f" Default: {shown_default(self.default)}."
        return f"{self.description}{choices}{default} [{', '.join(self.variables)}]"

    def parse(self, raw: object) -> object:
        """The value as the file would state it, from a flag's or variable's text, or from the texts of a repeated flag.

        Texts are read as the peer reads them: lists are split at commas and trimmed, the last of repeated single values wins,
        an empty text is false, or no number at all (None: as if not given). Raises ValueError.
        """
        texts = list(raw) if isinstance(raw, (list, tuple)) else [raw]
        if self.kind is OptionKind.BOOL:
            return parse_bool(texts[-1])
        if self.kind is OptionKind.STRING:
            return texts[-1]
        items = [item.strip() for text in texts for item in str(text).split(",")]
        if self.choices:
            return items
        items = [item for item in items if item]
        return ([_parse_int(item) for item in items] or None) if self.kind is OptionKind.INTS else items


_TRUE = ("1", "t", "T", "TRUE", "true", "True")
_FALSE = ("0", "f", "F", "FALSE", "false", "False", "")


def parse_bool(text: object) -> bool:
    if isinstance(text, bool):
        return text
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise ValueError(f"expected true or false (also 1, t, 0, f), not {shown(text)}")


def _parse_int(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or len(text) > 18:
        raise ValueError(f"expected whole numbers, not {shown(text)}")
    return int(text)


@cache
def options() -> tuple[ConfigOption, ...]:
    """Every setting that has a flag and a variable, in the order of the model."""
    return tuple(_named(field, option) for field in fields() for option in field.info.metadata if isinstance(option, Option))


def stated_settings(config: Config) -> dict[str, str]:
    """The settings that somebody stated, by config path: the value in force, and whose word it is."""
    data = config.model_dump(mode="json", by_alias=True)
    return {
        option.path: f"{_shown_value(data, option)} ({origin})"
        for option in options()
        if (origin := config.origin(option.path)).source != "default"
    }


def _shown_value(data: Any, option: ConfigOption) -> str:
    for key in option.keys:
        data = data[key]
    return shown_default(tuple(data) if isinstance(data, list) else data)


def _named(field: ModelField, option: Option) -> ConfigOption:
    return ConfigOption(
        keys=field.keys,
        flags=option.flags or (field.name.replace("_", "-"),),
        variables=option.variables or (field.name.upper(),),
        kind=_kind(field.info.annotation),
        choices=field.choices,
        description=field.info.description or "",
        default=field.info.default,
    )


def _kind(annotation: Any) -> OptionKind:
    if annotation is bool:
        return OptionKind.BOOL
    if get_origin(annotation) is tuple:
        return OptionKind.INTS if int in get_args(annotation) else OptionKind.LIST
    return OptionKind.LIST if annotation is XidSet else OptionKind.STRING


def shown_default(value: object) -> str:
    """A default as the file would state it, in short."""
    match value:
        case None | () | XidSet():
            return "unset"
        case bool():
            return str(value).lower()
        case tuple():
            return ", ".join(str(item) for item in value)
        case _:
            return str(value)
