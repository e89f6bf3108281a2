from __future__ import annotations

from typing import Any

import pytest

from clonos_py.causal.determinants import Linger, Order
from clonos_py.causal.gate import Gate
from clonos_py.causal.log import LogWriter
from clonos_py.model.errors import DivergenceError, ProtocolError, ServiceError
from clonos_py.model.segments import Segment


def recorded(live: Any) -> tuple[list[Segment], Any]:
    """The log and the results of running ``live`` against a fresh gate."""
    writer = LogWriter(0)
    result = live(Gate(writer))
    cut = writer.cut()
    return ([cut] if cut else []), result


def replaying(segments: list[Segment]) -> Gate:
    gate = Gate(LogWriter(0))
    gate.load(segments)
    return gate


def forbidden() -> Any:
    raise AssertionError("a replay must not ask the outside world")


def refusing() -> Any:
    raise ServiceError("no route to host")


def test_a_replay_answers_what_was_answered_then() -> None:
    answers = iter([5, 7])
    log, _ = recorded(lambda g: (g.now(lambda: 100), g.ask("http", lambda: next(answers)), g.seed(lambda: 9)))
    gate = replaying(log)
    assert (gate.now(forbidden), gate.ask("http", forbidden), gate.seed(forbidden)) == (100, 5, 9)
    assert not gate.replaying


def test_a_refusal_is_refused_again() -> None:
    def ask(gate: Gate) -> None:
        with pytest.raises(ServiceError, match="no route"):
            gate.ask("http", refusing)

    log, _ = recorded(ask)
    with pytest.raises(ServiceError, match="no route to host"):
        replaying(log).ask("http", forbidden)


def test_a_replay_ends_in_the_middle_of_an_event_and_goes_on_live() -> None:
    log, _ = recorded(lambda g: g.now(lambda: 1))
    gate = replaying(log)
    assert [gate.now(forbidden), gate.now(lambda: 2)] == [1, 2]
    cut = gate.writer.cut()
    assert cut is not None
    assert (cut.start, cut.count) == (1, 1)


def test_runs_of_arrivals_are_taken_one_by_one() -> None:
    log, _ = recorded(lambda g: [g.record(Order(2, 1)) for _ in range(3)] and g.record(Linger()))
    gate = replaying(log)
    assert [gate.take() for _ in range(3)] == [Order(2, 3)] * 3
    assert gate.peek() == Linger()
    assert gate.writer.offset == 3


def test_another_question_than_the_predecessors_is_a_divergence() -> None:
    log, _ = recorded(lambda g: g.ask("http", lambda: 1))
    with pytest.raises(DivergenceError, match="'http'"):
        replaying(log).ask("owners", forbidden)
    with pytest.raises(DivergenceError, match="the time"):
        replaying(log).now(forbidden)


def test_live_choices_during_a_replay_are_an_error() -> None:
    log, _ = recorded(lambda g: g.record(Linger()))
    with pytest.raises(ProtocolError, match="still to be replayed"):
        replaying(log).record(Linger())


def test_what_is_logged_after_a_replay_continues_its_log() -> None:
    first, _ = recorded(lambda g: (g.now(lambda: 10**15), g.ask("rates", lambda: 1)))
    gate = replaying(first)
    assert (gate.now(forbidden), gate.ask("rates", forbidden)) == (10**15, 1)
    assert (gate.now(lambda: 10**15 + 5), gate.ask("rates", lambda: 2)) == (10**15 + 5, 2)
    cut = gate.writer.cut()
    assert cut is not None
    assert len(cut.payload) < 12, "differences to what was replayed"
    third = replaying([*first, cut])
    assert [third.now(forbidden), third.ask("rates", forbidden)] == [10**15, 1]
    assert [third.now(forbidden), third.ask("rates", forbidden)] == [10**15 + 5, 2]


def test_a_log_that_does_not_go_on_where_the_snapshot_ends_is_an_error() -> None:
    log, _ = recorded(lambda g: g.record(Linger()))
    gate = Gate(LogWriter(0))
    gate.writer.resume(1, 5, 5)
    with pytest.raises(ProtocolError, match="the snapshot ends at 5"):
        gate.load(log)
