"""What differs between the rows that a sink got before and after a change."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.runtime.replay import row_differences
from clonos_py.runtime.replay.row_differences import AFTER, BEFORE, RowComparison, SinkDifferences

SCHEMA = pa.schema([("key", pa.int64()), ("value", pa.int64())])
Rows = list[tuple[int, int]]

rows_of_keys = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12)


def compared(before: Rows, after: Rows, keys: Sequence[str] = (), size: int = 5) -> SinkDifferences:
    comparison = RowComparison("sink", (SCHEMA, SCHEMA), keys)
    for side, rows in ((BEFORE, before), (AFTER, after)):
        for start in range(0, len(rows), size):
            columns = zip(*rows[start : start + size], strict=True)
            comparison.add(side, pa.RecordBatch.from_arrays([pa.array(c, pa.int64()) for c in columns], schema=SCHEMA))
    return comparison.result()


def tuples(table: pa.Table) -> Rows:
    return [(row["key"], row["value"]) for row in table.to_pylist()]


@given(rows_of_keys, rows_of_keys)
def test_differences_are_those_of_multisets(before: Rows, after: Rows) -> None:
    found = compared(before, after)
    assert Counter(tuples(found.only_before)) == Counter(before) - Counter(after)
    assert Counter(tuples(found.only_after)) == Counter(after) - Counter(before)
    assert found.equal == (Counter(before) & Counter(after)).total()
    assert found.differs == (Counter(before) != Counter(after))


@given(rows_of_keys, rows_of_keys)
def test_rows_of_the_same_key_are_two_versions_of_one(before: Rows, after: Rows) -> None:
    found = compared(before, after, keys=["key"])
    old, new = map(tuples, found.changed)
    assert [row[0] for row in old] == [row[0] for row in new]
    assert not {row[0] for row in tuples(found.only_before)} & {row[0] for row in tuples(found.only_after)}
    assert Counter(tuples(found.only_before) + old) == Counter(before) - Counter(after)
    assert Counter(tuples(found.only_after) + new) == Counter(after) - Counter(before)


def test_equal_rows_are_dropped_while_they_come(monkeypatch: Any) -> None:
    monkeypatch.setattr(row_differences, "_GATHERED_ROWS", 8)
    comparison = RowComparison("sink", (SCHEMA, SCHEMA))
    for number in range(100):
        batch = pa.RecordBatch.from_pylist([{"key": number, "value": 0}] * 4, SCHEMA)
        comparison.add(BEFORE, batch)
        comparison.add(AFTER, batch)
        assert sum(rows.num_rows for side in comparison._sides for rows in side.batches) <= 16
    assert not comparison.result().differs


def test_columns_of_one_side_are_named_and_the_others_compared() -> None:
    wider = SCHEMA.append(pa.field("more", pa.string()))
    comparison = RowComparison("sink", (SCHEMA, wider))
    comparison.add(BEFORE, pa.RecordBatch.from_pylist([{"key": 1, "value": 2}], SCHEMA))
    comparison.add(AFTER, pa.RecordBatch.from_pylist([{"key": 1, "value": 2, "more": "x"}], wider))
    found = comparison.result()
    assert (found.equal, found.columns, found.differs) == (1, ("+more",), True)


def test_a_sink_of_one_side_has_rows_of_that_side_only() -> None:
    comparison = RowComparison("sink", (None, SCHEMA), ())
    comparison.add(AFTER, pa.RecordBatch.from_pylist([{"key": 1, "value": 2}], SCHEMA))
    found = comparison.result()
    assert (found.before, found.after, tuples(found.only_after)) == (0, 1, [(1, 2)])
