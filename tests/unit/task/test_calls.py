"""Asynchronous calls: their completions are events of the log, and pending calls are in the snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import Completion, Determinant, InputOrder
from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.model.calls import Answered, ServiceCall
from clonos_py.model.errors import DivergenceError
from clonos_py.model.ids import Attempt
from clonos_py.model.operators import EventTime, Operator, Sink
from clonos_py.model.plan import Edge, OperatorPlan, Partitioning, PhysicalPlan, SourcePlan, Vertex
from clonos_py.model.segments import LogSegment
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MIN_TIME
from clonos_py.process.contract import Begin, Deliver, Produced, RestoreState, SnapshotTaken, TaskState
from clonos_py.settings.protocols import ALIGNED
from tests.machines import task_machine
from tests.unit.task.plans import MIDDLE, SCHEMA, Counting, Outside, barrier, data, end, keys, rows


class Ask(Operator):
    """Calls for every key, by its number, and emits the answer. Two keys are its limit."""

    def open(self, ctx: Any, out: Any) -> None:
        super().open(ctx, out)
        self._asked: list[int] = []
        self._marks: list[int] = []

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        for key in keys(rows):
            self._asked.append(key)
            self.ctx.start_call(key, "oracle", key * 10)
        self._hold()

    def on_answer(self, number: int, value: Any, error: str | None) -> None:
        self._asked.remove(number)
        self.out.emit(rows(value if error is None else -1))
        self._hold()

    def _hold(self) -> None:
        self.ctx.hold(bool(self._asked), len(self._asked) >= 2)

    def on_watermark(self, watermark: int) -> int:
        self._marks.append(watermark)
        return self.released()

    def released(self) -> int:
        return self._marks[-1] if self._marks and not self._asked else MIN_TIME

    def snapshot(self) -> OperatorState:
        return OperatorState(values={"asked": list(self._asked), "marks": list(self._marks)})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        for part in parts:
            self._asked, self._marks = list(part.values["asked"]), list(part.values["marks"])
        for key in self._asked:
            self.ctx.start_call(key, "oracle", key * 10)
        self._hold()


class Last(Operator):
    """Emits a row when all input has ended."""

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self.out.emit(rows)

    def on_end(self) -> None:
        self.out.emit(rows(999))


def plan() -> PhysicalPlan:
    from clonos_py.model.plan import Wire

    source = SourcePlan("up", Counting, (SCHEMA,), EventTime((None,)))
    operators = (
        OperatorPlan("ask", "map", Ask, (SCHEMA,), stateful=True),
        OperatorPlan("last", "map", Last, (SCHEMA,)),
    )
    vertices = (
        Vertex("up", 1, source, (), ()),
        Vertex("middle", 1, None, operators, (Wire(0, 0, 1, 0),)),
        Vertex("down", 1, None, (OperatorPlan("down", "sink", partial(Sink), (), sink=True),), ()),
    )
    edges = (
        Edge(0, "up", -1, 0, "middle", 0, 0, Partitioning.HASH, ("key",), SCHEMA, 4),
        Edge(1, "middle", 1, 0, "down", 0, 0, Partitioning.HASH, ("key",), SCHEMA, 1),
    )
    return PhysicalPlan("asking", vertices, edges, key_groups=16, protocol=ALIGNED)


class Run:
    """A task that the test steps, and whose calls it answers."""

    def __init__(self, log: Sequence[LogSegment] = (), state: SnapshotTaken | None = None) -> None:
        self.machine = task_machine(plan(), MIDDLE, Outside(), linger_us=100)
        self.events: list[Any] = []
        self.calls: list[ServiceCall] = []
        if state is not None:
            operators = {name: [found] for name, found in state.snapshot.operators.items()}
            self.machine.offer(RestoreState(1, operators, state.progress))
        self.machine.offer(Begin(Attempt(1, 1), log, ()))

    def go(self, *items: Any) -> Run:
        for item in items:
            self.machine.offer(item)
        while True:
            outcome = self.machine.step(0)
            self.events += outcome.events
            self.calls += outcome.calls
            if outcome.wake_us is not None:
                return self

    @property
    def segments(self) -> list[LogSegment]:
        return [e.log for e in self.events if isinstance(e, Produced) and e.log is not None]

    @property
    def log(self) -> list[Determinant]:
        codec = LogCodec()
        return [determinant for segment in self.segments for determinant in codec.load(segment)]

    @property
    def frames(self) -> list[Frame]:
        return [frame for e in self.events if isinstance(e, Produced) for _, frame in e.frames]

    @property
    def keys(self) -> list[int]:
        return [key for frame in self.frames for key in keys(frame.rows)]

    @property
    def asked(self) -> list[int]:
        return [call.number for call in self.calls]


def answer(number: int, value: int) -> Answered:
    return Answered(0, number, value)


def test_completions_are_logged_in_the_order_of_arrival() -> None:
    run = Run().go(Deliver(0, data(0, 1, 2)))
    assert run.calls == [ServiceCall(0, 1, "oracle", 10), ServiceCall(0, 2, "oracle", 20)]
    run.go(answer(2, 52), answer(1, 51))
    assert run.log == [InputOrder(0, 1), Completion(0, 2, 52), Completion(0, 1, 51)]
    assert run.keys == [52, 51]


def test_a_replay_completes_calls_as_logged_and_repeats_only_unanswered_ones() -> None:
    before = Run().go(Deliver(0, data(0, 1, 2))).go(answer(2, 52))
    after = Run(before.segments)
    after.go()
    assert after.calls == [], "the frame that caused the calls is not here yet"
    after.go(Deliver(0, data(0, 1, 2)))
    assert (after.keys, after.asked) == ([52], [1])
    assert after.machine.state is TaskState.RUNNING


def test_an_answer_to_no_pending_call_is_no_event() -> None:
    run = Run().go(Deliver(0, data(0, 1))).go(answer(1, 51), answer(1, 51), answer(7, 3))
    assert run.log == [InputOrder(0, 1), Completion(0, 1, 51)]


def test_a_replayed_completion_of_no_pending_call_is_a_divergence() -> None:
    before = Run().go(Deliver(0, data(0, 1))).go(answer(1, 51))
    with pytest.raises(DivergenceError, match="where no operator asks for it"):
        Run(before.segments).go(Deliver(0, data(0, 3)))


def test_a_failed_call_is_an_answer_live_and_in_a_replay() -> None:
    before = Run().go(Deliver(0, data(0, 1))).go(Answered(0, 1, None, "refused"))
    assert before.keys == [-1]
    assert Run(before.segments).go(Deliver(0, data(0, 1))).keys == [-1]


def test_a_task_whose_operator_is_at_its_limit_takes_no_frame() -> None:
    run = Run().go(Deliver(0, data(0, 1, 2)), Deliver(0, data(1, 3)))
    assert run.asked == [1, 2]
    run.go(answer(1, 51))
    assert run.asked == [1, 2, 3]


def test_pending_calls_are_in_the_snapshot_and_are_made_again_after_a_restart() -> None:
    before = Run().go(Deliver(0, data(0, 1)), Deliver(0, barrier(1, 1)))
    snapped = next(e for e in before.events if isinstance(e, SnapshotTaken))
    assert Run(state=snapped).go().asked == [1]
    before.go(answer(1, 51))
    after = Run([s for s in before.segments if s.epoch == 1], snapped).go()
    assert (after.keys, after.asked) == ([51], [])


def test_the_watermark_waits_for_answers() -> None:
    run = Run().go(Deliver(0, data(0, 1, watermark=100)))
    assert all(frame.watermark == MIN_TIME for frame in run.frames)
    run.go(answer(1, 51), Deliver(0, barrier(1, 1)))
    assert run.frames[-1].watermark == 100


def test_the_end_waits_for_answers_also_after_a_restart() -> None:
    run = Run().go(Deliver(0, data(0, 1)), Deliver(0, end(1)), Deliver(0, barrier(2, 1)))
    assert [frame.kind for frame in run.frames] == [FrameKind.BARRIER]
    assert run.machine.state is TaskState.RUNNING
    snapped = next(e for e in run.events if isinstance(e, SnapshotTaken))
    for which in (run, Run(state=snapped).go()):
        which.go(answer(1, 51))
        assert which.keys == [51, 999], "receivers get the end after all rows"
        assert which.frames[-1].kind is FrameKind.END
        assert which.machine.state is TaskState.FINISHED


def test_a_replay_of_the_end_waits_for_answers_too() -> None:
    before = Run().go(Deliver(0, data(0, 1)), Deliver(0, end(1))).go(answer(1, 51))
    after = Run(before.segments).go(Deliver(0, data(0, 1)), Deliver(0, end(1)))
    assert (after.keys, after.asked) == ([51, 999], [])
    assert after.machine.state is TaskState.FINISHED


def test_a_standby_calls_no_service() -> None:
    before = Run().go(Deliver(0, data(0, 1)), Deliver(0, barrier(1, 1)))
    snapped = next(e for e in before.events if isinstance(e, SnapshotTaken))
    machine = task_machine(plan(), MIDDLE, Outside())
    machine.offer(RestoreState(1, {n: [s] for n, s in snapped.snapshot.operators.items()}, snapped.progress))
    assert list(machine.step(0).calls) == []
