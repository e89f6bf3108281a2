"""The bytes of rows, compared with those of Arrow's buffers."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from clonos_py.columns.row_sizes import row_sizes

COLUMNS: dict[str, tuple[pa.Array[Any], list[int]]] = {
    "fixed": (pa.array([1, None], pa.int16()), [2, 2]),
    "bool": (pa.array([True, False]), [1, 1]),
    "text": (pa.array(["", "abc"]), [4, 7]),
    "large bytes": (pa.array([b"12", None], pa.large_binary()), [10, 8]),
    "decimal": (pa.array([None, None], pa.decimal128(10, 2)), [16, 16]),
    "list": (pa.array([[1, 2], []], pa.list_(pa.int64())), [20, 4]),
    "list of text": (pa.array([["a", "bc"], ["def"]]), [4 + 5 + 6, 4 + 7]),
    "map": (pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())), [4 + 5 + 8, 4]),
    "struct": (pa.array([{"n": 1, "t": "ab"}, {"n": 2, "t": ""}]), [8 + 6, 8 + 4]),
    "dictionary": (pa.array(["long text", "long text"]).dictionary_encode(), [4, 4]),
    "null": (pa.nulls(2), [0, 0]),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_row_has_the_bytes_of_its_values(name: str) -> None:
    column, expected = COLUMNS[name]
    rows = pa.record_batch({"a": column, "b": pa.array([1, 2], pa.int64())})
    assert row_sizes(rows).tolist() == [size + 8 for size in expected]


@pytest.mark.parametrize("name", COLUMNS)
def test_a_slice_has_the_bytes_of_its_own_rows(name: str) -> None:
    column, expected = COLUMNS[name]
    assert row_sizes(pa.record_batch({"a": column}).slice(1)).tolist() == expected[1:]
