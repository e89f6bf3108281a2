"""Which types an attribute of a process may have after a resume: those that take every stored value."""

from __future__ import annotations

import enum
from typing import Annotated, Any, Literal, Optional

import msgspec
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

from clonos_py import Job, count
from clonos_py.job.state_mapping import definitions_of
from clonos_py.model.record import Record
from clonos_py.model.state_definitions import StateDefinition, differences
from clonos_py.operators.keyed_rows import ROWS_TABLE
from clonos_py.plan.physical import plan
from clonos_py.plan.state_definitions import attribute_types
from tests.unit.dsl.connectors import Nowhere, bids


class Few(enum.Enum):
    RED, BLUE = "red", "blue"


class More(enum.Enum):
    BLUE, RED, ODD = "blue", "red", "a | b, c"


class Numbers(enum.Enum):
    ONE, TWO = 1, 2


class Part(Record):
    n: int


class MorePart(Record):
    n: int
    tags: list[int] = msgspec.field(default_factory=list)
    kind: Few | None = None


class OtherPart(Record):
    n: int
    tags: list[int]


class WholePart(Record):
    n: float


SAME = [int, str, bool, Few, Part, Any, tuple[int, str], Literal["a", 1], dict[str, list[Part]], int | str | None]
TAKEN: list[tuple[Any, Any]] = [
    *((type_, type_) for type_ in SAME),
    (int, float),
    (int, int | None),
    (int, int | str),
    (int | str, str | int | bool),
    (int | None, float | str | None),
    (Optional[int], None | int),  # noqa: UP045 - both ways to write it
    (Annotated[int, msgspec.Meta(ge=0)], int),
    (Few, More),
    (Few, str),
    (Few, Literal["blue", "green", "red"]),
    (Numbers, int | None),
    (Literal["a", "b"], Literal["b", "c", "a"]),
    (Literal["a"], str),
    (Literal[1, 2], float),
    (Literal["a", None], str | None),
    (Literal["red"], Few),
    (tuple[int, int], tuple[float, int | None]),
    (tuple[int, int], tuple[int, ...]),
    (tuple[int, str], tuple[int | str, ...]),
    (tuple[int, ...], tuple[float, ...]),
    (list[int], list[int | str]),
    (list[Few], list[More] | str | None),
    (dict[str, int], dict[str, float]),
    (Part, MorePart),
    (Part, WholePart | None),
    (list[Part], list[MorePart]),
    (tuple[Part, int], tuple[MorePart, int]),
]
REFUSED: list[tuple[Any, Any, str]] = [
    (int, str, "x: int, now str"),
    (float, int, "x: float, now int"),
    (int | None, int, "x: int or null, now int"),
    (int | str, int, "x: int | str, now int"),
    (int | str, bool | str, "x: int | str, now bool | str"),
    (More, Few, r"x: one of 'blue', 'red', 'a \x7c b\x2c c', now one of 'red', 'blue'"),
    (str, Few, "x: str, now one of 'red', 'blue'"),
    (Numbers, Literal["1", "2"], "x: one of 1, 2, now one of '1', '2'"),
    (Literal["a", "b"], Literal["a"], "x: one of 'a', 'b', now one of 'a'"),
    (Literal["a", 1], str, "x: one of 'a', 1, now str"),
    (Literal["a", None], str, "x: one of 'a' or null, now str"),
    (tuple[int, int], tuple[int, int, int], "x: tuple of 2, now tuple of 3"),
    (tuple[int, int, int], tuple[int, int], "x: tuple of 3, now tuple of 2"),
    (tuple[int, ...], tuple[int, int], "x: tuple, now tuple of 2"),
    (tuple[int, str], tuple[int, ...], "x[1]: str, now int"),
    (tuple[int, str], tuple[str, int], "x[0]: int, now str; x[1]: str, now int"),
    (list[int | str], list[int], "x[*]: int | str, now int"),
    (list[int] | None, list[str] | str | None, "x[*]: int, now str"),
    (dict[str, int], dict[int, int], "x[key]: str, now int"),
    (dict[str, tuple[int, int]], dict[str, tuple[int]], "x[value]: tuple of 2, now tuple of 1"),
    (Part, OtherPart, "x.tags: not stored, now list"),
    (list[Part], list[OtherPart], "x[*].tags: not stored, now list"),
    (WholePart, Part, "x.n: float, now int"),
]


def found(old: Any, new: Any) -> str:
    """The differences, without the words before each."""
    was, is_ = (StateDefinition(attributes=dict(attribute_types("x", type_))) for type_ in (old, new))
    return "; ".join(text.removeprefix("attribute ") for text in differences(was, is_, {}))


@pytest.mark.parametrize(("old", "new"), TAKEN, ids=str)
def test_an_attribute_may_take_more_values(old: Any, new: Any) -> None:
    assert found(old, new) == ""


@pytest.mark.parametrize(("old", "new", "difference"), REFUSED, ids=str)
def test_a_difference_of_an_attribute_is_named(old: Any, new: Any, difference: str) -> None:
    assert found(old, new) == difference


PLAIN: list[Any] = [int, float, bool, str, type(None), Few, More, Numbers, Literal["a", 1], Literal["red", "a"]]
ELEMENTS = st.sampled_from([*PLAIN, *(type_ | None for type_ in PLAIN), int | str, bool | float | str])
TYPES = st.one_of(
    ELEMENTS,
    ELEMENTS.map(lambda element: list[element]),  # type: ignore[valid-type]
    ELEMENTS.map(lambda element: dict[str, element]),  # type: ignore[valid-type]
    ELEMENTS.map(lambda element: tuple[element, ...]),  # type: ignore[valid-type]
    st.lists(ELEMENTS, max_size=3).map(lambda elements: tuple.__class_getitem__(tuple(elements))),
)


@given(old=TYPES, new=TYPES, data=st.data())
def test_every_value_of_a_type_that_is_taken_over_is_read_as_the_new_one(
    old: Any, new: Any, data: st.DataObject
) -> None:
    assert found(old, old) == ""
    if found(old, new) == "":
        value = data.draw(st.from_type(old))
        try:
            encoded = msgspec.msgpack.encode(value)
        except OverflowError:  # an integer that no state can hold
            reject()
        msgspec.msgpack.decode(encoded, type=new)


def test_rows_that_wait_for_a_table_have_the_key_of_the_stream() -> None:
    job = Job("waiting")
    rows = bids(job)
    table = rows.select(number="auction").key_by("number").aggregate(n=count()).named("table")
    rows.join(table, on=("auction", "number"), load_first=True).named("joined").sink(Nowhere())
    keys = definitions_of(plan(job))["joined"].keys
    assert {name: list(types) for name, types in keys.items()} == {ROWS_TABLE: ["number"], "waiting": ["auction"]}
