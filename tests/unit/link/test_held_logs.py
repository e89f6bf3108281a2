"""The logs that a replacement holds and lacks until it has caught up, and its report when another task fails."""

from __future__ import annotations

from clonos_py.causal.codec import encode
from clonos_py.causal.determinants import Determinant, InputOrder, Linger
from clonos_py.channel.frames import FrameHeader, FrameKind
from clonos_py.link.held_logs import HeldLogs, shared_logs
from clonos_py.link.receiving import InputChannel
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import Complete, HeldLogsReport, Replay, Sever
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import Incarnation, LogSegment, Reach
from tests.unit.job.graphs import graph, task

CHAIN = graph("ab", "bc", "cd")
A, B, C, D = CHAIN.tasks


def held_logs(plan: PhysicalPlan, which: TaskId, attempt: Attempt = Attempt(1, 2)) -> HeldLogs:  # noqa: B008 - frozen
    inputs = [InputChannel(i, c, plan.sender(c), 16) for i, c in enumerate(plan.inputs[which])]
    made = HeldLogs(plan, which, inputs)
    made.become(attempt)
    return made


def header(*delta: LogSegment, incomplete: tuple[int, ...] = ()) -> FrameHeader:
    return FrameHeader(0, FrameKind.LOG_ONLY, 0, 0, False, 0, 0, 0, 0, (), list(delta), incomplete=incomplete)


def log(number: int, *determinants: Determinant, incarnation: int = 0) -> LogSegment:
    return LogSegment(number, 0, 0, 0, len(determinants), encode(determinants), incarnation)


def asked(made: HeldLogs, *failed: TaskId) -> HeldLogsReport:
    return made.answer(7, Sever(3, [], [(which, Attempt(1, 9)) for which in failed], Complete(0)))


def test_logs_are_passed_on_within_the_depth_along_the_shortest_path() -> None:
    edges = ("ab", "bc", "cd", "ad")
    logs = {depth: shared_logs(graph(*edges, sharing_depth=depth), task("c"), task("d")) for depth in (0, 1, 2, -1)}
    assert logs == {0: set(), 1: {0, 2}, 2: {0, 1, 2}, -1: {0, 1, 2}}, (
        "d is one hop from a, whatever part of a's log c holds"
    )


def test_a_first_attempt_lacks_no_logs() -> None:
    made = held_logs(CHAIN, C, Attempt(1, 1))
    assert list(made.store.incomplete) == []
    assert asked(made, A).has_own_log


def test_a_replacement_lacks_its_log_until_the_replay_and_upstream_ones_until_its_inputs_open() -> None:
    made = held_logs(CHAIN, C)
    assert list(made.store.incomplete) == [0, 1, 2]
    assert not asked(made, B).has_own_log
    made.replay(Replay(1, [log(2, InputOrder(0, 1))], [], [], complete=[2]))
    assert list(made.store.incomplete) == [0, 1]
    assert asked(made, B).incomplete == {0: [0, 1]}
    made.take(0, header(log(1, Linger()), incomplete=(0, 1)))
    assert list(made.store.incomplete) == [0, 1], "who sends this is a replacement itself, and has opened nothing yet"
    made.take(0, header(log(0, Linger())))
    assert list(made.store.incomplete) == []
    assert asked(made, A, B).logs == [log(0, Linger()), log(1, Linger())]


def test_a_replacement_holds_the_upstream_logs_that_it_was_given() -> None:
    made = held_logs(CHAIN, C)
    made.replay(Replay(1, [log(2, InputOrder(0, 1))], [], [], [log(1, Linger())], complete=[1, 2], needs={0: 5}))
    answer = asked(made, B)
    assert (answer.logs, answer.incomplete, answer.replayed, answer.needs) == (
        [log(1, Linger())],
        {0: [0]},
        [0],
        {0: 5},
    )


def test_received_logs_are_reported_by_input_before_any_frame_or_log_of_the_sender_has_come() -> None:
    made = held_logs(CHAIN, D, Attempt(1, 1))
    assert asked(made, A, B, C).logs_received == {}
    made.take(0, header(log(1, InputOrder(0, 1))))
    answer = asked(made, A, B, C)
    assert (answer.depends, answer.logs_received) == ([], {0: [1]})


def test_a_sender_that_lacks_logs_removes_none_from_its_receiver() -> None:
    made = held_logs(CHAIN, C, Attempt(1, 1))
    made.take(0, header(incomplete=(0, 1)))
    assert asked(made, A).incomplete == {}


def test_a_completed_checkpoint_clears_the_logs_that_were_lacking_before_it() -> None:
    made = held_logs(CHAIN, C)
    made.replay(Replay(1, [log(2, InputOrder(0, 1))], [], [], complete=[2], needs={0: 5}))
    made.complete()
    answer = asked(made, A)
    assert (answer.incomplete, answer.replayed, answer.needs, made.store.incomplete) == ({}, [], {}, ())


def test_the_ends_of_logs_upstream_of_the_failed_tasks_are_reported() -> None:
    made = held_logs(CHAIN, D, Attempt(1, 1))
    made.take(0, header(log(0, Linger(), Linger()), log(1, Linger()), log(2, Linger())))
    assert asked(made, C).ends == {0: 2, 1: 1}
    assert asked(made, B, C).ends == {0: 2}


def test_a_log_of_a_task_that_restarted_without_log_voids_the_old_one() -> None:
    made = held_logs(CHAIN, D, Attempt(1, 1))
    made.take(0, header(log(1, Linger(), Linger()), log(2, Linger())))
    made.take(0, header(log(1, InputOrder(0, 1), incarnation=1)))
    made.take(0, header(log(1, Linger(), Linger())))
    assert made.store.of(1) == [log(1, InputOrder(0, 1), incarnation=1)]
    assert made.store.of(2) == [log(2, Linger())]


def test_a_task_that_restarted_without_log_writes_segments_of_its_new_incarnation() -> None:
    made = held_logs(CHAIN, B)
    made.replay(Replay(1, [], [], [], complete=[0, 1, 2, 3], incarnation=Incarnation(2)))
    made.produced(log(1, Linger()))
    assert made.store.of(1) == [log(1, Linger(), incarnation=2)]


def test_a_receiver_reports_once_to_its_senders_which_upstream_logs_it_has_from_others() -> None:
    plan = graph("ab", "ac", "bd", "cd")
    made = held_logs(plan, task("d"), Attempt(1, 1))
    assert made.unacknowledged(0) == []
    made.take(0, header(log(0, Linger(), Linger()), log(1, Linger())))
    assert made.unacknowledged(1) == [Reach(0, 0, 2)], "the log of b comes from nobody else"
    assert made.unacknowledged(1) == []
    made.take(1, header())
    assert made.unacknowledged(1) == [Reach(0, 0, 2)], "a new connection knows nothing"
