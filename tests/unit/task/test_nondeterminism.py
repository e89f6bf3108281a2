"""Every source of nondeterminism that section 4.1 of the Clonos paper lists, one test each: a task runs, and its
replacement runs with a world that answers otherwise. It must send the same frames."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import (
    Abort,
    Answer,
    Determinant,
    FrameBatch,
    FrameRows,
    InputOrder,
    Linger,
    ReadBatch,
    Refusal,
    Seed,
    SourceEnd,
    SourceIdle,
    SourceRead,
    Time,
    TimerFired,
    Trigger,
)
from clonos_py.causal.log import LogWriter
from clonos_py.model.errors import DivergenceError, ServiceError
from clonos_py.model.ids import Attempt, LogId, TaskId
from clonos_py.model.operators import End, EventTime, Operator, Read, Source, Wait
from clonos_py.model.plan import OperatorPlan, PhysicalPlan
from clonos_py.model.segments import LogSegment
from clonos_py.process.contract import AbortRequest, Begin, Deliver, FrameRowsRequested, Produced, TriggerRequest
from tests.machines import task_machine
from tests.unit.task.plans import MIDDLE, SCHEMA, UP, Outside, barrier, data, keys, rows, three

Script = Sequence[tuple[int, Sequence[Any]]]
"""What is offered to a task, and when."""

OTHERWISE = Outside(time_us=777_000)


@dataclass
class Life:
    """What a task logged and sent."""

    log: list[LogSegment] = field(default_factory=list)
    sent: list[Any] = field(default_factory=list)

    @property
    def determinants(self) -> list[Determinant]:
        codec = LogCodec()
        return [determinant for segment in self.log for determinant in codec.load(segment)]

    def kinds(self) -> set[type]:
        return {type(determinant) for determinant in self.determinants}


def live(plan: PhysicalPlan, which: TaskId, outside: Any, script: Script, log: Sequence[LogSegment] = ()) -> Life:
    machine = task_machine(plan, which, outside, linger_us=100)
    machine.offer(Begin(Attempt(1, 1), log, []))
    made = Life()
    for now_us, items in script:
        for item in items:
            machine.offer(item)
        outside.time_us += 1_000
        wake_us = None
        while wake_us is None:
            outcome = machine.step(now_us)
            wake_us = outcome.wake_us
            for event in outcome.events:
                if isinstance(event, Produced):
                    made.log += [event.log] if event.log is not None else []
                    made.sent += [
                        (index, f.seq, f.kind, f.epoch, f.watermark, f.idle, keys(f.rows)) for index, f in event.frames
                    ]
    if (rest := machine._writer.cut()) is not None:
        made.log.append(rest)
    return made


def again(plan: PhysicalPlan, which: TaskId, before: Life, outside: Any, items: Sequence[Any]) -> Life:
    """The replacement: all items come at once, at another time, and the world differs."""
    return live(plan, which, outside, [(5_000_000, items)], before.log)


def asking(question: Callable[[Any], int]) -> PhysicalPlan:
    """A plan whose middle task sends the answer to a question for every row."""
    plan = three((2, 1, 1), frame_rows=1)
    operator = OperatorPlan("asks", "map", partial(Asking, question), (SCHEMA,))
    vertices = tuple(replace(v, operators=(operator,)) if v.name == "middle" else v for v in plan.vertices)
    return replace(plan, vertices=vertices)


class Asking(Operator):
    def __init__(self, question: Callable[[Any], int]) -> None:
        self._question = question

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        answers = [self._question(self.ctx) for _ in range(rows.num_rows)]
        self.out.emit(pa.record_batch([pa.array(answers, pa.int64())], schema=SCHEMA))


def ask_service(ctx: Any) -> int:
    try:
        return int(ctx.gate.ask("prices", ctx.service("prices")))
    except ServiceError:
        return -1


def same_answers(question: Callable[[Any], int], before: Any, after: Any) -> Life:
    plan, items = asking(question), [Deliver(0, data(0, 1, 2)), Deliver(1, data(0, 3))]
    first = live(plan, MIDDLE, before, [(0, items)])
    assert again(plan, MIDDLE, first, after, items).sent == first.sent
    assert live(plan, MIDDLE, after, [(0, items)]).sent != first.sent, (
        "the world has the same answers: the test proves little"
    )
    return first


def test_a_replay_has_the_same_processing_times() -> None:
    incarnation = same_answers(lambda ctx: int(ctx.time.now()), Outside(), OTHERWISE)
    assert Time in incarnation.kinds()


def test_a_replay_has_the_same_random_numbers() -> None:
    @dataclass
    class Drawing(Outside):
        seeds: int = 0

        def seed(self) -> int:
            return self.seeds

    incarnation = same_answers(lambda ctx: int(ctx.random.getrandbits(30)), Drawing(seeds=7), Drawing(seeds=8))
    assert incarnation.determinants.count(Seed(7)) == 1, "one seed for all numbers of an epoch"


def test_a_replay_has_the_same_answers_and_refusals_of_external_calls() -> None:
    def refuse() -> int:
        raise ServiceError("closed")

    incarnation = same_answers(
        ask_service, Outside(services={"prices": lambda: 41}), Outside(services={"prices": lambda: 42})
    )
    assert Answer("prices", 41) in incarnation.determinants
    refused = same_answers(ask_service, Outside(services={"prices": refuse}), Outside(services={"prices": lambda: 42}))
    assert Refusal("prices", "closed") in refused.determinants


def test_a_replay_takes_frames_of_several_inputs_in_the_same_order() -> None:
    plan = three((2, 1, 1), frame_rows=1)
    script = [(0, [Deliver(1, data(0, 4))]), (0, [Deliver(0, data(0, 5))]), (0, [Deliver(1, data(1, 6))])]
    first = live(plan, MIDDLE, Outside(), script)
    items = [Deliver(0, data(0, 5)), Deliver(1, data(0, 4)), Deliver(1, data(1, 6))]
    assert again(plan, MIDDLE, first, Outside(), items).sent == first.sent
    assert [row for *_, row in first.sent] == [[4], [5], [6]]
    assert first.kinds() == {InputOrder}


def test_a_replay_merges_the_same_frames() -> None:
    plan = three((1, 1, 1), merge_rows=2)
    items = [Deliver(0, data(seq, seq)) for seq in range(3)]
    first = live(plan, MIDDLE, Outside(), [(0, items)])
    apart: Script = [(5_000_000, [item]) for item in items]
    assert live(plan, MIDDLE, Outside(), apart, first.log).sent == first.sent
    assert first.determinants[0] == FrameBatch(0, 2)


def test_a_replay_fires_timers_between_the_same_frames() -> None:
    plan = three((1, 1, 1), frame_rows=1)
    script = [(0, [Deliver(0, data(0, -50))]), (60, []), (70, [Deliver(0, data(1, 8))])]
    first = live(plan, MIDDLE, Outside(), script)
    items = [Deliver(0, data(0, -50)), Deliver(0, data(1, 8))]
    assert again(plan, MIDDLE, first, Outside(), items).sent == first.sent
    assert [row for *_, row in first.sent] == [[-50], [50], [8]]
    assert TimerFired in first.kinds()


def test_a_replay_cuts_output_into_the_same_frames() -> None:
    plan = three((1, 1, 1))
    script = [(0, [Deliver(0, data(0, 1))]), (100, []), (150, [Deliver(0, data(1, 2))]), (250, [])]
    first = live(plan, MIDDLE, Outside(), script)
    items = [Deliver(0, data(0, 1)), Deliver(0, data(1, 2))]
    assert again(plan, MIDDLE, first, Outside(), items).sent == first.sent
    assert [row for *_, row in first.sent] == [[1], [2]]
    assert Linger in first.kinds()


def test_a_replay_triggers_and_aborts_checkpoints_between_the_same_events() -> None:
    plan = three((1, 1, 1), frame_rows=1)
    first = live(plan, UP, Outside(), [(0, [TriggerRequest(1)])])
    assert again(plan, UP, first, Outside(), []).sent == first.sent
    assert Trigger(1) in first.determinants

    two = three((2, 1, 1), frame_rows=1)
    script: Script = [
        (0, [Deliver(0, barrier(0, 1)), Deliver(0, data(1, 2))]),
        (1, [AbortRequest(1)]),
        (2, [Deliver(1, data(0, 3))]),
    ]
    aborted = live(two, MIDDLE, Outside(), script)
    items = [Deliver(1, data(0, 3)), Deliver(0, barrier(0, 1)), Deliver(0, data(1, 2))]
    assert again(two, MIDDLE, aborted, Outside(), items).sent == aborted.sent
    assert [row for *_, row in aborted.sent] == [[2], [3]]
    assert Abort(1) in aborted.determinants


class Trickle(Source):
    """Only the first partition has rows; how many are available at a time depends on the instance."""

    def __init__(self, *lengths: int, total: int = 6, pause_us: int = 0, partitions: int = 1) -> None:
        self._lengths, self._total, self._at = list(lengths), total, 0
        self._pause_us, self._next_us, self._partitions = pause_us, 0, partitions

    def partitions(self) -> int:
        return self._partitions

    def seek(self, positions: Mapping[int, int]) -> None:
        self._at = positions.get(0, 0)

    def poll(self, now: int) -> Read | Wait | End:
        if self._at == self._total:
            return End()
        if not self._lengths:
            return Wait(now + 1_000_000)
        if now < self._next_us:
            return Wait(self._next_us)
        self._next_us = now + self._pause_us
        return self.reread(0, self._at, self._at + self._lengths.pop(0))

    def reread(self, partition: int, start: int, stop: int) -> Read:
        self._at = stop
        return Read(0, start, stop, (rows(*range(start, stop)),), checksum=stop, last=False)


def reading(
    source: Source,
    event_time: EventTime = EventTime((None,)),  # noqa: B008 - frozen
    frame_rows: int = 1_000,
    merge_rows: int = 0,
) -> PhysicalPlan:
    plan = three(source=source, frame_rows=frame_rows)
    up = plan.vertices[0]
    assert up.source is not None
    made = replace(up.source, event_time=event_time, merge_rows=merge_rows)
    return replace(plan, vertices=(replace(up, source=made), *plan.vertices[1:]))


def test_a_replay_makes_reads_of_the_same_length() -> None:
    script: Script = [(0, []), (100, [])]
    first = live(reading(Trickle(1, 4, 1)), UP, Outside(), script)
    assert again(reading(Trickle(3, 3)), UP, first, Outside(), []).sent == first.sent
    assert first.determinants[:3] == [SourceRead(0, 0, 1, 1), SourceRead(0, 1, 5, 5), SourceRead(0, 5, 6, 6)]
    assert SourceEnd() in first.determinants


def test_a_replay_merges_the_same_reads() -> None:
    def plan(pause_us: int) -> PhysicalPlan:
        return reading(Trickle(1, 4, 1, pause_us=pause_us, partitions=3), frame_rows=4, merge_rows=100)

    together = live(plan(0), UP, Outside(), [(0, [])])
    assert together.determinants[:2] == [ReadBatch(3), SourceRead(0, 0, 1, 1)]
    apart: Script = [(0, []), (100, []), (200, []), (300, [])]
    assert live(plan(50), UP, Outside(), apart).sent != together.sent, "batches influence the frames"
    assert live(plan(50), UP, Outside(), apart, together.log).sent == together.sent


def test_a_replay_changes_the_frame_size_at_the_same_places() -> None:
    def plan(pause_us: int) -> PhysicalPlan:
        return three(source=Trickle(9, 9, 9, 9, total=36, pause_us=pause_us), frame_rows=64, adaptive=True)

    sizes = [FrameRowsRequested(0, 8)], [FrameRowsRequested(0, 1)]
    apart: Script = [(0, []), (100, sizes[0]), (200, sizes[1]), (300, []), (400, [])]
    first = live(plan(50), UP, Outside(), apart)
    assert [d.rows for d in first.determinants if isinstance(d, FrameRows)] == [8, 1]
    assert again(plan(0), UP, first, Outside(), []).sent == first.sent
    assert live(plan(50), UP, Outside(), [(at, []) for at, _ in apart]).sent != first.sent, (
        "the size of frames has no effect"
    )


def test_a_log_that_ends_within_merged_reads_is_refused() -> None:
    log = LogWriter(LogId(0))
    for determinant in (ReadBatch(3), SourceRead(0, 0, 1, 1), SourceRead(0, 1, 5, 5)):
        log.append(determinant)
    segment = log.cut()
    assert segment is not None
    with pytest.raises(DivergenceError, match="the log ends after 2 of 3 determinants of one event"):
        live(reading(Trickle(1, 4, 1)), UP, Outside(), [(0, [])], [segment])


def test_a_replayed_batch_of_reads_with_another_event_in_it_is_refused() -> None:
    log = LogWriter(LogId(0))
    for determinant in (ReadBatch(2), SourceRead(0, 0, 1, 1), Linger()):
        log.append(determinant)
    segment = log.cut()
    assert segment is not None
    with pytest.raises(DivergenceError, match="as a read, which it is not"):
        live(reading(Trickle(1, 4, 1)), UP, Outside(), [(0, [])], [segment])


@pytest.mark.parametrize("silent_us", [50, 5_000])
def test_a_replayed_source_is_idle_between_the_same_rows(silent_us: int) -> None:
    """Idleness moves the watermark: it must come between the same rows, at any time of the clock."""
    event_time = EventTime(("key",), idle_us=1_000)
    first = live(reading(Trickle(2), event_time), UP, Outside(), [(0, []), (silent_us, []), (silent_us + 200, [])])
    assert again(reading(Trickle(2), event_time), UP, first, Outside(), []).sent[: len(first.sent)] == first.sent
    assert (SourceIdle in first.kinds()) == (silent_us > 1_000)
