"""What single values cannot show: statements that contradict each other whatever the node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from device_plugin.config.values import parse_resource_name
from device_plugin.problems import Problem, ProblemKind, Severity

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from device_plugin.config.model import Config, SharedResource
    from device_plugin.problems import Origin

_ENTRIES = "sharing.timeSlicing.resources"


def find_contradictions(config: Config) -> list[Problem]:
    """Statements that cannot all be met on any node. A node's hardware can bring out more of them; those are for the plan."""
    return [*_claimed_twice(config), *_nothing_left(config), *_names_too_long(config), *_policies_differ(config)]


def _entries(config: Config) -> Sequence[tuple[str, SharedResource]]:
    slicing = config.sharing.time_slicing
    return [(f"{_ENTRIES}[{index}]", entry) for index, entry in enumerate(slicing.resources)] if slicing else []


def _claimed_twice(config: Config) -> Iterator[Problem]:
    claims: dict[tuple[str, str], Origin] = {}
    for path, entry in _entries(config):
        if not isinstance(entry.devices, tuple):
            continue
        for index, ref in enumerate(entry.devices):
            origin = config.origin(f"{path}.devices[{index}]")
            first = claims.setdefault((entry.name, ref), origin)
            if first is not origin:
                yield _contradiction(f"device {ref} of {entry.name} is claimed by another entry already, {_at(first)}", origin)


def _nothing_left(config: Config) -> Iterator[Problem]:
    takers: dict[str, Origin] = {}
    for path, entry in _entries(config):
        if entry.name in takers:
            where = _at(takers[entry.name])
            yield _contradiction(
                f"nothing of {entry.name} is left for this entry: an earlier one takes all, {where}; put this one before it",
                config.origin(path),
            )
        elif entry.devices == "all":
            takers[entry.name] = config.origin(path)


def _names_too_long(config: Config) -> Iterator[Problem]:
    slicing = config.sharing.time_slicing
    for path, entry in _entries(config):
        assert slicing is not None
        try:
            parse_resource_name(slicing.offered_name(entry))
        except ValueError as error:
            message = f"with the suffix of renameByDefault, {error}; give it a shorter `rename`"
            yield Problem(Severity.ERROR, ProblemKind.CONFIG, message, config.origin(f"{path}.name"))


def _policies_differ(config: Config) -> Iterator[Problem]:
    """Of one resource shared by several entries and offered under one name, the choice of replicas can follow one policy only."""
    slicing = config.sharing.time_slicing
    stated: dict[tuple[str, str], tuple[SharedResource, Origin]] = {}
    for path, entry in _entries(config):
        assert slicing is not None
        if entry.allocation_policy is None:
            continue
        origin = config.origin(f"{path}.allocationPolicy")
        offered = slicing.offered_name(entry)
        first, first_origin = stated.setdefault((entry.name, offered), (entry, origin))
        if first.allocation_policy != entry.allocation_policy:
            both = f"both {entry.allocation_policy} and {first.allocation_policy}"
            yield _contradiction(f"{offered} cannot be allocated {both}, stated {_at(first_origin)}", origin)


def _contradiction(message: str, origin: Origin) -> Problem:
    return Problem(Severity.ERROR, ProblemKind.CONTRADICTION, message, origin)


def _at(origin: Origin) -> str:
    return f"at {origin}"
