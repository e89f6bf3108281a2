"""Records are schemas; rows survive columns; values that do not fit are named."""

from __future__ import annotations

import datetime
import decimal
import re
from decimal import Decimal
from typing import Annotated, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.errors import GraphError
from clonos_py.model.record import DeadLetter, Instant, Money, Record, at, record_type, schema_of
from clonos_py.model.record_codec import SLICE_ROWS, FieldError, decode, encode
from clonos_py.model.time_formats import Epoch


class Bid(Record):
    auction: int
    price: Money
    at: Instant
    note: str | None = None


class Priced(Record):
    price: Money
    usd: Money
    auction: int


class Everything(Record):
    whole: int | None
    real: float
    text: str
    flag: bool | None
    raw: bytes
    amount: Money | None
    items: list[int]
    inner: Priced | None
    inners: list[Priced] | None
    narrow: Annotated[int, pa.int32()]


class Odd(Record):
    when: datetime.time


def back(rows: list[Any], record: type[Record]) -> list[Record]:
    return [row for part in decode(encode(rows, record.schema()), record) for row in part]


def test_annotations_define_the_schema() -> None:
    assert list(Bid.schema()) == [
        pa.field("auction", pa.int64(), nullable=False),
        pa.field("price", pa.decimal128(18, 2), nullable=False),
        pa.field("at", pa.int64(), nullable=False),
        pa.field("note", pa.string()),
    ]
    assert Everything.schema().field("inner").type == pa.struct(list(Priced.schema()))
    assert Everything.schema().field("narrow").type == pa.int32()


def test_a_type_without_a_column_is_an_error_naming_the_field() -> None:
    with pytest.raises(GraphError, match=r"Odd.when: time has no column type"):
        Odd.schema()


def test_a_record_is_frozen_and_comparable() -> None:
    bid = Bid(1, Decimal(2), at("3s"))
    assert bid == Bid(1, Decimal("2.00"), 3_000_000)
    with pytest.raises(AttributeError):
        bid.auction = 5  # type: ignore[misc, unused-ignore]


def test_extend_takes_shared_fields_and_the_named_ones() -> None:
    bid = Bid(1, Decimal(2), 3)
    assert Priced.extend(bid, usd=Decimal(4)) == Priced(Decimal(2), Decimal(4), 1)
    with pytest.raises(TypeError, match="usd"):
        Priced.extend(bid)
    with pytest.raises(TypeError, match="euro"):
        Priced.extend(bid, usd=Decimal(4), euro=1)


def test_a_record_reads_only_the_columns_it_names() -> None:
    class Short(Record):
        note: str | None
        auction: int

    rows = encode([Bid(1, Decimal(2), 3, "x"), Bid(4, Decimal(5), 6)], Bid.schema())
    assert list(decode(rows, Short)) == [[Short("x", 1), Short(None, 4)]]


def test_an_absent_column_is_named() -> None:
    with pytest.raises(GraphError, match=r"Priced.usd: no such column among auction, price"):
        list(decode(encode([Bid(1, Decimal(2), 3)], Bid.schema()), Priced))


def test_rows_are_decoded_in_slices() -> None:
    rows = encode([{"auction": i, "price": 1, "at": i, "note": None} for i in range(SLICE_ROWS + 1)], Bid.schema())
    assert [len(part) for part in decode(rows, Bid)] == [SLICE_ROWS, 1]


def test_dictionary_columns_and_slices_of_batches_are_decoded() -> None:
    text = pa.array(["a", "b", "a"]).dictionary_encode()
    row = record_type(pa.schema([pa.field("text", pa.string())]))
    batch = pa.RecordBatch.from_arrays([text], names=["text"]).slice(1)
    assert [tuple(getattr(r, "text") for r in part) for part in decode(batch, row)] == [("b", "a")]  # noqa: B009


def test_a_schema_becomes_a_record_with_exactly_its_types() -> None:
    fields: list[pa.Field[Any]] = [pa.field("a", pa.int32(), nullable=False), pa.field("b", pa.decimal128(38, 4))]
    schema = pa.schema(fields)
    row: Any = record_type(schema)
    assert row.schema() == schema
    assert record_type(schema) is row
    assert back([row(a=1, b=Decimal("2.5")), {"a": 2, "b": None}], row) == [
        row(a=1, b=Decimal("2.5")),
        row(a=2, b=None),
    ]


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"auction": 1.5}, "auction"),
        ({"auction": True}, "auction"),
        ({"auction": None}, "auction"),
        ({"auction": 2**80}, "auction"),
        ({"price": 1.5}, "price"),
        ({"price": Decimal("NaN")}, "price"),
        ({"price": Decimal(10) ** 17}, "price"),
        ({"note": b"bytes"}, "note"),
        ({"note": "\ud800"}, "note"),
    ],
)
def test_a_value_of_another_type_is_an_error_naming_row_and_field(wrong: dict[str, Any], field: str) -> None:
    good = {"auction": 1, "price": Decimal(1), "at": 0, "note": None}
    with pytest.raises(FieldError, match=f"field '{field}'") as raised:
        encode([good, good, good | wrong], Bid.schema())
    assert raised.value.row == 2


@pytest.mark.parametrize(
    ("type_", "named"),
    [
        (pa.float64(), "'1.5' (str) where a float is declared"),
        (pa.int32(), "'1.5' (str) where an int of int32 is declared"),
        (pa.decimal128(18, 2), "'1.5' (str) where a Decimal of decimal128(18, 2) is declared"),
        (pa.duration("us"), "'1.5' (str) where a timedelta is declared"),
        (pa.list_(pa.int64()), "'1.5' (str) where list<item: int64> is declared"),
    ],
)
def test_the_arrow_type_is_named_where_it_is_more_precise(type_: pa.DataType, named: str) -> None:
    with pytest.raises(FieldError) as raised:
        encode([{"a": "1.5"}], pa.schema([pa.field("a", type_)]))
    assert named in str(raised.value)


def test_a_row_that_is_no_row_or_lacks_a_field_is_an_error() -> None:
    with pytest.raises(FieldError, match="5 is neither a Record nor a dict"):
        encode([Bid(1, Decimal(1), 1), 5], Bid.schema())
    with pytest.raises(FieldError, match="Priced has no field 'at'"):
        encode([Priced(Decimal(1), Decimal(1), 1)], Bid.schema())


def test_exact_values_are_converted_and_money_is_rounded_half_to_even() -> None:
    class Loose(Record):
        count: int
        rate: float
        amount: Money

    assert back([{"count": np.int32(3), "rate": Decimal("0.5"), "amount": Decimal("1.225")}], Loose) == [
        Loose(3, 0.5, Decimal("1.22"))
    ]
    assert back([Loose(3, 2, Decimal("1.235"))], Loose) == [Loose(3, 2.0, Decimal("1.24"))]


def test_values_of_numpy_become_those_of_python() -> None:
    class Every(Record):
        count: int
        rate: float
        kept: bool
        name: str
        raw: bytes
        amount: Money
        seen: Instant
        later: Instant | None
        at: datetime.datetime
        took: datetime.timedelta
        rates: list[float]
        counts: list[int]

    given: Any = Every(
        np.int64(3), np.float32(0.5), np.bool_(True), np.str_("n"), np.bytes_(b"r"), np.int16(2),  # type: ignore[arg-type]
        np.datetime64("1970-01-01T00:00:01"), np.datetime64("NaT"),  # type: ignore[arg-type]
        np.datetime64("1970-01-01T00:00:02"), np.timedelta64(3, "s"), np.array([0.5, 1]), [np.uint8(1), 2],  # type: ignore[arg-type, list-item]
    )  # fmt: skip
    at = datetime.datetime(1970, 1, 1, 0, 0, 2, tzinfo=datetime.UTC)
    took = datetime.timedelta(seconds=3)
    plain = Every(3, 0.5, True, "n", b"r", Decimal(2), 1_000_000, None, at, took, [0.5, 1.0], [1, 2])
    assert back([given], Every) == [plain]


def test_a_missing_time_of_pandas_is_null() -> None:
    class Order(Record):
        at: datetime.datetime | None
        placed: Instant | None

    class Paid(Record):
        at: datetime.datetime

    given: Any = pd.NaT
    assert back([Order(given, given)], Order) == [Order(None, None)]
    with pytest.raises(FieldError, match="field 'at' is None but not declared"):
        encode([Paid(given)], Paid.schema())


def test_values_of_numpy_that_do_not_fit_are_named() -> None:
    class Counted(Record):
        count: int

    for wrong in (np.float64(1.5), np.datetime64("NaT"), np.datetime64("1970-01-01T00:00:00.000000001"), np.str_("1")):
        with pytest.raises(FieldError, match="field 'count' is"):
            encode([Counted(wrong)], Counted.schema())  # type: ignore[arg-type]


def test_rounding_does_not_depend_on_the_decimal_context() -> None:
    row: Any = record_type(pa.schema([pa.field("a", pa.decimal128(38, 2), nullable=False)]))
    with decimal.localcontext(prec=3):
        assert back([row(a=Decimal("123456789012345678901234567890.125"))], row) == [
            row(a=Decimal("123456789012345678901234567890.12"))
        ]


def test_a_dead_letter_is_a_record() -> None:
    letter = DeadLetter("enrich", "ValueError: no", "{}", 0, 17, 3, "enriching.py:4 in enrich")
    assert back([letter], DeadLetter) == [letter]


int64 = st.integers(-(2**63), 2**63 - 1)
money = st.decimals(-(10**15), 10**15, places=2)
priced = st.builds(Priced, money, money, int64)
text = st.text(st.characters(exclude_categories=["Cs"]))
everything = st.builds(
    Everything,
    st.none() | int64,
    st.floats(allow_nan=False),
    text,
    st.none() | st.booleans(),
    st.binary(),
    st.none() | money,
    st.lists(int64),
    st.none() | priced,
    st.none() | st.lists(priced),
    st.integers(-(2**31), 2**31 - 1),
)


@given(st.lists(everything, max_size=5))
def test_rows_survive_columns(rows: list[Everything]) -> None:
    assert back(rows, Everything) == rows


@pytest.mark.parametrize("wrong", [int, 3, "Row", {"a": int}])
def test_a_value_that_declares_no_rows_is_refused(wrong: Any) -> None:
    with pytest.raises(GraphError, match="declares no rows: give a Record class or a pyarrow schema"):
        schema_of(wrong)


class Stamped(Record):
    at: Annotated[datetime.datetime, Epoch("ms")]


class Holding(Record):
    inner: Stamped | None


class Listing(Record):
    seen: list[Annotated[datetime.datetime, Epoch("s")]]


@pytest.mark.parametrize(("record", "unit", "inner"), [(Holding, "ms", "at"), (Listing, "s", "item")])
def test_an_epoch_format_within_a_column_is_refused(record: type[Record], unit: str, inner: str) -> None:
    said = rf"{record.__name__}\.\w+: Epoch\('{unit}'\) is for columns, not for '{inner}' within one: declare an int"
    with pytest.raises(GraphError, match=said):
        record.schema()


class Cents(Record):
    cents: int


class Dollars(Record):
    dollars: int


class Nested(Record):
    one: Cents
    counts: list[int]
    texts: list[str]
    days: list[datetime.date]
    many: list[Cents | None] | None
    grid: list[list[int]]
    named: Annotated[Any, pa.map_(pa.string(), pa.int64())]
    pair: Annotated[Any, pa.list_(pa.int64(), 2)] | None


NESTED = {
    "one": Cents(1), "counts": [1, 2], "texts": ["a"], "days": [datetime.date(2020, 1, 1)], "many": [Cents(1), None],
    "grid": [[1], []], "named": {"a": 1}, "pair": [1, 2],
}  # fmt: skip


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"one": Cents(12.99)}, "'one.cents' is 12.99 (float) where an int"),  # type: ignore[arg-type]
        ({"one": Dollars(5)}, "'one.cents' is absent: Dollars has no field 'cents'"),
        ({"one": {}}, "'one.cents' is absent: dict has no field 'cents'"),
        ({"one": 5}, "'one' is 5 (int) where struct<cents: int64 not null>"),
        ({"counts": [1, 1.5]}, "'counts[1]' is 1.5 (float)"),
        ({"counts": [1, None]}, "'counts[1]' is None but not declared"),
        ({"counts": [True]}, "'counts[0]' is True (bool)"),
        ({"texts": [b"x"]}, "'texts[0]' is b'x' (bytes) where a str"),
        ({"texts": "abc"}, "'texts' is 'abc' (str) where list"),
        ({"days": [datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)]}, "'days[0]' is datetime.datetime(2020"),
        ({"many": [None, Cents(1), {"cents": None}]}, "'many[2].cents' is None but not declared"),
        ({"grid": [[], [1, 2], [3, "x"]]}, "'grid[2][1]' is 'x' (str)"),
        ({"named": {"a": 1, "b": "x"}}, "'named[1]' is 'x' (str)"),
        ({"pair": [1]}, "'pair' is [1] (list) where fixed_size_list"),
    ],
)
def test_a_nested_value_is_checked_and_named_by_its_path(wrong: dict[str, Any], named: str) -> None:
    with pytest.raises(FieldError, match=re.escape(named)) as caught:
        encode([NESTED, {**NESTED, "many": None, "pair": None}, NESTED | wrong], Nested.schema())

    assert caught.value.row == 2


def test_a_nested_value_is_converted_like_a_field() -> None:
    class Within(Record):
        prices: list[Money]
        rates: list[float]

    row: dict[str, Any] = {"prices": [Decimal("1.234"), 5], "rates": [Decimal("0.5"), 2, np.float32(0.5)]}
    rows = encode([row], Within.schema())

    assert rows.to_pylist() == [{"prices": [Decimal("1.23"), Decimal("5.00")], "rates": [0.5, 2.0, 0.5]}]


def test_objects_lists_and_maps_may_be_none_where_that_is_declared() -> None:
    rows = encode([{**NESTED, "many": None, "pair": None}, NESTED], Nested.schema())

    rows.validate(full=True)
    assert rows.column("many").to_pylist() == [None, [{"cents": 1}, None]]
    assert rows.column("pair").to_pylist() == [None, [1, 2]]
    assert rows.column("named").to_pylist() == [[("a", 1)], [("a", 1)]]


class Chained(Record):
    child: Chained | None


def test_a_record_that_holds_itself_is_refused() -> None:
    with pytest.raises(GraphError, match="Chained contains itself"):
        Chained.schema()
