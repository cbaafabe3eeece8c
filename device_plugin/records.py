"""Records: immutable values with slots, as `@dataclass(frozen=True, slots=True)` makes them, in an eighth of the time.

For each such class `dataclasses` compiles six functions, annotations included. This process has a hundred of them, and made that
way they were a fifth of its start, during which kubelet waits for the node's GPUs. Of a record only a plain `__init__` is compiled;
the rest are closures. That nothing is assigned to a field later is for the type checker to see, to which a record is a frozen data
class, as it is to the functions of `dataclasses`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import MISSING, Field, field
from functools import total_ordering
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar, dataclass_transform

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

T = TypeVar("T")

_MADE = frozenset({"__init__", "__post_init__", "__eq__", "__hash__", "__repr__", "__slots__"})  # of the class's own: would be lost
_TAKEN = frozenset({"self", "members", "MISSING"})  # words of the `__init__` that is made


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
    """The class with its slots, and what reads the fields of one of its values."""
    names = tuple(cls.__annotations__)
    namespace = {name: value for name, value in cls.__dict__.items() if name not in ("__dict__", "__weakref__")}
    is_derived, is_taken = cls.__bases__ != (object,), not (_MADE.isdisjoint(namespace) and _TAKEN.isdisjoint(names))
    if is_derived or is_taken or not names or "ClassVar" in str(cls.__annotations__):
        raise TypeError(
            f"{cls.__qualname__} cannot be a record: one has fields, no base class, no ClassVar, "
            f"no {', '.join(sorted(_MADE))} of its own, and no field named {', '.join(sorted(_TAKEN))}"
        )
    members = {name: _as_field(name, namespace.pop(name, MISSING)) for name in names}
    values = attrgetter(*names)

    def equals(self: T, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: T) -> int:
        return hash(values(self))

    def shown(self: T) -> str:
        return f"{cls.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    namespace |= {
        "__slots__": names,
        "__match_args__": names,
        "__qualname__": cls.__qualname__,
        "__dataclass_fields__": members,
        "__init__": _initialiser(members),
        "__eq__": equals,
        "__hash__": hashed,
        "__repr__": shown,
    }
    made: type[T] = type(cls.__name__, cls.__bases__, namespace)
    return made, values


def _as_field(name: str, stated: Any) -> Field[Any]:
    """What the class says of a field: a default, a `field(...)`, or nothing."""
    made: Field[Any] = stated if isinstance(stated, Field) else field(default=stated)
    if not (made.init and made.repr and made.compare) or made.hash is not None or made.kw_only is True:
        raise TypeError(f"the field {name} cannot be a record's: of field(...) one takes default, default_factory and metadata")
    if made.default.__class__.__hash__ is None:
        raise TypeError(f"the default of the field {name} can change, and all records would share it; give a default_factory")
    made.name, made._field_type = name, dataclasses._FIELD  # type: ignore[attr-defined]  # noqa: SLF001 - its own mark of a field
    return made


def _initialiser(members: Mapping[str, Field[Any]]) -> Callable[..., None]:
    """`__init__`: takes the fields in order or by name, and keeps them."""
    parameters, steps = ["self"], []
    for name, member in members.items():
        is_made = member.default_factory is not MISSING
        is_optional = is_made or member.default is not MISSING
        value = f"members['{name}'].default_factory() if {name} is MISSING else {name}" if is_made else name
        parameters.append(f"{name}=members['{name}'].default" if is_optional else name)
        steps.append(f" self.{name} = {value}")
    scope: dict[str, Any] = {"members": members, "MISSING": MISSING}
    exec(f"def __init__({', '.join(parameters)}):\n" + "\n".join(steps), scope)  # noqa: S102 - as `dataclasses` does
    initialiser: Callable[..., None] = scope["__init__"]
    return initialiser
