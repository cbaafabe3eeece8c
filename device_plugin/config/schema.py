"""The JSON Schema and the reference table of the config, made from the model.

`python -m device_plugin.config.schema` writes both into a checkout: `api/config.schema.json`, and the table between its two
markers in `docs/configuration.md`. Tests hold them to the model.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from device_plugin.config.model import Config
from device_plugin.config.options import fields, options

if TYPE_CHECKING:
    from pydantic import BaseModel

    from device_plugin.config.options import ModelField

SCHEMA_FILE = "api/config.schema.json"
REFERENCE_FILE = "docs/configuration.md"
_NULL = {"type": "null"}
_BEGIN, _END = "<!-- reference: begin, made by `make schema` -->", "<!-- reference: end -->"


def config_schema() -> str:
    """The JSON Schema of a config file, as text. It is for editors and linters; the loader checks more and says it better."""
    schema = Config.model_json_schema(by_alias=True, mode="validation")
    _drop_titles(schema)
    schema["type"] = ["object", "null"]  # an empty file says nothing, and may
    for field in fields():
        owner = _owners()[".".join(field.keys[:-1])]
        definition, key = schema if owner is Config else schema["$defs"][owner.__name__], field.keys[-1]
        part = definition["properties"][key]
        part.pop("default", None)
        part = _or_null(part, may_be_null=field.may_be_empty and not field.info.is_required())
        if _is_plain(default := _defaults(owner).get(key)):
            part["default"] = default
        definition["properties"][key] = part
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Configuration of gpu-device-plugin, version v1",
    }
    return json.dumps(head | schema, indent=2, ensure_ascii=False) + "\n"


def _drop_titles(schema: Any) -> None:
    """Pydantic titles everything by its name in code, which says nothing that the key does not."""
    if isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for part in schema.values():
            _drop_titles(part)
    elif isinstance(schema, list):
        for part in schema:
            _drop_titles(part)


def _or_null(part: dict[str, Any], *, may_be_null: bool) -> dict[str, Any]:
    """What a key's value can be, with null among it where the loader takes that for an absent key, and else not."""
    described = {name: part[name] for name in ("description",) if name in part}
    kinds = part.get("anyOf") or [{name: value for name, value in part.items() if name not in described}]
    kinds = [kind for kind in kinds if kind != _NULL] + ([_NULL] if may_be_null else [])
    return described | (kinds[0] if len(kinds) == 1 else {"anyOf": kinds})


@cache
def _owners() -> dict[str, type[BaseModel]]:
    """The model that has the keys below a path."""
    return {"": Config} | {field.path: field.model for field in fields() if field.model is not None}


@cache
def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    """The defaults of a model by key, as a file would state them; pydantic's own are what the code holds (30.0 for `30s`)."""
    return model.model_construct().model_dump(mode="json", by_alias=True)


def _is_plain(default: object) -> bool:
    """Whether a default is one value: the blocks inside a block have defaults of their own, and None means that there is none."""
    return default is not None and not isinstance(default, dict)


def reference_table() -> str:
    """A Markdown table of every key: default, flag, variable, meaning."""
    rows = ["| key | default | flag | variable | meaning |", "|---|---|---|---|---|"]
    by_path = {option.path: option for option in options()}
    for field in fields():
        if field.model is not None and not field.is_list:
            continue  # a block: its keys say it all
        option = by_path.get(field.path)
        flags = ", ".join(f"`--{flag}`" for flag in option.flags) if option else ""
        variables = ", ".join(f"`{variable}`" for variable in option.variables) if option else ""
        default = _shown_default(field, _owners()[".".join(field.keys[:-1])])
        rows.append(f"| `{_shown_path(field)}` | {default} | {flags} | {variables} | {_meaning(field)} |")
    return "\n".join(rows) + "\n"


def _shown_path(field: ModelField) -> str:
    """`sharing.timeSlicing.resources[].name`: brackets where a list is."""
    lists = {item.keys for item in fields() if item.model is not None and item.is_list}
    parents = [field.keys[: position + 1] for position in range(len(field.keys) - 1)]
    return ".".join([*(f"{keys[-1]}[]" if keys in lists else keys[-1] for keys in parents), field.keys[-1]])


def _shown_default(field: ModelField, owner: type[BaseModel]) -> str:
    if field.info.is_required():
        return "required"
    default = _defaults(owner)[field.keys[-1]]
    if default is None:
        return ""
    return f"`{default if isinstance(default, str) else json.dumps(default)}`"


def _meaning(field: ModelField) -> str:
    names = ", ".join(f"`{choice}`" for choice in field.choices)
    choices = f" {'Classes:' if field.is_mapping else 'One of'} {names}." if names else ""
    return f"{field.info.description}{choices}".replace("|", "\\|")


def with_reference(page: str) -> str:
    """The page with the present table between its markers."""
    before, _, rest = page.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return f"{before}{_BEGIN}\n\n{reference_table()}\n{_END}{after}"


def write(root: Path) -> None:
    """Brings both files of a checkout up to date."""
    (root / SCHEMA_FILE).write_text(config_schema(), encoding="utf-8")
    page = root / REFERENCE_FILE
    page.write_text(with_reference(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    write(Path.cwd())
