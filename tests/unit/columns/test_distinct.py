"""Distinct values per group, and lists of them united, equal sets."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.distinct import distinct_values, united, unrolled
from clonos_py.columns.grouping import group

ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2) | st.none()), max_size=20)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.float64(), pa.dictionary(pa.int8(), pa.int64())])
@given(ROWS, st.integers(0, 20))
def test_united_values_of_batches_are_those_of_all_rows(
    kind: pa.DataType, rows: list[tuple[int, int | None]], cut: int
) -> None:
    values: Any = [None if value is None else str(value) if pa.types.is_string(kind) else value for _, value in rows]
    lists: list[Any] = []
    keys: list[int] = []
    for low, high in ((0, cut), (cut, len(rows))):
        part = [key for key, _ in rows[low:high]]
        column: Any = pa.array(values[low:high]).cast(pa.string() if pa.types.is_string(kind) else pa.int64())
        column = column.dictionary_encode() if pa.types.is_dictionary(kind) else column.cast(kind)
        groups = group([pa.array(part, pa.int64())], len(part))
        lists.append(distinct_values(column, groups))
        keys += [part[first] for first in groups.first.tolist()]
    whole: Any = pa.concat_arrays(lists)
    groups = group([pa.array(keys, pa.int64())], len(keys))
    found = dict(zip([keys[first] for first in groups.first.tolist()], united(whole, groups).to_pylist(), strict=True))
    expected = {
        key: {v for (k, _), v in zip(rows, values, strict=True) if k == key and v is not None} for key, _ in rows
    }
    assert {key: set(some) for key, some in found.items()} == expected
    assert all(len(set(some)) == len(some) for some in found.values())


def test_lists_of_a_slice_unroll_to_their_own_values() -> None:
    lists: Any = pa.array([[1, 2], [], [3], [4, 5]]).slice(1, 3)
    values, rows = unrolled(lists)
    assert (values.to_pylist(), rows.tolist()) == ([3, 4, 5], [1, 2, 2])
