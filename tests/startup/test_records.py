"""Records are what `dataclasses` would make of the same classes."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from typing import Any

import pytest

from sardonyx.startup import records
from sardonyx.startup.parameters import Parameters


def classes(dataclass: Any, field: Any) -> dict[str, Any]:
    @dataclass(frozen=True)
    class Point:
        """A place."""

        x: int
        y: int = 2

    @dataclass(frozen=True)
    class Named(Point):
        name: str = "origin"

    @dataclass
    class Bag:
        content: list[int] = field(default_factory=list)
        size: int = 0

        def __post_init__(self) -> None:
            self.size = len(self.content)

    @dataclass(eq=False)
    class Thing:
        value: int

    @dataclass
    class Own:
        value: int

        def __repr__(self) -> str:
            return "mine"

    @dataclass(frozen=True)
    class Empty:
        pass

    return {one.__name__: one for one in (Point, Named, Bag, Thing, Own, Empty)}


OURS = classes(records.dataclass, records.field)
THEIRS = classes(dataclasses.dataclass, dataclasses.field)


@pytest.mark.parametrize(
    ("name", "values", "named"),
    [
        ("Point", (1,), {}),
        ("Point", (), {"y": 3, "x": 1}),
        ("Named", (1, 2), {"name": "n"}),
        ("Bag", ([1, 2],), {}),
        ("Bag", (), {}),
        ("Own", (1,), {}),
        ("Empty", (), {}),
    ],
)
def test_they_are_made_compared_and_shown_alike(name: str, values: Any, named: Any) -> None:
    ours, theirs = (made[name](*values, **named) for made in (OURS, THEIRS))
    assert vars(ours) == vars(theirs) and repr(ours) == repr(theirs)
    assert ours == OURS[name](*values, **named) and ours != theirs
    assert OURS[name].__match_args__ == THEIRS[name].__match_args__
    assert copy.copy(ours) == ours and copy.deepcopy(ours) == ours
    assert (OURS[name].__hash__ is None) == (THEIRS[name].__hash__ is None)
    if OURS[name].__hash__ is not None:
        assert hash(ours) == hash(OURS[name](*values, **named))


@pytest.mark.parametrize("name", ["Point", "Named", "Bag"])
def test_the_first_objects_are_like_later_ones(name: str) -> None:
    cls = classes(records.dataclass, records.field)[name]
    values = [[1]] if name == "Bag" else [1]
    made = [cls(*values) for _ in range(records.SELDOM + 2)]
    assert all(vars(one) == vars(THEIRS[name](*values)) and list(vars(one)) == list(vars(made[-1])) for one in made)
    if name == "Bag":
        assert cls().content is not cls().content


def test_those_without_comparison_are_themselves_alone() -> None:
    thing = OURS["Thing"](1)
    assert thing != OURS["Thing"](1) and len({thing, OURS["Thing"](1)}) == 2


def test_a_subclass_is_something_else() -> None:
    assert OURS["Point"](1, 2) != OURS["Named"](1, 2)


@pytest.mark.parametrize("given", [((), {}), ((1, 2, 3), {}), ((1,), {"z": 1}), ((1,), {"x": 1})])
def test_wrong_arguments_are_refused(given: Any) -> None:
    values, named = given
    for made in (OURS, THEIRS, classes(records.dataclass, records.field)):
        with pytest.raises(TypeError):
            made["Point"](*values, **named)


def test_frozen_ones_cannot_be_changed() -> None:
    point = OURS["Point"](1)
    with pytest.raises(AttributeError):
        point.x = 2
    with pytest.raises(AttributeError):
        del point.x
    assert records.replace(point, y=5) == OURS["Point"](1, 5) and point == OURS["Point"](1)
    with pytest.raises(TypeError):
        records.replace(point, z=5)


@records.dataclass(frozen=True)
class Sent:
    value: int


def test_they_go_to_other_processes() -> None:
    assert pickle.loads(pickle.dumps(Sent(3))) == Sent(3)


def plain(a, b=1, *, c, d=2):
    pass


def greedy(*values, **named):
    pass


@pytest.mark.parametrize("function", [plain, greedy, lambda: None])
def test_parameters_are_those_of_the_signature(function: Any) -> None:
    assert Parameters.of(function) == Parameters._of_signature(function)


def test_what_wraps_a_function_asks_for_what_that_asks_for() -> None:
    import functools

    @functools.wraps(plain)
    def wrapper(*values, **named):
        pass

    assert Parameters.of(wrapper) == Parameters.of(plain)
    assert Parameters.of(functools.partial(plain, c=1)).names == {"a", "b", "c", "d"}
