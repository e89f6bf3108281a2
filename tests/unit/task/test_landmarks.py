"""A task without state restarts at a landmark of its log, and regenerates frames from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
import pytest

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import Landmark, SourceRead, SourceReopened, Trigger
from clonos_py.channel.frames import Frame
from clonos_py.model.errors import DivergenceError, ProtocolError
from clonos_py.model.ids import Attempt
from clonos_py.model.operators import Read, Source
from clonos_py.model.plan import Partitioning, PhysicalPlan
from clonos_py.model.segments import LogSegment
from clonos_py.process.contract import (
    Begin,
    Observed,
    Produced,
    Regenerate,
    RegenerateBelow,
    Regenerated,
    RestoreState,
    Resumed,
    SnapshotTaken,
    TriggerRequest,
)
from tests.machines import task_machine
from tests.unit.task.given import Given
from tests.unit.task.plans import UP, Counting, Outside, keys, three

INTERVAL_US = 50_000


def plan(source: Callable[[], Source] = partial(Counting, 24)) -> PhysicalPlan:  # noqa: B008 - it has no state
    """Two rows a read, dealt to two receivers in turn, four rows to a frame."""
    made = three((1, 2, 1), Partitioning.REBALANCE)
    up, *other_events = made.vertices
    assert up.source is not None
    given = replace(up.source, factory=source)
    return replace(made, vertices=(replace(up, source=given, regenerates=True), *other_events))


class Run(Given):
    """A source task that the test steps at given times."""

    def __init__(
        self,
        log: Sequence[LogSegment] = (),
        state: RestoreState | None = None,
        source: Callable[[], Source] = partial(Counting, 24),  # noqa: B008 - it has no state
        name: str = "",
        at_landmark: bool = True,
    ) -> None:
        super().__init__()
        self.machine = task_machine(plan(source), UP, Outside(INTERVAL_US), linger_us=10 * INTERVAL_US)
        if state is not None:
            self.machine.offer(state)
        self.machine.offer(Begin(Attempt(1, 1), log, (), at_landmark=at_landmark, run=name))

    def step(self, now_us: int = 0, times: int = 1) -> Run:
        for _ in range(times):
            self.events += self.machine.step(now_us).events
        return self

    @property
    def frames(self) -> list[tuple[int, Frame]]:
        return [cut for event in self.of(Produced) for cut in event.frames]

    def of_output(self, output: int) -> list[Frame]:
        return [replace(frame, marker_us=0) for index, frame in self.frames if index == output]

    def reads(self, count: int, now_us: int = 0) -> Run:
        return self.step(now_us, count)


def first_run() -> Run:
    """A run with a landmark, two reads, a landmark, one read."""
    return Run().step().reads(2, 1).step(INTERVAL_US).reads(1, INTERVAL_US + 1)


def landmarks_of(run: Run) -> list[Landmark]:
    return [determinant for determinant in run.log if isinstance(determinant, Landmark)]


def snapshot_of(run: Run) -> RestoreState:
    run.machine.offer(TriggerRequest(1))
    (snapped,) = run.step(INTERVAL_US + 1, 2).of(SnapshotTaken)
    return RestoreState(1, {n: [s] for n, s in snapped.snapshot.operators.items()}, snapped.progress)


def contents(frames: Sequence[Frame]) -> list[tuple[int, list[int]]]:
    return [(frame.seq, keys(frame.rows)) for frame in frames]


def test_a_landmark_is_logged_first_and_then_once_in_every_interval_with_a_read() -> None:
    run = first_run().step(3 * INTERVAL_US)
    assert [type(d) for d in run.log] == [Landmark, SourceRead, SourceRead, Landmark, SourceRead, Landmark]


def test_pending_rows_are_cut_at_a_landmark() -> None:
    run = Run().step().reads(1)
    assert run.frames == [], "two rows of four"
    run.step(INTERVAL_US)
    assert contents(run.of_output(0)) == [(0, [0, 1])]


def test_every_epoch_begins_with_a_landmark() -> None:
    run = Run().step().reads(1)
    run.machine.offer(TriggerRequest(1))
    run.step(1, 2)
    assert [type(d) for d in run.log] == [Landmark, SourceRead, Trigger, Landmark]
    assert run.segments[-1].epoch == 1


def test_a_run_that_resumes_begins_with_a_landmark_too() -> None:
    """Every frame after a landmark can be regenerated, also one that says that a source is no longer idle."""
    run = Run(state=snapshot_of(Run(name="monday").reads(2)), name="tuesday").step(times=2)
    assert [type(d) for d in run.log] == [Landmark, SourceReopened]


def test_a_replacement_starts_at_the_last_landmark_and_reads_only_what_came_after() -> None:
    before = first_run()
    after = Run(before.segments)
    assert after.step(INTERVAL_US, 2).of(Resumed) == [Resumed([1, 1])]
    assert sum(event.events for event in after.of(Observed)) == 2, "rows of one read"
    before.reads(3, INTERVAL_US + 2).step(INTERVAL_US + 3, 2)
    after.reads(3, INTERVAL_US + 2).step(INTERVAL_US + 3, 2)
    for output in (0, 1):
        assert contents(after.of_output(output)) == contents(before.of_output(output)[1:])


def test_a_replacement_decodes_only_the_log_from_the_last_landmark_on() -> None:
    """The log since a checkpoint may be long."""
    segments = first_run().segments
    (last,) = [number for number, found in enumerate(segments) if found.start == 3]
    damaged = [msgspec.structs.replace(found, payload=b"?") for found in segments[:last]]
    assert damaged
    assert Run([*damaged, *segments[last:]]).of(Resumed) == Run(segments).of(Resumed)


def test_frames_cut_at_a_landmark_leave_with_it() -> None:
    """Without the landmark a replacement would not cut them."""
    (cut,) = [produced for produced in Run().step().reads(1).step(INTERVAL_US).of(Produced) if produced.frames]
    assert cut.log is not None
    assert [type(determinant) for determinant in LogCodec().load(cut.log)] == [Landmark]


def test_a_replacement_without_a_log_starts_at_its_checkpoint() -> None:
    state = snapshot_of(first_run())
    after = Run(state=state).step(INTERVAL_US + 2, 2)
    assert after.of(Resumed) == []
    assert [type(d) for d in after.log] == [Landmark, SourceRead]


def test_a_landmark_reached_in_another_state_is_a_divergence() -> None:
    reached = first_run().machine._landmarks
    assert reached is not None
    with pytest.raises(DivergenceError, match="with another state"):
        reached.compare(landmarks_of(Run().step())[0], 0, False, 0)


class Rereading(Counting):
    """Its state says how often it was read again. ``padding``: characters that the state has in addition."""

    def __init__(self, padding: int = 0) -> None:
        super().__init__(24)
        self._again, self._padding = 0, "x" * padding

    def reread(self, partition: int, start: int, stop: int) -> Read:
        self._again += 1
        return super().reread(partition, start, stop)

    def snapshot(self) -> list[Any]:
        return [self._again, self._padding]

    def restore(self, saved: list[Any]) -> None:
        self._again, self._padding = saved


class Logged(Counting):
    logs_rows = True


def test_a_replacement_restores_the_further_state_of_its_source() -> None:
    before = Run(source=partial(Rereading, 3)).step().reads(1)
    after = Run(before.segments, source=Rereading).step(INTERVAL_US, 2).step(2 * INTERVAL_US)
    states = [after.machine._snapshotting.state_at(landmark).source for landmark in landmarks_of(after)]
    assert [state["source"] for state in states] == [[1, "xxx"]]


def test_frames_are_regenerated_although_the_source_is_in_another_state() -> None:
    run = Run(source=Rereading).step().reads(2, 1).step(INTERVAL_US).reads(6, INTERVAL_US + 2).step(3 * INTERVAL_US)
    sent = run.of_output(0)
    run.machine.offer(regenerate(run.segments, 0, sent[-1].seq + 1))
    run.step(3 * INTERVAL_US, 12)
    assert made_again(run) == sent


def test_a_replay_goes_on_in_the_run_in_which_a_landmark_was_logged() -> None:
    """A causal sink's output has the log of a run that was lost before its first checkpoint; another run goes on."""
    before = Run(name="monday").step().reads(1)
    after = Run(before.segments, name="tuesday", at_landmark=False).step(times=3)
    assert [type(d) for d in after.log[-1:]] == [SourceReopened]
    assert after.log[-1] == SourceReopened("tuesday")


def test_large_landmarks_are_further_apart() -> None:
    run = Run(source=partial(Rereading, 10_000)).step().reads(1)
    run.step(INTERVAL_US).reads(1, INTERVAL_US)
    assert len(landmarks_of(run)) == 1
    run.step(4 * INTERVAL_US)
    assert len(landmarks_of(run)) == 2, "150 ms after the first one at least"


def test_a_source_whose_rows_are_logged_has_no_landmarks() -> None:
    assert not landmarks_of(Run(source=Logged).step(0, 3))


def regenerate(log: Sequence[LogSegment], start: int, stop: int, below: int = 100, output: int = 0) -> Regenerate:
    return Regenerate(output, 7, start, stop, below, log)


def made_again(run: Run) -> list[Frame]:
    return [frame for event in run.of(Regenerated) for frame in event.frames]


def test_frames_of_one_output_are_regenerated_with_the_same_content() -> None:
    run = first_run().reads(6, INTERVAL_US + 2).step(3 * INTERVAL_US)
    sent = run.of_output(0)
    assert len(sent) > 2
    run.machine.offer(regenerate(run.segments, 0, sent[-1].seq + 1))
    run.step(3 * INTERVAL_US, 12)
    assert made_again(run) == sent
    assert {event.run for event in run.of(Regenerated)} == {7}


def test_regeneration_starts_at_the_last_landmark_before_the_frames() -> None:
    run = first_run().reads(6, INTERVAL_US + 2).step(3 * INTERVAL_US)
    sent = run.of_output(0)
    run.machine.offer(regenerate(run.segments, 1, sent[-1].seq + 1))
    before = len(run.of(Regenerated))
    run.step(3 * INTERVAL_US, 12)
    assert made_again(run) == sent[1:]
    assert len(run.of(Regenerated)) - before < len(run.log), "not from the beginning"


def test_regeneration_stops_at_the_given_bound() -> None:
    run = first_run().reads(6, INTERVAL_US + 2).step(3 * INTERVAL_US)
    last = run.of_output(0)[-1].seq
    run.machine.offer(regenerate(run.segments, 0, last + 1, below=1))
    run.step(3 * INTERVAL_US, 12)
    assert [frame.seq for frame in made_again(run)] == [0]
    run.machine.offer(RegenerateBelow(0, 100))
    run.step(3 * INTERVAL_US, 12)
    assert [frame.seq for frame in made_again(run)] == list(range(last + 1))


def test_the_task_goes_on_reading_during_a_regeneration() -> None:
    run = first_run()
    run.machine.offer(regenerate(run.segments, 0, 1))
    reads = len([d for d in run.log if isinstance(d, SourceRead)])
    run.step(INTERVAL_US + 2)
    assert len([d for d in run.log if isinstance(d, SourceRead)]) == reads + 1
    assert run.of(Regenerated)


def test_regeneration_of_frames_that_are_not_in_the_log_is_an_error() -> None:
    run = first_run()
    run.machine.offer(regenerate(run.segments, 0, 50))
    with pytest.raises(ProtocolError, match="cannot be regenerated: the log ends before it"):
        run.step(INTERVAL_US + 2, 20)
