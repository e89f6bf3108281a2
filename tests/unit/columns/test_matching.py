"""The equi-join of two batches: SQL's pairs in a fixed order."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.matching import match

KEY = st.one_of(st.none(), st.integers(-3, 3))
KEYS = st.lists(KEY, max_size=25)
TYPES: list[pa.DataType] = [pa.int8(), pa.int64(), pa.float64(), pa.decimal128(18, 2), pa.timestamp("us"), pa.string()]


def column(values: list[int | None], kind: pa.DataType) -> pa.Array:  # type: ignore[type-arg]
    if kind == pa.string():
        return pa.array([None if v is None else str(v) for v in values], kind)
    return pa.array(values, kind)


def pairs(
    left: pa.RecordBatch, left_keys: list[str], right: pa.RecordBatch, right_keys: list[str]
) -> list[tuple[int, int]]:
    a, b = match(left, left_keys, right, right_keys)
    return list(zip(a.tolist(), b.tolist(), strict=True))


@pytest.mark.parametrize("kind", TYPES, ids=str)
@given(left=KEYS, right=KEYS)
def test_one_key_of_any_type_is_matched(kind: pa.DataType, left: list[int | None], right: list[int | None]) -> None:
    expected = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if a is not None and a == b]
    batches = [pa.record_batch({"k": column(values, kind)}) for values in (left, right)]
    assert pairs(batches[0], ["k"], batches[1], ["k"]) == expected


@given(st.lists(st.tuples(KEY, KEY), max_size=20), st.lists(st.tuples(KEY, KEY), max_size=20))
def test_several_keys_are_matched(
    left: list[tuple[int | None, int | None]], right: list[tuple[int | None, int | None]]
) -> None:
    def batch(rows: list[tuple[int | None, int | None]]) -> pa.RecordBatch:
        text = column([b for _, b in rows], pa.string())
        return pa.record_batch({"a": column([a for a, _ in rows], pa.int64()), "b": text})

    expected = [(i, j) for i, a in enumerate(left) for j, b in enumerate(right) if None not in a and a == b]
    assert pairs(batch(left), ["b", "a"], batch(right), ["b", "a"]) == expected


def test_integers_of_other_widths_and_encodings_match() -> None:
    wide = pa.record_batch({"k": pa.array([1, 2**40, -1])})
    for kind in (pa.int32(), pa.int8()):
        assert pairs(wide, ["k"], pa.record_batch({"x": pa.array([-1, 1], kind)}), ["x"]) == [(0, 1), (2, 0)]
    unsigned = pa.record_batch({"x": pa.array([2**64 - 1, 1], pa.uint64())})
    assert pairs(wide, ["k"], unsigned, ["x"]) == [(0, 1)]
    text = pa.record_batch({"s": pa.array(["a", "b", "a"])})
    encoded = pa.record_batch({"s": pa.array(["b", "a"]).dictionary_encode()})
    assert pairs(text, ["s"], encoded, ["s"]) == [(0, 1), (1, 0), (2, 1)]


def test_zeros_and_nans_are_one_value_each() -> None:
    left = pa.record_batch({"k": [0.0, float("nan")]})
    assert pairs(left, ["k"], pa.record_batch({"k": [float("nan"), -0.0]}), ["k"]) == [(0, 1), (1, 0)]
