"""The stable hash: equal values have equal hashes in any representation."""

import datetime
import decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.keys import hash_array, hash_rows, key_groups, mix, unmix
from clonos_py.model.errors import GraphError

GOLDEN_A = [16294208416658607535, 10451216379200822465, 16490336266968443936, 7959387129412676716]
GOLDEN_S = [16294208416658607535, 6170589276321399929, 14242781337227194410, 7959387129412676716]
GOLDEN_AS = [5803700096635968262, 3206800215162923809, 13938843511787187296, 2786197057791827639]
INT64 = st.integers(-(2**63), 2**63 - 1)


def hashes(values: list[object], kind: pa.DataType) -> list[int]:
    return [int(h) for h in hash_array(pa.array(values, kind))]


def test_version_1_never_changes() -> None:
    batch = pa.record_batch({"a": [0, 1, -1, None], "s": ["", "auction", "a longer text of many words", None]})
    assert [int(h) for h in hash_rows(batch, ["a"])] == GOLDEN_A
    assert [int(h) for h in hash_rows(batch, ["s"])] == GOLDEN_S
    assert [int(h) for h in hash_rows(batch, ["a", "s"])] == GOLDEN_AS


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()])
def test_integers_of_any_width_have_the_same_hash(kind: pa.DataType) -> None:
    assert hashes([0, 1, 100, None], kind) == hashes([0, 1, 100, None], pa.int64())


def test_negative_integers_of_any_width_have_the_same_hash() -> None:
    assert hashes([-1, -100], pa.int8()) == hashes([-1, -100], pa.int64())


def test_times_booleans_and_decimals_hash_as_their_stored_integers() -> None:
    moment = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    us = int(moment.timestamp() * 1_000_000)
    assert hashes([moment], pa.timestamp("us", "UTC")) == hashes([us], pa.int64())
    assert hashes([True, False], pa.bool_()) == hashes([1, 0], pa.int64())
    assert hashes([decimal.Decimal("1.50")], pa.decimal128(18, 2)) == hashes([150], pa.int64())


@given(st.integers(-(10**37), 10**37))
def test_decimals_of_any_width_have_the_same_hash(value: int) -> None:
    unscaled = decimal.Decimal(value)
    assert hashes([unscaled], pa.decimal128(38)) == hashes([unscaled], pa.decimal256(76))


def test_wide_decimals_differ_from_their_low_words() -> None:
    assert len(set(hashes([decimal.Decimal(5 + (i << 64)) for i in range(100)], pa.decimal128(38)))) == 100


def test_zeros_and_nans_are_one_value_each() -> None:
    assert len(set(hashes([0.0, -0.0], pa.float64()))) == 1
    payload = np.array([0x7FF8000000000001, 0xFFF8000000000000], np.uint64).view(np.float64)
    assert set(hash_array(pa.array(payload)).tolist()) == set(hashes([float("nan")], pa.float32()))
    assert hashes([1.5], pa.float32()) == hashes([1.5], pa.float64())


def test_null_has_a_hash_of_its_own() -> None:
    for kind, zero in ((pa.int64(), 0), (pa.string(), ""), (pa.float64(), 0.0), (pa.bool_(), False)):
        null, other = hashes([None, zero], kind)
        assert null != other
        assert [null] == hashes([None], pa.null())


@given(st.lists(st.one_of(st.none(), st.text(max_size=30)), max_size=30), st.integers(0, 5))
def test_text_has_the_same_hash_in_any_storage(values: list[str | None], skip: int) -> None:
    expected = hash_array(pa.array(values, pa.string()))[skip:]
    array: Any = pa.array(values, pa.string())
    stored: list[pa.DataType] = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary(), pa.string_view()]
    for copy in [array.cast(kind) for kind in stored] + [array.dictionary_encode()]:
        assert (hash_array(copy.slice(skip)) == expected).all()


@given(st.lists(st.binary(max_size=40), unique=True, max_size=60))
def test_different_bytes_hash_differently(values: list[bytes]) -> None:
    assert len(set(hashes(list(values), pa.binary()))) == len(values)


@given(st.lists(INT64, min_size=1, max_size=40), st.integers(0, 40))
def test_a_row_has_the_same_hash_in_any_slice(values: list[int], start: int) -> None:
    batch = pa.record_batch({"a": values, "b": [str(v) for v in values]})
    assert (hash_rows(batch.slice(start), ["b", "a"]) == hash_rows(batch, ["b", "a"])[start:]).all()


def test_the_order_of_columns_matters() -> None:
    batch = pa.record_batch({"a": [1], "b": [2]})
    assert hash_rows(batch, ["a", "b"])[0] != hash_rows(batch, ["b", "a"])[0]


def test_lists_and_structs_are_hashed_over_their_elements() -> None:
    lists = pa.array([[1, 2], [2, 1], [], None, [1, 2], [None]], pa.list_(pa.int64()))
    found = hash_array(lists).tolist()
    assert found[0] == found[4]
    assert len(set(found)) == 5
    assert found[2:] == hash_array(lists.slice(2)).tolist()
    structs = pa.array([{"a": 1, "b": "x"}, {"a": 1, "b": "y"}, None, {"a": 1, "b": "x"}])
    found = hash_array(structs).tolist()
    assert found[0] == found[3]
    assert len(set(found)) == 3


def test_a_type_without_a_hash_is_refused_by_name() -> None:
    with pytest.raises(GraphError, match="map<string, int64>"):
        hash_array(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())))


def test_key_groups_are_even_and_in_range() -> None:
    groups = key_groups(pa.record_batch({"a": range(128_000)}), ["a"], 128)
    assert groups.dtype == np.int32
    counts = np.bincount(groups, minlength=128)
    assert len(counts) == 128
    assert counts.min() > 800
    assert counts.max() < 1_200


def test_empty_batches_and_rows_without_keys_can_be_hashed() -> None:
    batch = pa.record_batch({"a": pa.array([], pa.int64()), "s": pa.array([], pa.string())})
    assert len(hash_rows(batch, ["a", "s"])) == 0
    assert key_groups(pa.record_batch({"a": [1, 2]}), [], 128).tolist() == [0, 0]


@given(st.lists(st.integers(0, 2**64 - 1), max_size=20))
def test_mixing_can_be_reversed(words: list[int]) -> None:
    hashes = np.array(words, np.uint64)
    assert unmix(mix(hashes.copy())).tolist() == words
    assert mix(unmix(hashes)).tolist() == words
