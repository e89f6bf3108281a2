from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from clonos_py.causal.determinants import (
    Abort,
    FrameBatch,
    InputOrder,
    Linger,
    SourceEnd,
    SourceRead,
    TimerFired,
    Trigger,
)
from clonos_py.causal.log import PENDING_MAX
from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.model.errors import EndedError, ProtocolError, SourceError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.purposes import Purpose
from clonos_py.model.segments import LogSegment
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.process.contract import (
    AbortRequest,
    Begin,
    ChannelLimits,
    Deliver,
    FramesTaken,
    GoOn,
    MayProduce,
    Observed,
    Produced,
    Renumber,
    RestoreState,
    SnapshotTaken,
    StateChanged,
    TaskState,
    TriggerRequest,
)
from tests.machines import task_machine
from tests.unit.task.given import Given
from tests.unit.task.plans import DOWN, MIDDLE, UP, Counting, Outside, SeenToTheEnd, barrier, data, end, keys, three

TWO_UP = three((2, 1, 1))
MERGING = three(merge_rows=3)


class Run(Given):
    """A task that the test steps."""

    def __init__(
        self,
        plan: PhysicalPlan = TWO_UP,
        which: TaskId = MIDDLE,
        log: Sequence[LogSegment] = (),
        aborted: Any = (),
        linger_us: int = 100,
        limits: ChannelLimits = ChannelLimits(),  # noqa: B008 - frozen
    ) -> None:
        super().__init__()
        self.outside = Outside()
        self.machine = task_machine(plan, which, self.outside, linger_us=linger_us, limits=limits)
        self.machine.offer(Begin(Attempt(1, 1), log, aborted))

    def offer(self, *items: Any) -> Run:
        for item in items:
            self.machine.offer(item)
        return self

    def go(self, now_us: int = 0) -> int:
        """Steps until there is nothing to do; returns when there will be."""
        wake_us, self.outside.time_us = None, now_us
        while wake_us is None:
            outcome = self.machine.step(now_us)
            self.events += outcome.events
            wake_us = outcome.wake_us
        return wake_us

    @property
    def frames(self) -> list[Frame]:
        return [frame for event in self.of(Produced) for _, frame in event.frames]

    @property
    def keys(self) -> list[list[int]]:
        return [keys(frame.rows) for frame in self.frames]


def test_arrivals_are_logged_in_the_order_they_were_taken() -> None:
    run = Run().offer(Deliver(1, data(0, 1, 2, 3)), Deliver(0, data(0, 4, 5, 6)))
    run.go()
    assert run.log == [InputOrder(0, 1), InputOrder(1, 1)]
    assert run.keys == [[4, 5, 6], [1, 2, 3]]


def test_a_replay_takes_frames_in_the_order_of_the_log_whenever_they_come() -> None:
    before = Run()
    before.offer(Deliver(1, data(0, 1, 2, 3))).go()
    before.offer(Deliver(0, data(0, 4, 5, 6))).go()
    after = Run(log=before.segments).offer(Deliver(0, data(0, 4, 5, 6)))
    assert after.go() == MAX_TIME
    assert after.keys == [], "in the log, input 1 comes first"
    after.offer(Deliver(1, data(0, 1, 2, 3))).go()
    assert after.keys == before.keys
    assert after.machine.state is TaskState.RUNNING


def test_waiting_frames_are_merged_into_one_event_up_to_the_row_limit() -> None:
    run = Run(plan=MERGING).offer(*(Deliver(0, data(seq, seq)) for seq in range(4)))
    run.go()
    assert run.log == [FrameBatch(0, 3), InputOrder(0, 1)]
    assert run.keys == [[0, 1, 2]]
    assert [took.next_seq for took in run.of(FramesTaken)] == [3, 4]


def test_only_data_frames_are_merged() -> None:
    run = Run(plan=MERGING).offer(Deliver(0, data(0, 1)), Deliver(0, barrier(1, 1)), Deliver(0, data(2, 2)))
    run.go()
    assert run.log == [InputOrder(0, 2), InputOrder(0, 1)]


def test_a_replay_waits_for_all_frames_of_a_merged_event() -> None:
    before = Run(plan=MERGING).offer(*(Deliver(0, data(seq, seq)) for seq in range(3)))
    before.go()
    after = Run(plan=MERGING, log=before.segments).offer(Deliver(0, data(0, 0)), Deliver(0, data(1, 1)))
    after.go()
    assert after.frames == []
    after.offer(Deliver(0, data(2, 2))).go()
    assert after.keys == before.keys


def test_a_replay_logs_nothing_and_reports_its_end() -> None:
    before = Run().offer(Deliver(0, data(0, 1, 2, 3)))
    before.go()
    after = Run(log=before.segments).offer(Deliver(0, data(0, 1, 2, 3)))
    after.go()
    assert after.log == []
    assert after.of(StateChanged) == [StateChanged(TaskState.REPLAYING), StateChanged(TaskState.RUNNING, 3)]


def test_all_counts_are_reported_before_the_end_of_a_task() -> None:
    up, middle, down = three().vertices
    counting = replace(middle, operators=(replace(middle.operators[0], factory=SeenToTheEnd),))
    run = Run(plan=replace(three(), vertices=(up, counting, down))).offer(Deliver(0, data(0, 1)), Deliver(0, end(1)))
    run.go()
    last = run.events.index(StateChanged(TaskState.FINISHED, 0))
    counted = [event.counts for event in run.events[:last] if isinstance(event, Observed) and event.counts]
    assert counted[-1] == {"seen.keys": 1, "seen.ends": 1}
    assert [event.counts for event in run.of(Observed) if event.counts] == counted


def test_without_a_log_a_task_runs_at_once() -> None:
    run = Run()
    run.go()
    assert [event.state for event in run.of(StateChanged)] == [TaskState.REPLAYING, TaskState.RUNNING]


def test_determinants_come_with_the_frames_that_depend_on_them() -> None:
    run = Run().offer(Deliver(0, data(0, 1, 2, 3)))
    run.go()
    ((log, frames),) = [(event.log, event.frames) for event in run.of(Produced)]
    assert log is not None
    assert len(frames) == 1


def test_many_determinants_are_handed_over_without_a_frame() -> None:
    run = Run(plan=three((2, 1, 1), frame_rows=100_000))
    for seq in range(PENDING_MAX):
        run.offer(Deliver(seq % 2, data(seq // 2, 1))).go()
    (produced,) = run.of(Produced)
    assert (produced.log.count if produced.log else 0, produced.frames) == (PENDING_MAX, [])


def test_the_log_of_a_sink_is_counted_but_not_kept() -> None:
    """A sink's determinants have no receiver to hold them; they are counted all the same."""
    run = Run(plan=three(), which=DOWN).offer(Deliver(0, barrier(0, 1)))
    run.go()
    assert run.segments == []
    assert run.machine._writer.offset == 1


def test_the_linger_time_cuts_small_frames_and_is_logged() -> None:
    run = Run().offer(Deliver(0, data(0, 1)))
    assert run.go(now_us=1_000) == 1_100
    assert run.keys == []
    run.go(now_us=1_100)
    assert run.keys == [[1]]
    assert run.log == [InputOrder(0, 1), Linger()]


EARLY = ChannelLimits(cuts_early=True)


def test_a_task_without_work_cuts_before_the_linger_time_is_over_and_logs_it() -> None:
    run = Run(linger_us=10_000, limits=EARLY).offer(Deliver(0, data(0, 1)), Deliver(0, data(1, 2)))
    assert run.go(now_us=1_000) == MAX_TIME
    assert run.keys == [[1, 2]], "it had work until both were taken"
    assert run.log == [InputOrder(0, 2), Linger()]
    again = Run(log=run.segments).offer(Deliver(0, data(0, 1)), Deliver(0, data(1, 2)))
    again.go()
    assert again.keys == run.keys


def test_early_cuts_are_apart_but_no_row_waits_longer_than_the_linger_time() -> None:
    run = Run(linger_us=10_000, limits=EARLY).offer(Deliver(0, data(0, 1)))
    run.go(now_us=1_000)
    assert run.offer(Deliver(0, data(1, 2))).go(now_us=1_200) == 2_000
    assert run.keys == [[1]]
    run.go(now_us=2_000)
    assert run.keys == [[1], [2]]
    hasty = Run(linger_us=100, limits=EARLY).offer(Deliver(0, data(0, 1)))
    hasty.go(now_us=1_000)
    assert hasty.offer(Deliver(0, data(1, 2))).go(now_us=1_200) == 1_300


def test_a_task_whose_receivers_are_behind_does_not_cut_early() -> None:
    run = Run(linger_us=10_000, limits=EARLY).offer(Deliver(0, data(0, 1)))
    assert run.machine.step(1_000).wake_us is None
    assert run.offer(MayProduce(False)).go(now_us=1_000) == 11_000
    assert run.keys == []
    run.offer(MayProduce(True)).go(now_us=1_500)
    assert run.keys == [[1]]


def test_a_replay_cuts_frames_as_logged_at_any_time() -> None:
    before = Run().offer(Deliver(0, data(0, 1)))
    before.go(now_us=1_000)
    before.go(now_us=1_100)
    before.offer(Deliver(0, data(1, 2))).go(now_us=1_150)
    after = Run(log=before.segments).offer(Deliver(0, data(0, 1)), Deliver(0, data(1, 2)))
    after.go(now_us=999_999)
    assert after.keys == [[1]]


def test_timers_fire_when_due_and_at_the_same_place_of_a_replay() -> None:
    before = Run().offer(Deliver(0, data(0, -50, 1, 2)))
    assert before.go(now_us=10) == 50
    before.go(now_us=60)
    before.go(now_us=200)
    assert before.log == [InputOrder(0, 1), TimerFired(0, 50), Linger()]
    after = Run(log=before.segments).offer(Deliver(0, data(0, -50, 1, 2)))
    after.go(now_us=0)
    assert after.keys == before.keys == [[-50, 1, 2], [50]]


def test_a_timer_that_is_pending_at_the_end_of_the_input_never_fires() -> None:
    run = Run(plan=three()).offer(Deliver(0, data(0, -50, 1)), Deliver(0, end(1)))
    assert run.go(now_us=10) == MAX_TIME, "nothing is waited for"
    run.go(now_us=60)
    assert [frame.kind for frame in run.frames] == [FrameKind.DATA, FrameKind.END]
    assert TimerFired(0, 50) not in run.log


def test_a_task_that_is_held_back_takes_no_frame() -> None:
    run = Run().offer(MayProduce(False), Deliver(0, data(0, 1, 2, 3)))
    run.go()
    assert run.keys == []
    run.offer(MayProduce(True)).go()
    assert run.keys == [[1, 2, 3]]


# ---- checkpoints


def test_a_snapshot_is_taken_at_the_last_barrier_and_the_barrier_is_passed_on() -> None:
    run = Run().offer(Deliver(0, data(0, 1)), Deliver(0, barrier(1, 1)), Deliver(0, data(2, 2)))
    run.offer(Deliver(1, data(0, 3))).go()
    assert run.of(SnapshotTaken) == []
    run.offer(Deliver(1, barrier(1, 1))).go()
    (snapped,) = run.of(SnapshotTaken)
    assert snapped.snapshot.operators["seen"].values["keys"] == [1, 3], "2 came behind a barrier"
    assert [(f.kind, keys(f.rows)) for f in run.frames] == [(FrameKind.DATA, [1, 3]), (FrameKind.BARRIER, [])]
    assert [p.next_seq for p in snapped.progress.inputs] == [2, 2]
    assert snapped.persist


def test_an_aborted_checkpoint_unblocks_inputs_and_its_late_barriers_are_ignored() -> None:
    run = Run().offer(Deliver(0, barrier(0, 1)), Deliver(0, data(1, 1, 2, 3)))
    run.go()
    assert run.keys == []
    run.offer(AbortRequest(1)).go()
    assert run.keys == [[1, 2, 3]]
    run.offer(Deliver(1, barrier(0, 1)), Deliver(1, data(1, 4, 5, 6))).go()
    assert run.of(SnapshotTaken) == []
    assert run.log == [InputOrder(0, 1), Abort(1), InputOrder(0, 1), InputOrder(1, 2)]


def test_the_next_checkpoint_aligns_after_an_aborted_one() -> None:
    run = Run().offer(Deliver(0, barrier(0, 1)), AbortRequest(1))
    run.offer(Deliver(0, barrier(1, 2)), Deliver(1, barrier(0, 2))).go()
    assert [snapped.snapshot.checkpoint for snapped in run.of(SnapshotTaken)] == [2]


def test_checkpoints_aborted_while_a_task_was_down_are_void_for_its_replacement() -> None:
    run = Run(aborted=[1]).offer(Deliver(0, barrier(0, 1)), Deliver(0, data(1, 1, 2, 3)))
    run.go()
    assert run.keys == [[1, 2, 3]]


def test_a_snapshot_in_a_replay_is_not_persisted_again() -> None:
    frames = [Deliver(0, barrier(0, 1)), Deliver(1, barrier(0, 1)), Deliver(0, data(1, 1, 2, 3))]
    before = Run().offer(*frames)
    before.go()
    after = Run(log=before.segments).offer(*frames)
    after.go()
    assert [snapped.persist for snapped in after.of(SnapshotTaken)] == [False]


def test_a_task_continues_from_its_snapshot() -> None:
    before = Run().offer(Deliver(0, data(0, -500)), Deliver(0, barrier(1, 1)), Deliver(1, barrier(0, 1)))
    before.go()
    (snapped,) = before.of(SnapshotTaken)
    operators = {name: [state] for name, state in snapped.snapshot.operators.items()}
    machine = task_machine(TWO_UP, MIDDLE, Outside())
    machine.offer(RestoreState(1, operators, snapped.progress))
    machine.offer(Begin(Attempt(1, 2), [], []))
    machine.offer(Deliver(0, data(2, 7, 8, 9)))
    (produced,) = [event for event in machine.step(0).events if isinstance(event, Produced)]
    assert [frame.seq for _, frame in produced.frames] == [2], "one of data and the barrier came before"
    assert produced.log is not None
    assert (produced.log.start, produced.log.epoch) == (snapped.progress.log_offset, 1)
    assert machine.step(0).wake_us == 500, "timers are restored"


def counted(events: Sequence[Any]) -> dict[str, int]:
    """The last counters of the task's operators."""
    return dict([event.counts for event in events if isinstance(event, Observed) and event.counts][-1])


def test_rows_that_a_replacement_replays_are_counted_once() -> None:
    plan = three()
    before = Run(plan=plan).offer(Deliver(0, data(0, 1, 2)), Deliver(0, barrier(1, 1)), Deliver(0, data(2, 3)))
    before.go()
    (snapped,) = before.of(SnapshotTaken)
    assert counted(before.events) == {"seen.keys": 3}
    after = task_machine(plan, MIDDLE, Outside())
    after.offer(RestoreState(1, {}, snapped.progress))
    after.offer(Begin(Attempt(1, 2), before.segments[-1:], []))
    assert counted(after.step(0).events) == {"seen.keys": 2}
    after.offer(Deliver(0, data(2, 3)))
    assert counted(after.step(0).events) == {"seen.keys": 3}


def test_rows_are_reported_with_the_watermark_at_their_arrival() -> None:
    run = Run(plan=three()).offer(Deliver(0, data(0, 1, watermark=70)), Deliver(0, data(1, 2, watermark=80)))
    run.go()
    assert [event.watermark for event in run.of(Observed) if event.events] == [MIN_TIME, 70]


def test_state_cannot_be_replaced_after_the_task_has_begun() -> None:
    with pytest.raises(ProtocolError, match="RestoreState cannot happen then: only a standby takes state"):
        Run().offer(RestoreState(1, {}, None))


# ---- the source, and the end


def test_reads_of_a_source_are_logged_and_its_end_ends_the_task() -> None:
    run = Run(three(), UP)
    run.go()
    assert run.log == [SourceRead(0, 0, 2, 0), SourceRead(0, 2, 4, 2, last=True), SourceEnd()]
    assert [frame.kind for frame in run.frames][-1] is FrameKind.END
    assert run.machine.state is TaskState.FINISHED


def test_a_replay_reads_the_same_rows() -> None:
    before = Run(three(), UP)
    before.go()
    after = Run(three(), UP, before.segments)
    after.go()
    assert after.keys == before.keys


def test_a_source_with_other_content_in_a_replay_is_an_error() -> None:
    before = Run(three(), UP)
    before.go()
    with pytest.raises(SourceError, match=r"'up' gave other content for partition 0 \[0, 2\)"):
        Run(three(source=Counting(shift=1)), UP, before.segments).go()


def test_a_trigger_is_executed_once_and_logged() -> None:
    run = Run(three(), UP).offer(TriggerRequest(1), TriggerRequest(1))
    run.go()
    assert run.log.count(Trigger(1)) == 1
    assert [snapped.snapshot.checkpoint for snapped in run.of(SnapshotTaken)] == [1]


@pytest.mark.parametrize("goes_on", [AbortRequest(1), GoOn()])
def test_behind_the_last_snapshot_a_source_reads_nothing_until_it_is_told_to_go_on(
    goes_on: AbortRequest | GoOn,
) -> None:
    run = Run(three(), UP).offer(TriggerRequest(1, Purpose.FINAL))
    assert run.go() == MAX_TIME
    assert [frame.kind for frame in run.frames] == [FrameKind.LAST_BARRIER]
    run.offer(goes_on).go()
    assert len(run.frames) > 1


def test_an_aborted_last_checkpoint_holds_up_nobody_whose_source_hears_of_it_late() -> None:
    run = Run(three(), UP).offer(AbortRequest(1), TriggerRequest(1, Purpose.FINAL))
    run.go()
    assert FrameKind.DATA in [frame.kind for frame in run.frames]


def test_behind_the_last_barrier_a_task_takes_nothing_and_fires_no_timer() -> None:
    last = replace(barrier(1, 1), kind=FrameKind.LAST_BARRIER)
    run = Run(three()).offer(Deliver(0, data(0, 1)), Deliver(0, last), Deliver(0, data(2, 2)))
    assert run.go() == MAX_TIME, "what lingers does not matter any more"
    assert [snapped.snapshot.checkpoint for snapped in run.of(SnapshotTaken)] == [1]
    assert [taken.next_seq for taken in run.of(FramesTaken)] == [1, 2]
    assert [frame.kind for frame in run.frames][-1] is FrameKind.LAST_BARRIER
    run.offer(AbortRequest(1)).go()
    assert run.of(FramesTaken)[-1].next_seq == 3


def test_a_replay_up_to_an_aborted_last_barrier_goes_on_behind_it() -> None:
    last = replace(barrier(1, 1), kind=FrameKind.LAST_BARRIER)
    frames = (Deliver(0, data(0, 1)), Deliver(0, last), Deliver(0, data(2, 2)))
    before = Run(three()).offer(*frames)
    before.go()
    after = Run(three(), log=before.segments, aborted=[1]).offer(*frames)
    after.go()
    assert after.of(FramesTaken)[-1].next_seq == 3


def test_a_finished_task_takes_part_in_checkpoints() -> None:
    run = Run(three(), UP)
    run.go()
    run.offer(TriggerRequest(1)).go()
    assert [snapped.progress.finished for snapped in run.of(SnapshotTaken)] == [True]


def test_a_task_ends_with_the_last_of_its_inputs() -> None:
    run = Run().offer(Deliver(0, end(0)))
    run.go()
    assert run.of(StateChanged)[-1].state is TaskState.RUNNING
    run.offer(Deliver(1, end(0))).go()
    assert run.of(StateChanged)[-1].state is TaskState.FINISHED
    assert [frame.kind for frame in run.frames if frame.kind is FrameKind.END] == [FrameKind.END]


def test_at_depth_0_no_determinants_are_logged() -> None:
    run = Run(three((2, 1, 1), sharing_depth=0)).offer(Deliver(0, data(0, 1, 2, 3)))
    run.go()
    assert run.segments == []
    assert run.keys == [[1, 2, 3]]


def test_a_finished_task_fails_when_a_sender_restarts_without_log_before_its_end() -> None:
    run = Run(three()).offer(Deliver(0, data(0, 1)), Deliver(0, end(1)))
    run.go()
    run.go()
    assert run.machine.state is TaskState.FINISHED
    run.offer(Renumber(0, 7, ended=True))
    with pytest.raises(EndedError, match="had ended when a task before it restarted"):
        run.offer(Renumber(0, 0))


def test_rows_of_a_sender_that_restarted_without_log_are_taken_although_its_channel_had_ended() -> None:
    run = Run().offer(Deliver(0, data(0, 1)), Deliver(0, end(1)))
    run.go()
    run.offer(Renumber(0, 0), Deliver(0, data(0, 1)))
    run.go()
    assert run.of(FramesTaken)[-1] == FramesTaken(0, 1, restarts=1)
    assert run.machine.state is TaskState.RUNNING
