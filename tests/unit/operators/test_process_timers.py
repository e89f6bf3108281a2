"""Timers of process functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from clonos_py.model.errors import UserCodeError
from clonos_py.model.processes import ProcessInput
from clonos_py.model.times import MAX_TIME
from clonos_py.operators.process import Process, ProcessOperator, event_timer
from clonos_py.services.context import Context
from tests.unit.operators.accounts import ACCOUNT, Alarm, Audit, Txn, operator, texts, txns
from tests.unit.operators.scripted import advance, opened, stored


def test_processing_timers_fire_on_time_and_only_the_next_one_is_registered() -> None:
    alarm = operator(Alarm, Audit)
    ctx, out = opened(alarm)
    alarm.on_rows(txns((1, 50, 0), (2, 30, 0), (3, 30, 0), (4, 20, 0), (4, 0, 0), (1, 40, 0)), 0)
    assert ctx.timers == {30}
    restored = operator(Alarm, Audit)
    ctx, out = opened(restored)
    restored.restore([stored(alarm.snapshot())])
    assert ctx.timers == {30}
    restored.on_timer(30)
    assert texts(out) == ["2 rang, None to come", "3 rang, None to come"]
    assert 40 in ctx.timers
    restored.on_timer(40)
    assert texts(out)[2:] == ["1 rang, None to come"]


def test_a_timer_that_sets_itself_again_stops_at_the_end_of_the_input() -> None:
    class Beat(Process[Txn, Audit]):
        beat = event_timer()

        def on_row(self, txn: Txn, ctx: Context) -> None:
            self.beat.set(ctx.event_time + 10)

        @beat.fires
        def beats(self, ctx: Context) -> Audit:
            self.beat.set(ctx.event_time + 10)
            return Audit(str(ctx.event_time))

    beat = operator(Beat, Audit, in_order=True)
    ctx, out = opened(beat)
    beat.on_rows(txns((1, 1, 0), (2, 1, 25)), 0)
    advance(beat, ctx, MAX_TIME)
    assert texts(out) == ["10", "20", "30", "35"]


def reminder_at(at: Any) -> type[Process[Txn, Audit]]:
    class Reminder(Process[Txn, Audit]):
        late = event_timer()

        def on_row(self, txn: Txn, ctx: Context) -> None:
            self.late.set(at)

        @late.fires
        def remind(self, ctx: Context) -> Audit:
            return Audit(str(ctx.event_time))

    return Reminder


@pytest.mark.parametrize("wrong", ["10s", 1.5, None, True])
def test_a_timer_can_be_set_only_to_a_time(wrong: Any) -> None:
    reminder = operator(reminder_at(wrong), Audit)
    opened(reminder)
    with pytest.raises(UserCodeError, match=r"late.set\(.*\): a timer is set to a time, an Instant"):
        reminder.on_rows(txns((1, 50, 0)), 0)


def test_an_integer_of_numpy_is_a_time() -> None:
    reminder = operator(reminder_at(np.int64(7)), Audit)
    ctx, out = opened(reminder)
    reminder.on_rows(txns((1, 50, 0)), 0)
    reminder.restore([stored(reminder.snapshot())])
    advance(reminder, ctx, MAX_TIME)
    assert texts(out) == ["7"]


@pytest.mark.parametrize("earlier", [0, 5])
@pytest.mark.parametrize("catch", [False, True])
def test_timers_that_are_set_to_their_own_time_for_ever_are_reported(
    earlier: int, catch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clonos_py.operators.process._AGAIN_MAX", 50)

    class Again(Process[Txn, Audit]):
        one, two = event_timer(), event_timer()

        def on_row(self, txn: Txn, ctx: Context) -> Audit:
            self.one.set(100)
            return Audit(f"{txn.cents}")

        @one.fires
        def first(self, ctx: Context) -> None:
            self.two.set(ctx.event_time)

        @two.fires
        def second(self, ctx: Context) -> None:
            self.one.set(ctx.event_time - earlier)

    again = ProcessOperator(Again, (ProcessInput(ACCOUNT, Txn, "at"),), (Audit,), catch=catch)
    ctx, out = opened(again)
    again.on_rows(txns((1, 1, 0), (2, 1, 0)), 0)
    if not catch:
        with pytest.raises(
            UserCodeError, match=r"timer '(one|two)' at .* of key .*process Again has set its timers 50 t"
        ):
            advance(again, ctx, 100)
        return
    advance(again, ctx, 100)
    assert [letter["row"] for letter in out.rows(1)] == [-1, -1]
    assert ctx.counted["timers_stopped"] == 2
    again.on_rows(txns((1, 3, 0)), 0)
    assert texts(out) == ["1", "1", "3"]


def test_a_timer_may_be_set_to_its_own_time_a_few_times() -> None:
    class Draining(Process[Txn, Audit]):
        due = event_timer()

        def on_row(self, txn: Txn, ctx: Context) -> None:
            self.due.set(10)

        @due.fires
        def fired(self, ctx: Context) -> Audit:
            drawn.append(1)
            if len(drawn) < 1_000:
                self.due.set(10)
            return Audit("")

    drawn: list[int] = []
    draining = operator(Draining, Audit)
    ctx, out = opened(draining)
    draining.on_rows(txns((1, 1, 0)), 0)
    advance(draining, ctx, 10)
    assert len(texts(out)) == 1_000
