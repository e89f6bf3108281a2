"""Process functions of two inputs: one state and one set of timers for the rows of both."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.model.errors import GraphError, UserCodeError
from clonos_py.model.processes import ProcessInput
from clonos_py.model.record import DeadLetter, Instant, Record
from clonos_py.model.record_codec import SLICE_ROWS, encode
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.process import CoProcess, ProcessOperator, event_timer, list_state, state
from clonos_py.services.context import Context
from tests.unit.operators.scripted import Collected, ScriptedContext, advance, opened, read_by, stored


class Order(Record):
    id: int
    amount: int
    at: Instant


class Payment(Record):
    order: int
    paid: int
    when: Instant


class Told(Record):
    id: int
    text: str


class Matching(CoProcess[Order, Payment, Told]):
    """Reports all events of an order."""

    story: list[str] = list_state()
    amount: int | None = state(None)
    over = event_timer()

    def on_left(self, order: Order, ctx: Context) -> Told:
        self.amount = order.amount
        self.over.set(ctx.event_time + 10)
        return self.note(ctx, f"ordered {order.amount}")

    def on_right(self, payment: Payment, ctx: Context) -> Told:
        if payment.paid < 0:
            self.amount = -1
            raise ValueError("less than nothing")
        if payment.paid == self.amount:
            self.over.clear()
        return self.note(ctx, f"paid {payment.paid}")

    @over.fires
    def late(self, ctx: Context) -> Told:
        return self.note(ctx, f"late at {ctx.event_time}")

    def note(self, ctx: Context, what: str) -> Told:
        self.story.append(what)
        return Told(ctx.key, "; ".join(self.story))


INPUTS = (
    ProcessInput(pa.schema([("id", pa.int64())]), Order, "at"),
    ProcessInput(pa.schema([("order", pa.int64())]), Payment, "when"),
)
Rows = Sequence[tuple[int, int, int]]


def matching(in_order: bool = False, catch: bool = False) -> ProcessOperator:
    return ProcessOperator(Matching, INPUTS, (Told,), in_order, catch)


def orders(*rows: tuple[int, int, int]) -> pa.RecordBatch:
    return encode([Order(*row) for row in rows], Order.schema())


def payments(*rows: tuple[int, int, int]) -> pa.RecordBatch:
    return encode([Payment(*row) for row in rows], Payment.schema())


def test_both_inputs_share_the_state_and_the_timer_of_a_key() -> None:
    operator = matching()
    ctx, out = opened(operator)
    operator.on_rows(orders((1, 5, 0), (2, 7, 1)), 0)
    operator.on_rows(payments((2, 7, 2), (3, 1, 2)), 1)
    advance(operator, ctx, 20)
    assert [(row["id"], row["text"]) for row in out.rows()] == [
        (1, "ordered 5"),
        (2, "ordered 7"),
        (2, "ordered 7; paid 7"),
        (3, "paid 1"),
        (1, "ordered 5; late at 10"),
    ]


def test_in_order_rows_of_both_inputs_come_by_time_and_the_left_first_at_equal_times() -> None:
    operator = matching(in_order=True)
    ctx, out = opened(operator)
    operator.on_rows(payments((1, 4, 3), (1, 3, 1), (1, 2, 2), (1, 9, 50)), 1)
    operator.on_rows(orders((1, 5, 2)), 0)
    assert not out.rows()
    advance(operator, ctx, 20)
    assert out.rows()[-1]["text"] == "paid 3; ordered 5; paid 2; paid 4; late at 12"
    advance(operator, ctx, MAX_TIME)
    assert out.rows()[-1]["text"].endswith("late at 12; paid 9")


def test_in_order_rows_of_several_slices_alternate_by_time() -> None:
    operator = matching(in_order=True)
    ctx, out = opened(operator)
    count = 2 * SLICE_ROWS + 3
    operator.on_rows(orders(*((n, 5, 2 * n) for n in range(count))), 0)
    operator.on_rows(payments(*((n // 3, n, n) for n in range(count))), 1)
    advance(operator, ctx, MAX_TIME)
    arrivals = [row["text"].rpartition("; ")[2] for row in out.rows() if "late" not in row["text"].rpartition("; ")[2]]
    rows = sorted([(2 * n, 0, "ordered 5") for n in range(count)] + [(n, 1, f"paid {n}") for n in range(count)])
    assert arrivals == [text for _, _, text in rows]


def test_waiting_rows_are_in_the_snapshot_with_their_side() -> None:
    operator = matching(in_order=True)
    opened(operator)
    operator.on_rows(payments((1, 4, 3)), 1)
    operator.on_rows(orders((1, 5, 2)), 0)
    after = matching(in_order=True)
    ctx, out = opened(after)
    after.restore([stored(operator.snapshot())])
    advance(after, ctx, 5)
    assert out.rows()[-1]["text"] == "ordered 5; paid 4"


def test_a_failed_call_leaves_the_shared_state_unchanged() -> None:
    operator = matching(catch=True)
    _, out = opened(operator)
    operator.on_rows(orders((1, 5, 0)), 0)
    operator.on_rows(payments((1, -1, 1), (1, 5, 1)), 1)
    assert [row["text"] for row in out.rows()] == ["ordered 5", "ordered 5; paid 5"]
    (letter,) = out.rows(1)
    assert letter["error"] == "ValueError: less than nothing"
    assert DeadLetter(**letter).place.endswith("in on_right")
    failing = matching()
    opened(failing)
    with pytest.raises(UserCodeError, match="less than nothing"):
        failing.on_rows(payments((1, -1, 1)), 1)


def test_in_order_requires_the_event_time_of_both_inputs() -> None:
    with pytest.raises(GraphError, match="Matching needs an event time for in_order or a ttl"):
        ProcessOperator(Matching, (INPUTS[0], ProcessInput(INPUTS[1].key, Payment)), (Told,), in_order=True)


rows_of = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 60)), max_size=5)
steps = st.tuples(st.integers(0, 1), rows_of) | st.integers(0, 70)


def play(history: list[tuple[int, Rows] | int], in_order: bool, restarts: dict[int, int]) -> list[list[str]]:
    """The story of each key, with the job restarted at the steps in ``restarts`` at another parallelism."""
    watermark = -1
    outs: list[Collected] = []
    running: list[tuple[ProcessOperator, ScriptedContext]] = []
    for number, step in enumerate([*history, MAX_TIME]):
        if number == 0 or number in restarts:
            parts: list[OperatorState] = [stored(operator.snapshot()) for operator, _ in running]
            cuts = np.linspace(0, 128, restarts.get(number, 1) + 1).astype(int).tolist()
            running = []
            for low, high in itertools.pairwise(cuts):
                operator = matching(in_order)
                ctx, out = opened(operator, ScriptedContext(range(low, high)))
                ctx.watermark = watermark
                operator.restore(read_by(parts, ctx.groups))
                running.append((operator, ctx))
                outs.append(out)
        if isinstance(step, int):
            if step > watermark:
                watermark = step
                for operator, ctx in running:
                    advance(operator, ctx, watermark)
        else:
            side, rows = step
            batch = payments(*rows) if side else orders(*rows)
            groups = key_groups(batch, list(INPUTS[side].keys), 128)
            for operator, ctx in running:
                mine = np.flatnonzero((groups >= ctx.groups.start) & (groups < ctx.groups.stop))
                if len(mine):
                    operator.on_rows(batch.take(mine), side)
    return [[row["text"] for out in outs for row in out.rows() if row["id"] == key] for key in range(5)]


@given(st.lists(steps, max_size=12), st.booleans(), st.dictionaries(st.integers(1, 12), st.integers(1, 3), max_size=3))
def test_restarts_at_any_parallelism_do_not_change_the_output(
    history: list[tuple[int, Rows] | int], in_order: bool, restarts: dict[int, int]
) -> None:
    assert play(history, in_order, restarts) == play(history, in_order, {})
