"""Records behave as the frozen data classes that the type checker takes them for."""

import copy
import pickle
from dataclasses import asdict, field, fields, replace
from typing import ClassVar

import pytest

from device_plugin.records import ordered_record, record


@record
class Pair:
    left: int
    right: tuple[str, ...] = ()
    more: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return self.left + len(self.right)


@record
class Twin:
    left: int
    right: tuple[str, ...] = ()
    more: dict[str, int] = field(default_factory=dict)


@record
class Single:
    only: str


@ordered_record
class Place:
    line: int
    column: int = 0


def test_equal_fields_of_one_class_are_equal():
    assert Pair(1, ("a",)) == Pair(left=1, right=("a",), more={})
    assert Pair(1) != Pair(2)
    assert Pair(1) != Twin(1)
    assert Single("a") == Single("a") != Single("b")
    assert Single("a") != "a"


def test_equal_records_are_one_key():
    assert {Place(1, 2): "x"}[Place(1, 2)] == "x"
    assert len({Single("a"), Single("a"), Single("b")}) == 2
    with pytest.raises(TypeError, match="unhashable"):
        hash(Pair(1))  # for it holds a dict


def test_a_record_shows_its_fields():
    assert repr(Pair(1, ("a",))) == "Pair(left=1, right=('a',), more={})"
    assert repr(Single("a")) == "Single(only='a')"


def test_ordered_records_sort_by_their_fields_in_order():
    places = [Place(2, 0), Place(1, 9), Place(1, 1)]
    assert sorted(places) == [Place(1, 1), Place(1, 9), Place(2, 0)]
    assert max(places) >= Place(2) > Place(1, 9)
    with pytest.raises(TypeError):
        assert Place(1) < (2, 0)
    with pytest.raises(TypeError):
        assert Single("a") < Single("b")


def test_a_record_has_no_other_attributes():
    with pytest.raises(AttributeError):
        Pair(1).middle = 2
    assert not hasattr(Pair(1), "__dict__")


def test_a_field_without_a_default_comes_before_those_with_one():
    with pytest.raises(SyntaxError, match="default"):

        @record
        class Odd:
            first: int = 0
            second: int


def own(name):
    return {"__annotations__": {"only": "str"}, name: lambda *_: None}


def one(name="only", annotation="list[str]", **stated):
    return {"__annotations__": {name: annotation}, **stated}


@pytest.mark.parametrize(
    ("bases", "namespace"),
    [
        ((), {}),
        ((Single,), one()),
        ((Exception,), one()),
        *(((), own(name)) for name in ("__init__", "__post_init__", "__eq__", "__hash__", "__repr__")),
        *(((), one(name)) for name in ("self", "members", "MISSING")),
        ((), one(annotation="ClassVar[list[str]]", only=())),
        ((), one(annotation=ClassVar[list[str]], only=())),
    ],
)
def test_what_a_record_does_not_have_is_refused(bases, namespace):
    """A data class would heed it, a record would lose it without a word."""
    for decorator in (record, ordered_record):
        with pytest.raises(TypeError) as refused:
            decorator(type("Odd", bases, dict(namespace)))
        assert str(refused.value) == (
            "Odd cannot be a record: one has fields, no base class, no ClassVar, "
            "no __eq__, __hash__, __init__, __post_init__, __repr__, __slots__ of its own, "
            "and no field named MISSING, members, self"
        )


@pytest.mark.parametrize(
    "stated", [{"init": False}, {"repr": False}, {"compare": False}, {"hash": False}, {"hash": True}, {"kw_only": True}]
)
def test_what_a_field_does_not_have_is_refused(stated):
    """So it is with what `field` can say of a data class's field."""
    with pytest.raises(TypeError) as refused:
        record(type("Odd", (), one(only=field(default=(), **stated))))
    assert (
        str(refused.value) == "the field only cannot be a record's: of field(...) one takes default, default_factory and metadata"
    )


@pytest.mark.parametrize("default", [[], {}, set(), bytearray(), field(default=[])])
def test_a_default_that_can_change_is_refused(default):
    """All records would share it."""
    with pytest.raises(TypeError) as refused:
        record(type("Odd", (), one(only=default)))
    assert str(refused.value) == "the default of the field only can change, and all records would share it; give a default_factory"


def test_a_field_may_say_what_it_is_for():
    """What `field` can say of a record's field, it can."""
    made = record(type("Plain", (), one(only=field(default=(), metadata={"unit": "s"}))))
    assert made().only == ()
    assert fields(made)[0].metadata == {"unit": "s"}


def test_a_record_is_the_class_that_was_written():
    assert (Pair.__name__, Pair.__qualname__, Pair.__module__) == ("Pair", "Pair", __name__)
    assert Place.__doc__ is None


def test_each_value_has_defaults_of_its_own():
    assert Pair(1).more is not Pair(1).more
    assert Pair(3, ("a", "b")).total == 5
    with pytest.raises(TypeError, match="left"):
        Pair()


def test_a_record_is_replaced_matched_and_copied():
    assert replace(Pair(1, ("a",)), left=2) == Pair(2, ("a",))
    assert asdict(Pair(1, ("a",))) == {"left": 1, "right": ("a",), "more": {}}
    assert [each.name for each in fields(Place)] == ["line", "column"]
    match Place(1, 2):
        case Place(line, column):
            assert (line, column) == (1, 2)
    assert copy.deepcopy(Place(1, 2)) == pickle.loads(pickle.dumps(Place(1, 2))) == Place(1, 2)
