"""Joins of which only the first pairs of each key are needed."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.joins import JoinColumns
from clonos_py.model.tables import FirstOf, SortKey
from clonos_py.operators.history_join import HistoryJoin
from tests.unit.operators.join_histories import batch
from tests.unit.operators.scripted import opened, schema

PAIR = schema(("key", pa.int64()), ("price", pa.int64()), ("left", pa.string()), ("right", pa.string()))
COLUMNS: JoinColumns = (("key", 0, "key"), ("price", 1, "at"), ("left", 0, "name"), ("right", 1, "name"))
BY_PRICE = (SortKey("price", descending=True),)

steps = st.lists(
    st.tuples(st.integers(0, 1), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4)), max_size=8)), max_size=6
)


def pairs_of(first: FirstOf | None, history: list[tuple[int, list[tuple[int, int]]]]) -> list[list[dict[str, Any]]]:
    """The pairs of each step."""
    operator = HistoryJoin(["key"], ["key"], COLUMNS, PAIR, first=first)
    _, out = opened(operator)
    found = []
    for number, (side, rows) in enumerate(history):
        operator.on_rows(batch([(key, at, f"{number}.{i}") for i, (key, at) in enumerate(rows)]), side)
        found.append(out.take())
    return found


@given(steps, st.integers(1, 3))
def test_only_the_first_pairs_of_each_key_are_made_in_their_order(
    history: list[tuple[int, list[tuple[int, int]]]], n: int
) -> None:
    every, some = pairs_of(None, history), pairs_of(FirstOf(("key",), n, BY_PRICE), history)
    for whole, kept in zip(every, some, strict=True):
        by_key: dict[int, list[int]] = defaultdict(list)
        for place in sorted(range(len(whole)), key=lambda place: -whole[place]["price"]):
            by_key[whole[place]["key"]].append(place)
        assert kept == [whole[place] for place in sorted(p for places in by_key.values() for p in places[:n])]
