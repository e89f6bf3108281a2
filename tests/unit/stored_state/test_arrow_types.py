"""Types as text: what Arrow writes can be read."""

from __future__ import annotations

import pyarrow as pa
import pytest

from clonos_py.stored_state.arrow_types import arrow_type

TYPES = [
    pa.int8(), pa.int64(), pa.uint32(), pa.float32(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(),
    pa.binary(), pa.binary(16), pa.date32(), pa.time64("us"), pa.duration("us"), pa.timestamp("us"),
    pa.timestamp("ms", "UTC"), pa.timestamp("ns", "Europe/Berlin"), pa.decimal128(18, 2), pa.decimal128(38, -3),
    pa.list_(pa.int64()), pa.large_list(pa.string()), pa.list_(pa.field("item", pa.string(), nullable=False)),
    pa.list_(pa.list_(pa.decimal128(18, 2))), pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]),
    pa.list_(pa.struct([("when", pa.timestamp("us", "UTC")), ("of", pa.struct([("n", pa.decimal128(5, 1))]))])),
]  # fmt: skip


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_a_type_is_read_from_its_text(kind: pa.DataType) -> None:
    found = arrow_type(str(kind))
    assert found is not None
    assert str(found).replace(" not null", "") == str(kind).replace(" not null", "")


@pytest.mark.parametrize("text", ["", "int", "list<>", "struct<a int64>", "decimal128(38)", "map<string, int64>"])
def test_other_texts_have_no_type(text: str) -> None:
    assert arrow_type(text) is None
