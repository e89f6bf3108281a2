"""Process functions: rows and timers per key in order, results by type, and errors."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from clonos_py.model.errors import DivergenceError, GraphError, UserCodeError
from clonos_py.model.processes import ProcessInput
from clonos_py.model.record import at
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.process import Process, ProcessOperator, event_timer
from clonos_py.services.context import Context
from tests.unit.operators.accounts import ACCOUNT, Alert, Audit, Fraud, Story, Txn, operator, texts, txns
from tests.unit.operators.scripted import advance, opened


def test_the_example_finds_a_large_amount_after_a_small_one() -> None:
    fraud = operator(Fraud, Alert, in_order=True)
    ctx, out = opened(fraud)
    fraud.on_rows(txns((1, 90_000, at("30s")), (1, 50, at("0s")), (2, 90_000, at("1s"))), 0)
    fraud.on_rows(txns((3, 50, at("0s")), (3, 90_000, at("61s"))), 0)
    advance(fraud, ctx, MAX_TIME)
    assert out.rows() == [{"account": 1, "cents": 90_000}]


def test_rows_and_timers_come_in_the_order_of_event_time() -> None:
    story = operator(Story, Audit, in_order=True)
    ctx, out = opened(story)
    story.on_rows(txns((1, 1, 10), (2, 2, 15), (1, 3, 4)), 0)
    assert texts(out) == []
    advance(story, ctx, 15)
    assert texts(out) == [
        "1: 3 at 4 after nothing, 3 in all",
        "1: soon at 9",
        "1: 1 at 10 after 3, 4 in all",
        "1: soon at 15",
    ]
    out.batches.clear()
    advance(story, ctx, MAX_TIME)
    assert texts(out) == ["2: 2 at 15 after nothing, 2 in all", "2: soon at 20", "later at 22, 4 in all"]


def test_without_in_order_rows_are_processed_as_they_come() -> None:
    story = operator(Story, Audit)
    ctx, out = opened(story)
    story.on_rows(txns((1, 1, 10), (1, 3, 4)), 0)
    assert texts(out) == ["1: 1 at 10 after nothing, 1 in all", "1: 3 at 4 after 1, 4 in all"]
    out.batches.clear()
    advance(story, ctx, 9)
    assert texts(out) == ["1: soon at 9"]


def test_in_order_drops_late_rows_and_rows_without_a_time() -> None:
    story = operator(Story, Audit, in_order=True)
    ctx, out = opened(story)
    advance(story, ctx, 5)
    story.on_rows(txns((1, 1, 4), (1, 2, None), (1, 3, 5)), 0)
    advance(story, ctx, 6)
    assert texts(out) == ["1: 3 at 5 after nothing, 3 in all"]
    assert ctx.counted == {"late_rows": 1, "null_time_rows": 1}


def test_an_undeclared_attribute_cannot_be_assigned() -> None:
    class Sloppy(Process[Txn, Alert]):
        def on_row(self, txn: Txn, ctx: Context) -> None:
            self.sum = txn.cents

    sloppy = operator(Sloppy, Alert)
    opened(sloppy)
    with pytest.raises(
        UserCodeError, match=r"'probe' failed on record .*Sloppy.sum is not declared; write 'sum = state"
    ):
        sloppy.on_rows(txns((1, 2, 3)), 0)


def test_a_timer_without_a_method_is_an_error_at_its_class() -> None:
    with pytest.raises(GraphError, match=r"timer 'tick' of Deaf calls nothing; decorate a method with @tick.fires"):

        class Deaf(Process[Txn, Alert]):
            tick = event_timer()


def test_in_order_and_ttl_require_event_time() -> None:
    with pytest.raises(GraphError, match="Fraud needs an event time"):
        ProcessOperator(Fraud, [ProcessInput(ACCOUNT, Txn)], (Alert,))
    with pytest.raises(GraphError, match="Story needs an event time"):
        ProcessOperator(Story, [ProcessInput(ACCOUNT, Txn)], (Audit,), in_order=True)


def test_results_go_to_the_port_of_their_type() -> None:
    class Both(Process[Txn, Alert | Audit]):
        def on_row(self, txn: Txn, ctx: Context) -> Iterator[Alert | Audit]:
            yield Audit("seen")
            if txn.cents > 1:
                yield Alert(txn.account, txn.cents)

    both = operator(Both, Alert, Audit)
    _, out = opened(both)
    both.on_rows(txns((1, 1, 0), (2, 2, 0)), 0)
    assert out.rows(0) == [{"account": 2, "cents": 2}]
    assert out.rows(1) == [{"text": "seen"}] * 2
    strict = operator(Both, Alert)
    opened(strict)
    with pytest.raises(UserCodeError, match=r"Both gave Audit\(text='seen'\), which is not one of its outputs: Alert"):
        strict.on_rows(txns((1, 1, 0)), 0)


def test_a_result_that_does_not_fit_its_schema_is_named() -> None:
    class Wrong(Process[Txn, Alert]):
        def on_row(self, txn: Txn, ctx: Context) -> Alert:
            return Alert(1, "much")  # type: ignore[arg-type]

    wrong = operator(Wrong, Alert)
    opened(wrong)
    with pytest.raises(UserCodeError, match=r"operator 'probe' gave Alert\(.*field 'cents' is 'much'"):
        wrong.on_rows(txns((1, 1, 0)), 0)


def test_a_failing_timer_is_named_and_errors_of_the_engine_are_not_wrapped() -> None:
    class Failing(Process[Txn, Alert]):
        tick = event_timer()

        def on_row(self, txn: Txn, ctx: Context) -> None:
            if txn.cents:
                raise DivergenceError("replay differs")
            self.tick.set(7)

        @tick.fires
        def ticked(self, ctx: Context) -> None:
            raise ValueError("no")

    failing = operator(Failing, Alert)
    ctx, _ = opened(failing)
    failing.on_rows(txns((1, 0, 0)), 0)
    with pytest.raises(
        UserCodeError,
        match=r"operator 'probe' failed on timer 'tick' at 7 of key {\"account\":1}: ValueError: no; .* in ticked",
    ):
        advance(failing, ctx, 8)
    with pytest.raises(DivergenceError):
        failing.on_rows(txns((1, 1, 0)), 0)
