"""The logs that a replacement holds and lacks until it has caught up, and its report when another task fails."""

from __future__ import annotations

from collections.abc import Sequence

from clonos_py.causal.codec import encode
from clonos_py.causal.determinants import Determinant, InputOrder, Linger
from clonos_py.channel.frames import FrameHeader, FrameKind
from clonos_py.link.held_logs import HeldLogs, shared_logs
from clonos_py.link.receiving import InputChannel
from clonos_py.model.ids import Attempt, LogId, TaskId
from clonos_py.model.messages import Complete, HeldLogsReport, Replay, Sever
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import Incarnation, LogSegment, Reach
from tests.unit.job.graphs import graph, task
from tests.unit.job.graphs import logs as ids

CHAIN = graph("ab", "bc", "cd")
A, B, C, D = CHAIN.tasks


def held_logs(plan: PhysicalPlan, which: TaskId, attempt: Attempt = Attempt(1, 2)) -> HeldLogs:  # noqa: B008 - frozen
    inputs = [InputChannel(i, c, plan.sender(c), 16) for i, c in enumerate(plan.inputs[which])]
    made = HeldLogs(plan, which, inputs)
    made.become(attempt)
    return made


def header(*delta: LogSegment, incomplete: Sequence[LogId] = ()) -> FrameHeader:
    return FrameHeader(0, FrameKind.LOG_ONLY, 0, 0, False, 0, 0, 0, 0, (), list(delta), incomplete=tuple(incomplete))


def log(which: TaskId, *determinants: Determinant, incarnation: int = 0) -> LogSegment:
    return LogSegment(which.log_id, 0, 0, 0, len(determinants), encode(determinants), incarnation)


def asked(made: HeldLogs, *failed: TaskId) -> HeldLogsReport:
    return made.answer(7, Sever(3, [], [(which, Attempt(1, 9)) for which in failed], Complete(0)))


def test_logs_are_passed_on_within_the_depth_along_the_shortest_path() -> None:
    edges = ("ab", "bc", "cd", "ad")
    logs = {depth: shared_logs(graph(*edges, sharing_depth=depth), task("c"), task("d")) for depth in (0, 1, 2, -1)}
    assert logs == {0: set(), 1: {*ids("ac")}, 2: {*ids("abc")}, -1: {*ids("abc")}}, (
        "d is one hop from a, whatever part of a's log c holds"
    )


def test_a_first_attempt_lacks_no_logs() -> None:
    made = held_logs(CHAIN, C, Attempt(1, 1))
    assert list(made.store.incomplete) == []
    assert asked(made, A).has_own_log


def test_a_replacement_lacks_its_log_until_the_replay_and_upstream_ones_until_its_inputs_open() -> None:
    made = held_logs(CHAIN, C)
    assert set(made.store.incomplete) == {*ids("abc")}
    assert not asked(made, B).has_own_log
    made.replay(Replay(1, [log(C, InputOrder(0, 1))], [], [], complete=ids("c")))
    assert set(made.store.incomplete) == {*ids("ab")}
    assert asked(made, B).incomplete == {0: sorted(ids("ab"))}
    made.take(0, header(log(B, Linger()), incomplete=ids("ab")))
    assert set(made.store.incomplete) == {*ids("ab")}, (
        "who sends this is a replacement itself, and has opened nothing yet"
    )
    made.take(0, header(log(A, Linger())))
    assert list(made.store.incomplete) == []
    assert asked(made, A, B).logs == [log(A, Linger()), log(B, Linger())]


def test_a_replacement_holds_the_upstream_logs_that_it_was_given() -> None:
    made = held_logs(CHAIN, C)
    made.replay(
        Replay(1, [log(C, InputOrder(0, 1))], [], [], [log(B, Linger())], complete=ids("bc"), needs={A.log_id: 5})
    )
    answer = asked(made, B)
    assert (answer.logs, answer.incomplete, answer.replayed, answer.needs) == (
        [log(B, Linger())],
        {0: ids("a")},
        [0],
        {A.log_id: 5},
    )


def test_full_depth_a_replacement_without_a_log_lacks_nothing() -> None:
    """It depends on what has arrived only, and that came with all determinants that it depends on."""
    made = held_logs(CHAIN, C)
    made.take(0, header(incomplete=ids("ab")))
    made.replay(Replay(1, [], [], [], complete=ids("c")))
    assert list(made.store.incomplete) == []
    below = held_logs(graph("ab", "bc", "cd", sharing_depth=2), C)
    below.take(0, header(incomplete=ids("ab")))
    below.replay(Replay(1, [], [], [], complete=ids("c")))
    assert set(below.store.incomplete) == {*ids("ab")}, "d may hold a log of b that depends on that of a"


def test_full_depth_a_replacement_lacks_nothing_once_it_has_replayed_its_log() -> None:
    plan = graph("ac", "bc", "cd")
    made = held_logs(plan, C)
    made.replay(Replay(1, [log(C, InputOrder(0, 1))], [], [], complete=ids("c"), needs={A.log_id: 1, B.log_id: 1}))
    made.take(0, header(log(A, Linger())))
    assert set(made.store.incomplete) == {*ids("b")}
    made.replayed()
    assert list(made.store.incomplete) == [], "its log names no frame of b, whose connection has not opened"


def test_full_depth_the_logs_of_a_snapshot_are_whole_before_the_replacement_has_its_own_log() -> None:
    stored = [log(A, Linger()), log(B, Linger()), log(C, Linger())]
    made = held_logs(CHAIN, D)
    made.restore(stored)
    assert asked(made, C, D).whole == ids("ab"), "the log of c depends on no more of them"
    below = held_logs(graph("ab", "bc", "cd", sharing_depth=2), D)
    below.restore(stored[1:])
    assert asked(below, C, D).whole == []


def test_received_logs_are_reported_by_input_before_any_frame_or_log_of_the_sender_has_come() -> None:
    made = held_logs(CHAIN, D, Attempt(1, 1))
    assert asked(made, A, B, C).logs_received == {}
    made.take(0, header(log(B, InputOrder(0, 1))))
    answer = asked(made, A, B, C)
    assert (answer.depends, answer.logs_received) == ([], {0: ids("b")})


def test_a_sender_that_lacks_logs_removes_none_from_its_receiver() -> None:
    made = held_logs(CHAIN, C, Attempt(1, 1))
    made.take(0, header(incomplete=ids("ab")))
    assert asked(made, A).incomplete == {}


def test_a_completed_checkpoint_clears_the_logs_that_were_lacking_before_it() -> None:
    made = held_logs(CHAIN, C)
    made.replay(Replay(1, [log(C, InputOrder(0, 1))], [], [], complete=ids("c"), needs={A.log_id: 5}))
    made.complete()
    answer = asked(made, A)
    assert (answer.incomplete, answer.replayed, answer.needs, made.store.incomplete) == ({}, [], {}, ())


def test_the_ends_of_logs_upstream_of_the_failed_tasks_are_reported() -> None:
    made = held_logs(CHAIN, D, Attempt(1, 1))
    made.take(0, header(log(A, Linger(), Linger()), log(B, Linger()), log(C, Linger())))
    assert asked(made, C).ends == {A.log_id: 2, B.log_id: 1}
    assert asked(made, B, C).ends == {A.log_id: 2}


def test_a_log_of_a_task_that_restarted_without_log_voids_the_old_one() -> None:
    made = held_logs(CHAIN, D, Attempt(1, 1))
    made.take(0, header(log(B, Linger(), Linger()), log(C, Linger())))
    made.take(0, header(log(B, InputOrder(0, 1), incarnation=1)))
    made.take(0, header(log(B, Linger(), Linger())))
    assert made.store.of(B.log_id) == [log(B, InputOrder(0, 1), incarnation=1)]
    assert made.store.of(C.log_id) == [log(C, Linger())]


def test_a_task_that_restarted_without_log_writes_segments_of_its_new_incarnation() -> None:
    made = held_logs(CHAIN, B)
    made.replay(Replay(1, [], [], [], complete=list(CHAIN.logs), incarnation=Incarnation(2)))
    made.store.append(made.numbered(log(B, Linger())))
    assert made.store.of(B.log_id) == [log(B, Linger(), incarnation=2)]


def test_a_receiver_reports_once_to_its_senders_which_upstream_logs_it_has_from_others() -> None:
    plan = graph("ab", "ac", "bd", "cd")
    made = held_logs(plan, task("d"), Attempt(1, 1))
    assert made.unacknowledged(0) == []
    made.take(0, header(log(A, Linger(), Linger()), log(B, Linger())))
    assert made.unacknowledged(1) == [Reach(A.log_id, 0, 2)], "the log of b comes from nobody else"
    assert made.unacknowledged(1) == []
    made.take(1, header())
    assert made.unacknowledged(1) == [Reach(A.log_id, 0, 2)], "a new connection knows nothing"
