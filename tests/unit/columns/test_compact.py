"""Equal rows have equal bytes, whichever batch they were sliced from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns import compact as compacting
from clonos_py.columns.compact import compact, sampled_checksum

_ROWS = 40
_COLUMNS: dict[str, list[Any] | pa.Array[Any]] = {
    "int64": pa.array(range(_ROWS)),
    "int64 or null": pa.array([None if n % 3 == 0 else n for n in range(_ROWS)]),
    "int16": pa.array(range(_ROWS), pa.int16()),
    "float": pa.array([n / 3 for n in range(_ROWS)]),
    "bool": pa.array([n % 3 == 0 for n in range(_ROWS)]),
    "text": pa.array([f"text {n * 7919}" for n in range(_ROWS)]),
    "text or null": pa.array([None if n % 5 == 0 else str(n) for n in range(_ROWS)]),
    "large text": pa.array([f"{n * 7919}" for n in range(_ROWS)], pa.large_string()),
    "three bytes": pa.array([bytes([n] * 3) for n in range(_ROWS)], pa.binary(3)),
    "decimal": pa.array(list(range(_ROWS))).cast(pa.decimal128(20)),
    "list": pa.array([[n] * (n % 4) for n in range(_ROWS)]),
    "map": pa.array([[(str(n), n)] for n in range(_ROWS)], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"number": n, "text": str(n)} for n in range(_ROWS)]),
    "nulls": pa.nulls(_ROWS),
}


@pytest.fixture(params=[0, 32 << 10], ids=["looked at", "copied"])
def column_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compacting, "_COLUMN_BYTES", request.param)


@pytest.mark.usefixtures("column_bytes")
@pytest.mark.parametrize("name", _COLUMNS)
def test_a_slice_has_the_same_bytes_as_its_rows_alone(name: str) -> None:
    whole = pa.record_batch({"column": _COLUMNS[name]})
    for start in range(_ROWS):
        for stop in range(start, _ROWS + 1):
            part = whole.slice(start, stop - start)
            rows = pa.RecordBatch.from_pylist(part.to_pylist(), schema=whole.schema)
            assert compact(part).equals(rows)
            assert compact(part).serialize() == compact(rows).serialize(), (start, stop)
            assert sampled_checksum(part) == sampled_checksum(rows), (start, stop)


def test_large_columns_that_fill_their_buffers_are_not_copied() -> None:
    rows = pa.record_batch({"number": range(10_000), "text": ["some text"] * 10_000})
    assert compact(rows) is rows


@given(st.lists(st.text(max_size=3), min_size=1), st.data())
def test_a_slice_of_texts_has_the_same_bytes_as_its_texts_alone(texts: list[str], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(texts) - 1))
    part = pa.record_batch({"text": texts}).slice(start)
    assert compact(part).serialize() == compact(pa.record_batch({"text": texts[start:]})).serialize()


@pytest.mark.parametrize("name", _COLUMNS)
def test_a_sampled_checksum_is_another_one_for_other_rows(name: str) -> None:
    whole = pa.record_batch({"column": _COLUMNS[name]})
    parts = [whole.slice(start, rows) for rows in (1, 5) for start in range(_ROWS - rows + 1)]
    different = {str(part.to_pylist()): sampled_checksum(part) for part in parts}
    assert len(set(different.values())) == len(different)


def test_a_sampled_checksum_covers_an_eighth_of_the_pages_and_the_end() -> None:
    numbers = np.zeros(40_000, np.int64)
    found = set()
    for row in (None, 0, 511, 512, 4_095, 4_096, 39_999):
        values = numbers.copy()
        if row is not None:
            values[row] = 1
        found.add((row in (None, 512, 4_095), sampled_checksum(pa.record_batch({"n": values}))))
    assert sorted(covered for covered, _ in found) == [False, False, False, False, True]


def test_a_validity_mask_without_nulls_does_not_change_a_sampled_checksum() -> None:
    plain = pa.array([1, 2, 3])
    _, values = plain.buffers()
    masked = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\x07"), values])
    assert sampled_checksum(pa.record_batch({"n": masked})) == sampled_checksum(pa.record_batch({"n": plain}))


def test_nulls_and_the_ends_of_texts_change_a_sampled_checksum() -> None:
    plain = pa.array([1, 2, 3])
    _, values = plain.buffers()
    without_first = pa.Array.from_buffers(pa.int64(), 3, [pa.py_buffer(b"\x06"), values])
    columns: list[pa.Array[Any]] = [plain, without_first, pa.array(["ab", "c"]), pa.array(["a", "bc"])]
    assert len({sampled_checksum(pa.record_batch({"column": column})) for column in columns}) == len(columns)
