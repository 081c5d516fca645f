"""Dataclasses that are quick to define behave as the standard ones do."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import pydoc
import time
from dataclasses import FrozenInstanceError, field
from typing import Any

import pytest

from monograph.dataclass import dataclass


@dataclass(frozen=True)
class Kept:
    """What a pickle finds again by its name."""

    x: int
    parts: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class KeptInSlots:
    x: int
    y: int = 2


def made(decorator: Any) -> list[Any]:
    """The same classes by either decorator."""

    @decorator(frozen=True)
    class Point:
        x: int
        y: int = 2
        seen: list[int] = field(default_factory=list, compare=False)

    @decorator(frozen=True, slots=True)
    class Slotted:
        x: int
        total: int = field(init=False, repr=False, compare=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "total", self.x + 1)

    @decorator
    class Open:
        name: str
        parts: dict[str, int] = field(default_factory=dict)

    @decorator(frozen=True, eq=False, repr=False)
    class Plain:
        x: int = 0

    @decorator(frozen=True)
    class Derived(Point):
        z: int = 3

    return [Point, Slotted, Open, Plain, Derived]


@pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass])
def test_they_do_what_the_standard_ones_do(decorator: Any) -> None:
    Point, Slotted, Open, Plain, Derived = made(decorator)
    assert Point(1) == Point(1, 2, [9]) != Point(2)
    assert hash(Point(1)) == hash(Point(1, 2, [9])) == hash((1, 2))
    assert repr(Point(1)).endswith("Point(x=1, y=2, seen=[])")
    assert Point(1).seen is not Point(1).seen
    assert dataclasses.replace(Point(1), y=5) == Point(x=1, y=5)
    assert [each.name for each in dataclasses.fields(Derived)] == ["x", "y", "seen", "z"]
    assert Derived(1, z=4).z == 4 and Derived(1) != Point(1)
    assert Slotted(1).total == 2 and not hasattr(Slotted(1), "__dict__")
    assert repr(Slotted(1)).endswith("Slotted(x=1)")
    assert copy.copy(Slotted(4)) == copy.deepcopy(Slotted(4)) == Slotted(4)
    assert Plain() != Plain() and "object at" in repr(Plain())
    opened = Open("a")
    opened.name = "b"
    assert opened == Open("b") and Open.__hash__ is None
    match Point(7, 8):
        case Point(x, y):
            assert (x, y) == (7, 8)


@pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass])
def test_what_is_frozen_stays(decorator: Any) -> None:
    Point, Slotted, *_ = made(decorator)
    for frozen in (Point(1), Slotted(1)):
        with pytest.raises(FrozenInstanceError):
            frozen.x = 2
        with pytest.raises(FrozenInstanceError):
            del frozen.x


@pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass])
def test_methods_of_its_own_are_kept(decorator: Any) -> None:
    @decorator(frozen=True)
    class Own:
        x: int = 0

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

        def __repr__(self) -> str:
            return "own"

    assert Own() == 1 and hash(Own()) == 7 and repr(Own()) == "own"


@pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass])
def test_wrong_arguments_are_an_error(decorator: Any) -> None:
    Point, *_ = made(decorator)
    for _ in range(2):  # the first call writes the method
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'x'"):
            Point()
        with pytest.raises(TypeError, match="unexpected keyword argument 'w'"):
            Point(1, w=2)


@pytest.mark.parametrize("decorator", [dataclass, dataclasses.dataclass])
def test_a_signature_is_right_before_there_is_an_instance(decorator: Any) -> None:
    @decorator(frozen=True)
    class Named:
        """A point."""

        x: int
        y: int = 2
        seen: list[int] = field(default_factory=list)
        z: int = field(default=1, kw_only=True)

    shown = "x: int, y: int = 2, seen: list[int] = <factory>, *, z: int = 1) -> None"
    assert str(inspect.signature(Named)).replace("'", "") == f"({shown}"
    assert f"__init__(self, {shown}" in pydoc.plain(pydoc.render_doc(Named)).replace("'", "")
    assert inspect.signature(Named.__eq__).parameters.keys() == {"self", "other"}
    assert Named(1, z=5).z == 5
    with pytest.raises(TypeError, match="positional argument"):
        Named(1, 2, [], 5)


@pytest.mark.parametrize("base", [dataclass, dataclasses.dataclass])
@pytest.mark.parametrize("derived", [dataclass, dataclasses.dataclass])
def test_either_kind_derives_from_the_other(base: Any, derived: Any) -> None:
    Point, *_ = made(base)

    @derived(frozen=True)
    class Further(Point):
        w: int = 4

    @dataclass(frozen=True)
    class Last(Further):
        v: int = 5

    assert repr(Last(1)).endswith("Last(x=1, y=2, seen=[], w=4, v=5)")
    assert Last(1) == Last(1) != Further(1) and hash(Last(1)) == hash(Last(1))
    assert dataclasses.asdict(Last(1, 3)) == {"x": 1, "y": 3, "seen": [], "w": 4, "v": 5}
    assert Last.__match_args__ == ("x", "y", "seen", "w", "v")
    for frozen in (Further(1), Last(1)):
        with pytest.raises(FrozenInstanceError):
            frozen.x = 2
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):
        derived(type("Loose", (Point,), {}))
    Open = made(base)[2]
    with pytest.raises(TypeError, match="cannot inherit frozen dataclass from a non-frozen one"):
        derived(frozen=True)(type("Tight", (Open,), {}))


@pytest.mark.parametrize("value", [Kept(1, [2]), KeptInSlots(3)], ids=["plain", "slots"])
def test_they_are_pickled_and_copied(value: Any) -> None:
    for again in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert again == value and type(again) is type(value)


def test_defining_one_takes_a_fraction_of_the_time() -> None:
    def seconds(decorator: Any) -> float:
        start = time.process_time()
        for _ in range(40):
            made(decorator)
        return time.process_time() - start

    ours, standard = (
        min(seconds(each) for _ in range(3)) for each in (dataclass, dataclasses.dataclass)
    )
    assert ours < standard / 2
