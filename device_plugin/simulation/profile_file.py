"""Where node profiles come from: the shipped ones, or a user's own file; what is wrong with it has its place."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ValidationError

from device_plugin.config.document import decode
from device_plugin.errors import ConfigError
from device_plugin.problems import Origin, Problem, ProblemKind, Severity
from device_plugin.simulation.placed_yaml import PlacedYaml
from device_plugin.simulation.profile import NodeProfile

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

M = TypeVar("M", bound=BaseModel)

PROFILES = Path(__file__).parent / "profiles"


def load_profile(name_or_path: str | Path) -> NodeProfile:
    """The shipped profile of that name, or the one in that file. Raises `ConfigError` with every problem and its place."""
    path = profile_path(name_or_path)
    return parse_profile(read_profile(path), path)


def read_profile(path: Path) -> bytes:
    """What a profile's file holds. Raises `ConfigError`."""
    try:
        return path.read_bytes()
    except OSError as error:
        is_missing = isinstance(error, (FileNotFoundError, NotADirectoryError))
        found = "there is no such node profile" if is_missing else f"cannot be read: {error.strerror or error}"
        message = f"{found}; give a YAML file or one of: {', '.join(shipped_profiles())}"
        raise ConfigError([Problem(Severity.ERROR, ProblemKind.CONFIG, message, Origin(str(path)))]) from error


def profile_path(name_or_path: str | Path) -> Path:
    """The file behind a shipped profile's name, or the path itself."""
    return PROFILES / f"{name_or_path}.yaml" if str(name_or_path) in shipped_profiles() else Path(name_or_path)


def shipped_profiles() -> tuple[str, ...]:
    """The names of the profiles that come with the project."""
    return tuple(sorted(path.stem for path in PROFILES.glob("*.yaml")))


def parse_profile(content: bytes | str, source: str | Path) -> NodeProfile:
    """A profile from YAML. Raises `ConfigError`."""
    text = decode(content, str(source)) if isinstance(content, bytes) else content
    document = PlacedYaml(text, str(source))
    data = document.data if document.data is not None else {}
    errors: list[ErrorDetails] = []
    profile = _validated(NodeProfile, data, errors)
    if isinstance(data, dict) and isinstance(data.get("faults"), list) and data["faults"]:
        from device_plugin.simulation.script import Script  # noqa: PLC0415 - its many models are half of a node's start

        script_errors: list[ErrorDetails] = []
        script = _validated(Script, {"faults": data["faults"]}, script_errors)
        errors += map(_without_kind, script_errors)
        if profile is not None and script is not None:
            profile = profile.model_copy(update={"faults": script.faults})
    if profile is None or errors:
        raise ConfigError(sorted((_problem(each, document) for each in errors), key=lambda problem: problem.origin))
    return profile


def _validated(model: type[M], data: object, errors: list[ErrorDetails]) -> M | None:
    """The model of that data, or None with what is wrong added to `errors`."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        errors += error.errors(include_url=False)
        return None


def _without_kind(error: ErrorDetails) -> ErrorDetails:
    """pydantic puts the step's kind behind its number. That is no key, though a step of kind `xid` has one of that name."""
    number_and_before, behind_kind = error["loc"][:2], error["loc"][3:]
    return {**error, "loc": number_and_before + behind_kind}


def _problem(error: ErrorDetails, document: PlacedYaml) -> Problem:
    origin, message = document.origin(error["loc"]), error["msg"].removeprefix("Value error, ")
    return Problem(Severity.ERROR, ProblemKind.CONFIG, f"{origin.path}: {message}" if origin.path else message, origin)
