"""Stored rows in the columns of today, and which types of columns can be taken over."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.conforming import conformed
from clonos_py.columns.keys import hash_array
from clonos_py.model.errors import CheckpointError
from clonos_py.model.snapshots import StoredChunk
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.model.state_definitions import OR_NULL, StateDefinition, differences, takes

TYPES: list[pa.DataType] = [
    pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint32(), pa.uint64(), pa.float32(), pa.float64(),
    pa.string(), pa.large_string(), pa.binary(), pa.bool_(), pa.timestamp("us", "UTC"), pa.decimal128(4, 2),
    pa.decimal128(18, 2), pa.decimal128(18, 3),
]  # fmt: skip
VALUES: dict[str, Callable[[int], object]] = {
    "string": str, "large_string": str, "binary": lambda value: str(value).encode(), "bool": bool, "float": float,
    "double": float, "decimal128(4, 2)": Decimal, "decimal128(18, 2)": Decimal, "decimal128(18, 3)": Decimal,
}  # fmt: skip


@given(st.sampled_from(TYPES), st.sampled_from(TYPES), st.lists(st.none() | st.integers(0, 99)))
def test_a_type_that_is_taken_over_has_the_same_values_and_hashes(
    old: pa.DataType, new: pa.DataType, values: list[int | None]
) -> None:
    if takes(str(old), str(new)):
        stored: Any = pa.array([None if value is None else VALUES.get(str(old), int)(value) for value in values], old)
        part = OperatorState({"rows": [Chunk(pa.record_batch({"k": stored}))]})
        (found,) = conformed([part], {"rows": pa.schema([pa.field("k", new)])})
        column: Any = found.tables["rows"][0].rows.column("k")
        assert column.type == new
        assert column.cast(old).equals(stored)
        assert hash_array(column).tolist() == hash_array(stored).tolist()


@pytest.mark.parametrize(
    ("old", "new", "taken"),
    [
        ("int32", "int64", True),
        ("int64", "int32", False),
        ("int64", "double", False),
        ("int64", "string", False),
        ("uint32", "int64", False),
        ("int64", f"int64{OR_NULL}", True),
        (f"int64{OR_NULL}", "int64", False),
        (f"int32{OR_NULL}", f"int64{OR_NULL}", True),
        ("decimal128(18, 2)", "decimal128(20, 2)", True),
        ("decimal128(20, 2)", "decimal128(18, 2)", False),
        ("list<item: int32>", "list<item: int32>", True),
        ("list<item: int32>", "list<item: int64>", False),
    ],
)
def test_types_that_are_taken_over(old: str, new: str, taken: bool) -> None:
    assert takes(old, new) is taken


def test_chunks_that_fit_stay_the_same_objects() -> None:
    rows = pa.record_batch({"k": pa.array(["a"]).dictionary_encode()})
    part = OperatorState({"rows": [Chunk(rows)], "others": [Chunk(rows)]})
    assert conformed([part], {"rows": rows.schema})[0] is part


def test_columns_are_left_out_added_and_put_in_order() -> None:
    part = OperatorState({"rows": [Chunk(pa.record_batch({"gone": [1], "k": pa.array([2], pa.int32())}))]}, {"a": 1})
    today = pa.schema([pa.field("more", pa.string())]).append(pa.field("k", pa.int64()))
    (found,) = conformed([part], {"rows": today})
    assert found.tables["rows"][0].rows.to_pylist() == [{"more": None, "k": 2}]
    assert found.values == {"a": 1}


def test_a_column_that_cannot_be_made_is_named() -> None:
    part = OperatorState({"rows": [Chunk(pa.record_batch({"k": ["a"]}))]})
    with pytest.raises(CheckpointError, match="table 'rows' has no column 'n'"):
        conformed([part], {"rows": pa.schema([pa.field("n", pa.int64(), nullable=False)])})
    with pytest.raises(CheckpointError, match="column 'k' of the stored table 'rows'"):
        conformed([part], {"rows": pa.schema([pa.field("k", pa.int64())])})


def test_columns_of_a_table_without_rows_may_change() -> None:
    old, new = (StateDefinition(tables={"left": {"k": kind}}) for kind in ("int64", "string"))
    assert list(differences(old, new, {"left": 0})) == []
    assert list(differences(old, new, {"left": 1})) == ["column k: int64, now string"]


def test_a_chunk_of_which_nothing_was_read_stays_beside_one_whose_types_change() -> None:
    groups = pa.array([3, 5], pa.int32())
    read = Chunk(pa.record_batch({"k": pa.array([1, 2], pa.int32()), GROUP_COLUMN: groups}))
    unread = StoredChunk("", 2, 0, 0, (7, 9)).unread()
    schema = pa.schema([pa.field("k", pa.int64(), nullable=False), pa.field(GROUP_COLUMN, pa.int32())])
    (found,) = conformed([OperatorState({"rows": [unread, read]})], {"rows": schema})
    assert found.tables["rows"][0] is unread
    assert found.tables["rows"][1].rows.schema == schema
