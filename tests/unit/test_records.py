"""Records behave as the frozen data classes that the type checker takes them for."""

import copy
import pickle
from dataclasses import asdict, field, fields, replace

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
