"""Records: immutable values with slots, as `@dataclass(frozen=True, slots=True)` makes them, in a fifth of the time.

For each frozen class `dataclasses` compiles six functions. This process has a hundred such classes, and made that way they were a
fifth of its start, during which kubelet waits for the node's GPUs. Of a record only `__init__` is compiled; the rest are closures.
That nothing is assigned to a field later is for the type checker to see, to which a record is a frozen data class.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import total_ordering
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """A class of values: equal if of the same class with equal fields, and hashed by them."""
    return _made(cls)[0]


@dataclass_transform(frozen_default=True, order_default=True, field_specifiers=(field,))
def ordered_record(cls: type[T]) -> type[T]:
    """The same, and sorted by the fields in their order."""
    made, values = _made(cls)

    def precedes(self: T, other: object) -> Any:
        return values(self) < values(other) if other.__class__ is self.__class__ else NotImplemented

    made.__lt__ = precedes  # type: ignore[operator]
    return total_ordering(made)


def _made(cls: type[T]) -> tuple[type[T], Callable[[T], Any]]:
    """The class, and what reads the fields of one of its values."""
    made = dataclass(slots=True, eq=False, repr=False)(cls)
    names = [each.name for each in fields(made)]  # type: ignore[arg-type]
    values = attrgetter(*names)

    def equals(self: T, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: T) -> int:
        return hash(values(self))

    def shown(self: T) -> str:
        return f"{made.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    made.__eq__, made.__hash__, made.__repr__ = equals, hashed, shown  # type: ignore[method-assign, assignment]
    return made, values
