from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from clonos_py.causal.codec import decode
from clonos_py.causal.determinants import Completion, InputOrder, Linger, ReadBatch, SourceRead, Time
from clonos_py.causal.gate import Gate
from clonos_py.causal.log import LogWriter
from clonos_py.model.errors import DivergenceError, ProtocolError, ServiceError
from clonos_py.model.ids import LogId
from clonos_py.model.segments import LogSegment
from tests.unit.task.plans import Outside


def recorded(live: Any) -> tuple[list[LogSegment], Any]:
    """The log and the results of running ``live`` against a fresh gate."""
    writer = LogWriter(LogId(0))
    result = live(Gate(writer))
    cut = writer.cut()
    return ([cut] if cut else []), result


def replaying(segments: list[LogSegment]) -> Gate:
    gate = Gate(LogWriter(LogId(0)))
    gate.load(segments)
    return gate


def forbidden() -> Any:
    raise AssertionError("a replay must not ask the outside world")


def refusing() -> Any:
    raise ServiceError("no route to host")


def test_a_replay_gets_the_logged_answers() -> None:
    answers = iter([5, 7])
    log, _ = recorded(lambda g: (g.now(lambda: 100), g.ask("http", lambda: next(answers)), g.seed(lambda: 9)))
    gate = replaying(log)
    assert (gate.now(forbidden), gate.ask("http", forbidden), gate.seed(forbidden)) == (100, 5, 9)
    assert not gate.replaying


def test_the_coming_event_is_shown_with_all_of_its_determinants() -> None:
    reads = [SourceRead(0, n, n + 1, 0) for n in range(3)]
    log, _ = recorded(lambda g: [g.record(d) for d in (ReadBatch(2), *reads)])
    gate = replaying(log)
    assert gate.coming == [ReadBatch(2), *reads[:2]]
    gate.take_next(3)
    assert gate.coming == reads[2:]
    gate.take()
    assert gate.coming == []


def test_a_replay_from_an_offset_decodes_only_what_is_behind_the_last_place_to_begin() -> None:
    writer = LogWriter(LogId(0))
    gate, segments = Gate(writer), []
    for now_us in (100, 200, 300):
        gate.record(Time(now_us))
        segments.append(writer.cut())
        writer.allow_replay_from_here()
    first, *others = [found for found in segments if found is not None]
    again = Gate(LogWriter(LogId(0)))
    again.load_at([replace(first, payload=b"?"), *others], 0, 0, 2)
    assert again.coming == [Time(300)]
    assert again.writer.offset == 2


def test_an_event_that_is_followed_asks_its_questions_live() -> None:
    gate = Gate(LogWriter(LogId(0)))
    gate.follow([Linger()])
    assert (gate.replaying, gate.take()) == (True, Linger())
    assert not gate.replaying
    assert (gate.now(lambda: 3), gate.ask("http", lambda: "yes"), gate.seed(lambda: 4)) == (3, "yes", 4)


def test_a_refusal_is_repeated_in_a_replay() -> None:
    def ask(gate: Gate) -> None:
        with pytest.raises(ServiceError, match="no route"):
            gate.ask("http", refusing)

    log, _ = recorded(ask)
    with pytest.raises(ServiceError, match="no route to host"):
        replaying(log).ask("http", forbidden)


def test_a_replay_ends_in_the_middle_of_an_event_and_continues_live() -> None:
    log, _ = recorded(lambda g: g.now(lambda: 1))
    gate = replaying(log)
    assert [gate.now(forbidden), gate.now(lambda: 2)] == [1, 2]
    cut = gate.writer.cut()
    assert cut is not None
    assert (cut.start, cut.count) == (1, 1)


def test_runs_of_arrivals_are_taken_one_by_one() -> None:
    log, _ = recorded(lambda g: [g.record(InputOrder(2, 1)) for _ in range(3)] and g.record(Linger()))
    gate = replaying(log)
    assert [gate.take() for _ in range(3)] == [InputOrder(2, 3)] * 3
    assert gate.peek() == Linger()
    assert gate.writer.offset == 3


def test_another_question_than_the_logged_one_is_a_divergence() -> None:
    log, _ = recorded(lambda g: g.ask("http", lambda: 1))
    with pytest.raises(DivergenceError, match="'http'"):
        replaying(log).ask("owners", forbidden)
    with pytest.raises(DivergenceError, match="the time"):
        replaying(log).now(forbidden)


def test_live_choices_during_a_replay_are_an_error() -> None:
    log, _ = recorded(lambda g: g.record(Linger()))
    with pytest.raises(ProtocolError, match="still to be replayed"):
        replaying(log).record(Linger())


def test_entries_after_a_replay_continue_its_log() -> None:
    first, _ = recorded(lambda g: (g.now(lambda: 10**15), g.ask("rates", lambda: 1)))
    gate = replaying(first)
    assert (gate.now(forbidden), gate.ask("rates", forbidden)) == (10**15, 1)
    assert (gate.now(lambda: 10**15 + 5), gate.ask("rates", lambda: 2)) == (10**15 + 5, 2)
    cut = gate.writer.cut()
    assert cut is not None
    assert len(cut.payload) < 12, "differences to the replayed entries"
    third = replaying([*first, cut])
    assert [third.now(forbidden), third.ask("rates", forbidden)] == [10**15, 1]
    assert [third.now(forbidden), third.ask("rates", forbidden)] == [10**15 + 5, 2]


def test_a_log_that_does_not_start_where_the_snapshot_ends_is_an_error() -> None:
    log, _ = recorded(lambda g: g.record(Linger()))
    gate = Gate(LogWriter(LogId(0)))
    gate.writer.resume(1, 5, 5)
    with pytest.raises(ProtocolError, match="the log to replay continues at 0, not at 5"):
        gate.load(log)


def questions(gate: Gate, clock: list[int], times: list[int], live: bool) -> list[int]:
    """An event that reads the time at each of these moments."""
    if live:
        gate.record(Linger())
    else:
        gate.take()
    found = []
    for now_us in times:
        clock[0] = now_us
        found.append(gate.now(lambda: clock[0]))
    return found


def test_within_a_granule_the_clock_is_read_once_and_logged_once() -> None:
    gate = Gate(LogWriter(LogId(0)), 1_000)
    answers = questions(gate, [0], [10_000, 10_400, 10_999, 11_000, 11_001], live=True)
    assert answers == [10_000, 10_000, 10_000, 11_000, 11_000]
    cut = gate.writer.cut()
    assert cut is not None
    assert decode(cut.payload) == [Linger(), Time(10_000, 0), Time(11_000, 2)]


def test_in_a_replayed_event_time_only_passes_as_the_log_says() -> None:
    """The answers of the old time are not in the log, and other tasks may depend on them."""
    before = Gate(LogWriter(LogId(0)), 1_000)
    questions(before, [0], [10_000, 10_001], live=True)
    answers = questions(before, [0], [10_002, 10_003], live=True)
    after = Gate(LogWriter(LogId(0)), 1_000)
    after.load([found for found in [before.writer.cut()] if found])
    questions(after, [0], [99_000, 99_000], live=False)
    assert questions(after, [0], [99_000, 99_000], live=False) == answers
    assert questions(after, [0], [99_500], live=True) == [99_500]


def test_the_time_is_read_again_in_every_epoch() -> None:
    gate = Gate(LogWriter(LogId(0)), 1_000)
    assert questions(gate, [0], [10_000], live=True) == [10_000]
    gate.reset_time()
    assert questions(gate, [0], [10_001], live=True) == [10_001]


def test_a_clock_that_is_set_back_is_read_again() -> None:
    assert questions(Gate(LogWriter(LogId(0)), 1_000), [0], [10_000, 5_000], live=True) == [10_000, 5_000]


@given(st.lists(st.lists(st.integers(0, 900), max_size=4), max_size=12), st.data())
def test_every_replay_of_whole_events_returns_the_same_times(events: list[list[int]], data: st.DataObject) -> None:
    """At any time of the clock, and with any part of the log left."""
    moment, plan = 0, []
    for steps in events:
        plan.append([moment := moment + step for step in steps])
    before, answers, segments = Gate(LogWriter(LogId(0)), 1_000), [], []
    for times in plan:
        answers.append(questions(before, [0], times, live=True))
        cut = before.writer.cut()
        assert cut is not None
        segments.append(cut)
    kept = data.draw(st.integers(0, len(segments)))
    after = Gate(LogWriter(LogId(0)), 1_000)
    after.load(segments[:kept])
    assert [questions(after, [0], [10**9] * len(times), live=False) for times in plan[:kept]] == answers[:kept]
    assert not after.replaying
    assert after.writer.offset == sum(segment.count for segment in segments[:kept])


LARGE = {"content": b"x" * (3 << 20), "status": 200}


def test_a_large_answer_is_kept_aside_and_the_log_has_its_name() -> None:
    outside = Outside()
    gate = Gate(LogWriter(LogId(0)), keeper=outside)
    gate.record(Linger())
    assert gate.ask("http", lambda: LARGE) is LARGE
    assert gate.ask("http", lambda: "small") == "small"
    gate.record(Completion(0, 5, LARGE))
    cut = gate.writer.cut()
    assert cut is not None
    assert len(cut.payload) < 100
    assert len(outside.aside) == 2
    after = Gate(LogWriter(LogId(0)), keeper=outside)
    after.load([cut])
    after.take()
    assert [after.ask("http", forbidden), after.ask("http", forbidden)] == [LARGE, "small"]
    assert after.take() == Completion(0, 5, LARGE)
    assert not after.replaying


@pytest.mark.parametrize("epoch", [0, 1, 7])
def test_a_large_answer_is_kept_for_the_epoch_of_its_question(epoch: int) -> None:
    outside = Outside()
    gate = Gate(LogWriter(LogId(0)), keeper=outside)
    gate.writer.resume(epoch, 0, 0)
    gate.ask("http", lambda: LARGE)
    gate.record(Completion(0, 5, LARGE))
    assert [name.partition("-")[0] for name in outside.aside] == [str(epoch)] * 2
