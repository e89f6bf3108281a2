"""Row functions get records, return records, and are named when they fail."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from clonos_py.model.errors import DivergenceError, UserCodeError
from clonos_py.model.record import DeadLetter, Money, Record
from clonos_py.model.record_codec import SLICE_ROWS, encode
from clonos_py.operators.rows import MapRows
from clonos_py.services.context import Context
from tests.unit.operators.scripted import opened, schema


class Bid(Record):
    auction: int
    price: Money
    note: str | None = None


class Short(Record):
    price: Money


class Doubled(Record):
    price: Money
    auction: int = 0


def bids(*prices: int) -> pa.RecordBatch:
    return encode([Bid(i, Decimal(price)) for i, price in enumerate(prices)], Bid.schema())


def double(bid: Bid) -> Doubled:
    if bid.price < 0:
        raise ValueError("negative")
    return Doubled.extend(bid, price=bid.price * 2)


def test_map_gives_one_row_for_each() -> None:
    operator = MapRows(double, Bid, Doubled.schema(), "map")
    _, out = opened(operator)
    operator.on_rows(bids(1, 2), 0)
    assert out.rows() == [{"price": Decimal(2), "auction": 0}, {"price": Decimal(4), "auction": 1}]


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        ([Doubled(Decimal(1))], r"a list where one row is declared: use flat_map with `-> Iterator\[Doubled\]`"),
        ((), r"a tuple where one row is declared: use flat_map with `-> Iterator\[Row\]`"),
        ((n for n in range(2)), r"a generator where one row is declared: use flat_map with `-> Iterator\[Row\]`"),
    ],
)
def test_several_rows_from_map_are_an_error_with_the_remedy(result: Any, shown: str) -> None:
    operator = MapRows(lambda _: result, Bid, Doubled.schema(), "map")
    opened(operator)
    with pytest.raises(UserCodeError, match=f"it returns {shown}"):
        operator.on_rows(bids(1), 0)


def test_a_function_gets_only_the_columns_of_its_record() -> None:
    seen: list[Record] = []

    def look(row: Short) -> Doubled:
        seen.append(row)
        return Doubled(row.price)

    operator = MapRows(look, Short, Doubled.schema(), "map")
    opened(operator)
    operator.on_rows(bids(3), 0)
    assert seen == [Short(Decimal(3))]


def test_without_a_record_class_rows_have_all_columns_and_results_may_be_dicts() -> None:
    operator = MapRows(lambda row: {"sum": row.price + row.auction}, None, schema(("sum", pa.decimal128(20, 2))), "map")
    _, out = opened(operator)
    operator.on_rows(bids(3, 4), 0)
    assert out.rows() == [{"sum": Decimal(3)}, {"sum": Decimal(5)}]


def test_flat_map_accepts_iterators_lists_and_none() -> None:
    def several(bid: Bid) -> Iterator[Short] | list[Short] | None:
        if bid.auction == 0:
            return None
        if bid.auction == 1:
            return [Short(bid.price)] * 2
        return iter([Short(bid.price), Short(-bid.price)])

    operator = MapRows(several, Bid, Short.schema(), "flat_map")
    _, out = opened(operator)
    operator.on_rows(bids(5, 6, 7), 0)
    assert [row["price"] for row in out.rows()] == [6, 6, 7, -7]


def test_filter_keeps_rows_with_all_their_columns() -> None:
    operator = MapRows(lambda row: row.price > 1, Short, Bid.schema(), "filter")
    _, out = opened(operator)
    operator.on_rows(bids(1, 2, 3), 0)
    assert [(row["auction"], row["note"]) for row in out.rows()] == [(1, None), (2, None)]
    assert out.batches[0][1].schema == Bid.schema()


def test_a_function_with_ctx_gets_it_for_each_row() -> None:
    def stamp(row: Short, ctx: Context) -> dict[str, Any]:
        return {"now": ctx.time.now(), "draw": ctx.random.random()}

    operator = MapRows(stamp, Short, schema(("now", pa.int64()), ("draw", pa.float64())), "map", wants_ctx=True)
    ctx, out = opened(operator)
    operator.on_rows(bids(1, 2), 0)
    assert [row["now"] for row in out.rows()] == [1_000, 1_000]
    assert len({row["draw"] for row in out.rows()}) == 2
    assert len(ctx.gate.log) == 2


def test_a_raising_function_names_operator_record_and_place() -> None:
    operator = MapRows(double, Bid, Doubled.schema(), "map")
    _, out = opened(operator)
    expected = r'operator \'probe\' failed on record {"auction":1,"price":"-2.00","note":null}: ValueError: negative; '
    with pytest.raises(UserCodeError, match=expected + r"\.catch\(\) would skip it; at test_rows\.py:\d+ in double$"):
        operator.on_rows(bids(1, -2), 0)
    assert out.rows() == []


def test_a_result_that_does_not_fit_names_operator_record_and_field() -> None:
    operator = MapRows(lambda row: {"price": "much", "auction": 1}, Short, Doubled.schema(), "map")
    opened(operator)
    with pytest.raises(UserCodeError, match=r"operator 'probe' failed on record .* field 'price' is 'much'"):
        operator.on_rows(bids(1), 0)


def test_caught_failures_are_counted_dead_letters_and_other_rows_continue() -> None:
    operator = MapRows(double, Bid, Doubled.schema(), "map", on_error="catch")
    ctx, out = opened(operator)
    ctx.frame = (2, 9)
    operator.on_rows(bids(1, -2, 3, -4), 0)
    assert [row["auction"] for row in out.rows(0)] == [0, 2]
    assert out.rows(1)[0] == {
        "operator": "probe",
        "error": "ValueError: negative",
        "record": '{"auction":1,"price":"-2.00","note":null}',
        "channel": 2,
        "sequence": 9,
        "row": 1,
        "place": f"test_rows.py:{double.__code__.co_firstlineno + 2} in double",
    }
    assert [row["row"] for row in out.rows(1)] == [1, 3]
    assert out.batches[1][1].schema == DeadLetter.schema()
    assert ctx.counted == {"dead_letters": 2}


def test_a_row_that_fails_midway_leaves_no_results() -> None:
    def halfway(bid: Bid) -> Iterator[Any]:
        yield Short(bid.price)
        if bid.price < 0:
            raise ValueError("negative")
        yield {"price": "much"} if bid.price > 9 else Short(bid.price + 1)

    operator = MapRows(halfway, Bid, Short.schema(), "flat_map", on_error="catch")
    _, out = opened(operator)
    operator.on_rows(bids(1, 10, -3, 4), 0)
    assert [row["price"] for row in out.rows(0)] == [1, 2, 4, 5]
    assert [(row["row"], row["error"][:15]) for row in out.rows(1)] == [(1, "field 'price' i"), (2, "ValueError: neg")]


def test_errors_of_the_engine_are_not_caught_as_failures_of_rows() -> None:
    def diverging(row: Short) -> Short:
        raise DivergenceError("replay differs")

    operator = MapRows(diverging, Short, Short.schema(), "map", on_error="catch")
    opened(operator)
    with pytest.raises(DivergenceError):
        operator.on_rows(bids(1), 0)


def test_large_batches_are_processed_in_slices_with_right_row_numbers() -> None:
    def last_fails(row: Any) -> dict[str, int]:
        return {"x": 1 // (SLICE_ROWS - row.n)}

    operator = MapRows(last_fails, None, schema(("x", pa.int64())), "map", on_error="catch")
    _, out = opened(operator)
    operator.on_rows(pa.RecordBatch.from_pydict({"n": list(range(SLICE_ROWS + 2))}), 0)
    assert [row["row"] for row in out.rows(1)] == [SLICE_ROWS]
    assert [batch.num_rows for port, batch in out.batches if port == 0] == [SLICE_ROWS, 1]
