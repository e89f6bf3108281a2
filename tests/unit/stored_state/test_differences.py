"""Differences of two tables, compared with those of multisets."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.stored_state.differences import difference

FIELDS: list[pa.Field[Any]] = [
    pa.field("key", pa.string()),
    pa.field("n", pa.int64()),
    pa.field("ids", pa.list_(pa.int64())),
]
SCHEMA = pa.schema(FIELDS)
ROW = st.tuples(st.sampled_from(["a", "b", None]), st.integers(0, 2), st.lists(st.integers(0, 1), max_size=2))


def table(rows: list[tuple[str | None, int, list[int]]]) -> pa.Table:
    return pa.Table.from_pylist([{"key": key, "n": n, "ids": ids} for key, n, ids in rows], schema=SCHEMA)


def counted(rows: list[tuple[str | None, int, list[int]]]) -> Counter[tuple[str | None, int, tuple[int, ...]]]:
    return Counter((key, n, tuple(ids)) for key, n, ids in rows)


@given(st.lists(ROW), st.lists(ROW))
def test_rows_of_only_one_table_are_those_of_the_other_multiset(
    old: list[tuple[str | None, int, list[int]]], new: list[tuple[str | None, int, list[int]]]
) -> None:
    found = difference(table(old), table(new), ["key"]).to_pylist()
    more, less = counted(new) - counted(old), counted(old) - counted(new)
    both = {key for key, *_ in more} & {key for key, *_ in less}
    expected = Counter({("after" if row[0] in both else "added", *row): count for row, count in more.items()})
    expected.update({("before" if row[0] in both else "removed", *row): count for row, count in less.items()})
    assert Counter((row["change"], row["key"], row["n"], tuple(row["ids"])) for row in found) == expected


def test_a_row_is_shown_before_and_then_after_its_change() -> None:
    found = difference(table([("a", 1, []), ("b", 1, [])]), table([("b", 2, []), ("a", 2, [])]), ["key"])
    assert [(row["change"], row["key"]) for row in found.to_pylist()] == [
        ("before", "a"),
        ("after", "a"),
        ("before", "b"),
        ("after", "b"),
    ]


def test_tables_of_different_columns_are_compared_by_all() -> None:
    """A later run may have added an attribute."""
    old, new = pa.table({"key": ["a"]}), pa.table({"key": ["a"], "n": pa.array([1])})
    assert difference(old, new, ["key"]).to_pylist() == [
        {"change": "before", "key": "a", "n": None},
        {"change": "after", "key": "a", "n": 1},
    ]
