"""The digest: equal for equal rows in any order and encoding."""

import os
import subprocess
import sys
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.digest import MODULUS, digest

ROW = st.tuples(st.one_of(st.none(), st.integers(0, 9)), st.one_of(st.none(), st.text(max_size=5)), st.floats())
FIELDS: "list[pa.Field[Any]]" = [pa.field("a", pa.int64()), pa.field("s", pa.string()), pa.field("f", pa.float64())]
SCHEMA = pa.schema(FIELDS)
Row = tuple[int | None, str | None, float]


def batch_of(rows: list[Row]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@given(st.lists(ROW, max_size=20), st.integers(0, 20), st.randoms())
def test_order_and_batching_do_not_matter(rows: list[Row], cut: int, random: object) -> None:
    whole = digest(batch_of(rows))
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    batch = batch_of(shuffled)
    assert (digest(batch.slice(0, cut)) + digest(batch.slice(cut))) % MODULUS == whole


def test_dictionary_encoding_does_not_matter() -> None:
    text = pa.array(["a", None, "b", "a"])
    assert digest(pa.record_batch({"s": text})) == digest(pa.record_batch({"s": text.dictionary_encode()}))


def test_positive_and_negative_zero_have_the_same_digest() -> None:
    assert digest(pa.record_batch({"f": [0.0]})) == digest(pa.record_batch({"f": [-0.0]}))


def test_a_changed_doubled_or_swapped_value_changes_the_digest() -> None:
    base = digest(pa.record_batch({"a": [1, 2], "b": [2, 1]}))
    assert base != digest(pa.record_batch({"a": [1, 2], "b": [2, 2]}))
    assert base != digest(pa.record_batch({"a": [1, 2, 2], "b": [2, 1, 1]}))
    assert base != digest(pa.record_batch({"a": [2, 1], "b": [2, 1]}))
    assert base == digest(pa.record_batch({"a": [2, 1], "b": [1, 2]}))


def test_all_kinds_of_columns_have_a_digest() -> None:
    kinds: list[pa.DataType] = [
        pa.bool_(),
        pa.int8(),
        pa.uint64(),
        pa.float32(),
        pa.decimal128(38, 2),
        pa.timestamp("us", "UTC"),
    ]
    numbers: Any = pa.array([1, None, 0], pa.int64())
    batch = pa.record_batch({str(kind): numbers.cast(kind) for kind in kinds})
    assert 0 < digest(batch) < MODULUS
    assert 0 < digest(pa.record_batch({"b": [b"x", None], "l": [[1], None], "s": [{"x": 1}, None]})) < MODULUS


def test_every_process_computes_the_same_digest() -> None:
    program = (
        "import pyarrow as pa; from clonos_py.columns.digest import digest;"
        "print(digest(pa.record_batch({'a': range(100), 's': [str(i) for i in range(100)]})))"
    )
    here = digest(pa.record_batch({"a": range(100), "s": [str(i) for i in range(100)]}))
    environment = os.environ | {"PYTHONHASHSEED": "12", "POLARS_MAX_THREADS": "1"}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True, env=environment)
    assert int(found.stdout) == here
