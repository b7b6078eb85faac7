"""The house's `dataclass` beside the standard library's: whoever uses a class must not see which of them made it."""

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, field
from typing import Any, Generic, TypeVar

import pytest

from headrace.core.slotted import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list, compare=False)
    total: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.x + self.y)


@dataclasses.dataclass(frozen=True, slots=True)
class Twin:
    x: int
    y: int = 2
    tags: list[str] = field(default_factory=list, compare=False)
    total: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.x + self.y)


@dataclass(frozen=True, slots=True)
class Other:
    x: int
    y: int = 2


@dataclass(frozen=True, slots=True, order=True)
class Version:
    major: int
    minor: int


@dataclass(slots=True)
class Counter:
    count: int = 0
    seen: list[int] = field(init=False, default_factory=list)
    last: int = field(init=False)


@dataclass(frozen=True, slots=True)
class Box(Generic[T]):
    """One thing."""

    thing: T


@dataclass(frozen=True, slots=True)
class Labelled(Box[T]):
    label: str = ""


@dataclass(frozen=True, slots=True)
class Nothing: ...


@dataclass(slots=True, eq=False)
class Task:
    name: str


@dataclass(frozen=True, slots=True)
class Odd:
    """Methods of its own stay."""

    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd) and other.text.lower() == self.text.lower()

    def __hash__(self) -> int:
        return hash(self.text.lower())

    def __repr__(self) -> str:
        return f"<{self.text}>"


def test_should_be_made_as_the_standard_library_makes_it_when_given_fields() -> None:
    for cls in (Point, Twin):
        made: Any = cls(1, tags=["a"])
        assert (made.x, made.y, made.tags, made.total) == (1, 2, ["a"], 3)
        assert repr(made) == f"{cls.__name__}(x=1, y=2, tags=['a'])"
        assert cls(1).tags == []
        assert cls(1).tags is not cls(1).tags
        assert not hasattr(made, "__dict__")
    assert Point.__match_args__ == Twin.__match_args__ == ("x", "y", "tags")
    assert [each.name for each in dataclasses.fields(Point)] == [each.name for each in dataclasses.fields(Twin)]


@pytest.mark.parametrize(("arguments", "words"), [((), "missing 1 required"), ((1, 2, [], 4), "positional arguments")])
def test_should_refuse_when_arguments_are_too_few_or_too_many(arguments: Any, words: str) -> None:
    for _ in range(2):  # the first time by the stand-in
        with pytest.raises(TypeError, match=rf"Point\.__init__\(\).*{words}"):
            Point(*arguments)


def test_should_compare_by_fields_of_one_class_when_equality_is_asked() -> None:
    assert Point(1, tags=["a"]) == Point(1, tags=["b"])
    assert Point(1) != Point(2)
    others: list[object] = [Other(1), (1, 2)]
    assert Point(1) not in others
    assert hash(Point(1)) == hash(Twin(1))
    assert {Other(1): "a"}[Other(1)] == "a"
    assert Nothing() == Nothing()
    assert len({Nothing(), Nothing()}) == 1


def test_should_order_by_fields_when_ordered() -> None:
    assert sorted([Version(2, 0), Version(1, 9), Version(1, 2)]) == [Version(1, 2), Version(1, 9), Version(2, 0)]
    assert Version(1, 2) <= Version(1, 2)
    assert Version(1, 3) > Version(1, 2)
    assert Version(1, 3) >= Version(1, 3)
    with pytest.raises(TypeError):
        Version(1, 2) < (1, 2)  # type: ignore[operator]  # noqa: B015 - what it raises matters


def test_should_refuse_changes_when_frozen() -> None:
    point = Other(1)
    with pytest.raises(FrozenInstanceError, match="'x' of Other"):
        point.x = 3  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        del point.x
    assert point.x == 1


def test_should_take_changes_and_no_hash_when_not_frozen() -> None:
    counter = Counter()
    counter.count += 1
    counter.seen.append(1)
    counter.last = 1
    other = Counter(1)
    assert other.seen == []
    assert not hasattr(other, "last")
    with pytest.raises(TypeError, match="unhashable"):
        hash(counter)


def test_should_be_its_own_equal_alone_when_it_is_not_compared() -> None:
    assert Task("a") != Task("a")
    assert len({Task("a"), Task("a")}) == 2


def test_should_keep_methods_of_the_class_when_it_has_some() -> None:
    assert Odd("A") == Odd("a")
    assert len({Odd("A"), Odd("a")}) == 1
    assert repr(Odd("A")) == "<A>"


def test_should_inherit_fields_when_the_base_is_one_too() -> None:
    assert Labelled(1, "a").label == "a"
    assert Labelled[int](thing=1) == Labelled(1)
    assert Box(1) != Labelled(1)
    match Labelled(1, "a"):
        case Labelled(thing, label):
            assert (thing, label) == (1, "a")


def test_should_work_with_what_dataclasses_offers_when_asked() -> None:
    assert dataclasses.replace(Other(1), y=5) == Other(1, 5)
    assert dataclasses.asdict(Other(1)) == {"x": 1, "y": 2}
    assert dataclasses.astuple(Version(1, 2)) == (1, 2)
    assert dataclasses.is_dataclass(Other)
    assert Box.__doc__ == "One thing."
    assert Other.__doc__ == "Other"


def test_should_come_back_equal_when_pickled_or_copied() -> None:
    counter = Counter(3)
    counter.last = 1
    for value in (Other(1, 3), Version(1, 2), counter, Labelled(1, "a")):
        assert pickle.loads(pickle.dumps(value)) == value
        assert copy.copy(value) == value
        assert copy.deepcopy(value) == value
