"""The link of a causal sink: what it acquires, reports and writes, and when."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clonos_py.causal.codec import encode
from clonos_py.causal.determinants import InputOrder
from clonos_py.causal.log import CausalStore
from clonos_py.channel.frames import Frame, FrameHeader, FrameKind, PassThrough
from clonos_py.link import instructions as io
from clonos_py.link.causal_outputs import CausalOutputs
from clonos_py.link.feed_parts import feed_channel
from clonos_py.link.machine import LinkMachine
from clonos_py.model import messages as control
from clonos_py.model.errors import DivergenceError, SinkError
from clonos_py.model.ids import Attempt, LogId
from clonos_py.model.messages import Peer, Restore
from clonos_py.model.operators import CausalSink, PublishedOutput
from clonos_py.model.plan import OperatorPlan, PhysicalPlan, Vertex
from clonos_py.model.segments import ALL_LOGS, LogSegment, StableMark
from clonos_py.model.snapshots import TaskSnapshot
from clonos_py.process import contract as task
from clonos_py.process.contract import ChannelLimits, TaskState
from tests.machines import link_machine, task_machine
from tests.unit.link.links import of, to_coordinator
from tests.unit.task.plans import DOWN, MIDDLE, UP, Outside, barrier, data, keys, rows, three


def causal() -> PhysicalPlan:
    """up -> middle -> down, whose rows are visible at once."""
    plan = three()
    sink = OperatorPlan("down", "sink", CausalSink, (), sink=True, causal=True)
    return replace(plan, vertices=(*plan.vertices[:2], Vertex("down", 1, None, (sink,), ())))


PLAN = causal()
INPUT = PLAN.inputs[DOWN][0]
OWN, UPPER, MIDST = (which.log_id for which in (DOWN, UP, MIDDLE))
FIRST, SECOND = Attempt(1, 1), Attempt(1, 2)
FROM_MIDDLE = 10


def segment(log: LogId, start: int, epoch: int = 0) -> LogSegment:
    return LogSegment(log, epoch, start if epoch else 0, start, 1, encode([InputOrder(0, 1)]))


def published(seq: int, *found: int, epoch: int = 0) -> tuple[int, Frame]:
    return 0, Frame(seq, FrameKind.DATA, epoch, rows=rows(*found))


def checksum(*found: int) -> int:
    return PassThrough().checksum(rows(*found), sampled=False)


def promoted(
    attempt: Attempt = SECOND, checkpoint: int = 0, plan: PhysicalPlan = PLAN
) -> tuple[LinkMachine, list[io.Instruction]]:
    link = link_machine(plan, DOWN, 5, PassThrough(), ChannelLimits(window=2))
    peers = [Peer(INPUT, "middle:1", FIRST)]
    return link, link.handle(control.Promote(1, attempt, Restore(checkpoint), peers, "line-0"))


def running(held: PublishedOutput = PublishedOutput([], {}), plan: PhysicalPlan = PLAN) -> LinkMachine:  # noqa: B008 - immutable
    link, instructions = promoted(plan=plan)
    (connect,) = of(instructions, io.Connect)
    link.handle(io.Connected(0, FROM_MIDDLE, connect.hello))
    header = FrameHeader(0, FrameKind.LOG_ONLY, 0, 0, False, 0, 0, 0, 0, (), [segment(UPPER, 0), segment(MIDST, 0)])
    link.handle(io.Arrived(FROM_MIDDLE, header, data(0)))
    link.handle(io.OutputAcquired(0, held))
    link.handle(control.Replay(1, [], [], []))
    link.handle(task.StateChanged(TaskState.RUNNING))
    return link


def sever() -> control.Sever:
    return control.Sever(1, [], [(DOWN, SECOND)], control.Complete(0))


def test_a_promoted_sink_acquires_its_output_and_answers_after_it_has_read_it() -> None:
    link, instructions = promoted()
    assert of(instructions, io.AcquireOutput) == [
        io.AcquireOutput(0, "down", SECOND, 0, "up=1: middle=1:seen down=1:down", "line")
    ]
    assert to_coordinator(link.handle(sever())) == []
    (answer,) = to_coordinator(
        link.handle(io.OutputAcquired(0, PublishedOutput([segment(OWN, 1), segment(OWN, 0), segment(UPPER, 0)], {})))
    )
    assert isinstance(answer, control.HeldLogsReport)
    assert answer.logs == [segment(UPPER, 0), segment(OWN, 0), segment(OWN, 1)]
    assert answer.whole == [UPPER, MIDST], "an output has all logs that its repetition needs"
    assert answer.ends == {UPPER: 1}


def test_an_output_may_lack_segments_that_were_stable_before_the_write() -> None:
    """The log of an epoch that a checkpoint covers is no longer written: the held part may end anywhere."""
    link = link_machine(PLAN, DOWN, 5, PassThrough(), ChannelLimits(window=2))
    restore = Restore(3, marks=[StableMark(ALL_LOGS, 3)])
    link.handle(control.Promote(1, SECOND, restore, [Peer(INPUT, "middle:1", FIRST)], "line-0"))
    log = [LogSegment(UPPER, 2, 0, 0, 1, b"\x91\x0a"), LogSegment(UPPER, 3, 5, 5, 1, b"\x91\x0a")]
    link.handle(io.OutputAcquired(0, PublishedOutput(log, {})))
    assert link.store.of(UPPER) == log[1:]


def test_a_sink_that_has_acquired_its_output_answers_at_once() -> None:
    link = running()
    (answer,) = to_coordinator(link.handle(control.Sever(2, [], [(MIDDLE, SECOND)], control.Complete(0))))
    assert answer.logs == [segment(UPPER, 0), segment(MIDST, 0)]


def test_the_first_write_contains_all_held_logs_and_later_ones_only_new_segments() -> None:
    link = running()
    (first,) = link.handle(task.Produced(segment(OWN, 0), [], [published(0, 7)]))
    assert isinstance(first, io.WriteOutput)
    assert (first.epoch, [keys(p.rows) for p in first.pieces]) == (0, [[7]])
    assert list(first.log) == [segment(UPPER, 0), segment(MIDST, 0), segment(OWN, 0)]
    assert link.handle(task.Produced(segment(OWN, 1), [], [published(1, 8)])) == []
    assert link.handle(task.Produced(segment(OWN, 2), [], [published(2, 9)])) == [], "one write at a time"
    (second,) = link.handle(io.OutputWritten(0, 1))
    assert isinstance(second, io.WriteOutput)
    assert list(second.log) == [segment(OWN, 1), segment(OWN, 2)]
    assert [(p.seq, p.checksum) for p in second.pieces] == [(1, checksum(8)), (2, checksum(9))]


def test_the_first_write_of_an_epoch_repeats_the_held_logs_of_it() -> None:
    link = running()
    link.handle(task.Produced(segment(OWN, 0), [], [published(0, 7)]))
    link.handle(io.OutputWritten(0, 1))
    link.handle(task.Produced(segment(OWN, 1), []))
    (first,) = link.handle(task.Produced(segment(OWN, 2, epoch=1), [], [published(1, 8, epoch=1)]))
    assert isinstance(first, io.WriteOutput)
    assert first.epoch == 1
    assert list(first.log) == [segment(OWN, 1), segment(OWN, 2, epoch=1)]
    link.handle(io.OutputWritten(0, 1))
    (again,) = link.handle(task.Produced(None, [], [published(2, 9, epoch=2)]))
    assert isinstance(again, io.WriteOutput)
    assert list(again.log) == []


def test_a_snapshot_is_persisted_after_the_pieces_before_it_are_written() -> None:
    link = running()
    link.handle(task.Produced(segment(OWN, 0), [], [published(0, 7)]))
    link.handle(task.Produced(segment(OWN, 1), [], [published(1, 8)]))
    snapshot = TaskSnapshot(DOWN, 1, {}, b"", {})
    instructions = link.handle(
        task.SnapshotTaken(snapshot, task.TaskProgress([], [], [], [], False, 0, [], [], [], {}), True)
    )
    assert [type(i) for i in instructions[:3]] == [io.WriteOutput, io.SettleOutput, io.Persist]


def test_a_piece_that_is_already_published_is_compared_and_not_written_again() -> None:
    link = running(PublishedOutput([segment(OWN, 0), segment(OWN, 1)], {0: checksum(7), 1: checksum(8)}))
    assert link.handle(task.Produced(None, [], [published(0, 7)])) == []
    (write,) = link.handle(task.Produced(None, [], [published(1, 8), published(2, 9)]))
    assert isinstance(write, io.WriteOutput)
    assert [piece.seq for piece in write.pieces] == [2]


def test_a_published_piece_that_is_rebuilt_differently_is_a_divergence() -> None:
    link = running(PublishedOutput([segment(OWN, 0)], {0: checksum(7)}))
    with pytest.raises(DivergenceError, match=r"piece 0 of sink 'down' was rebuilt with other content than down\[0\]"):
        link.handle(task.Produced(None, [], [published(0, 66)]))


def test_the_task_is_held_back_while_its_output_is_behind() -> None:
    link = running()
    for seq in range(3):
        link.handle(task.Produced(segment(OWN, seq), [], [published(seq, seq)]))
    assert io.SendToTask(task.MayProduce(False)) in link.handle(task.Produced(segment(OWN, 3), [], [published(3, 3)]))
    assert io.SendToTask(task.MayProduce(True)) in link.handle(io.OutputWritten(0, 1))


def test_a_feed_point_waits_until_what_was_published_before_it_is_visible() -> None:
    fed = replace(PLAN, standby_feed_us=100_000)
    link = running(plan=fed)
    hello = io.Hello(fed.job, feed_channel(DOWN), SECOND, SECOND, 0)
    assert io.SendToTask(task.FeedRequested()) in link.handle(io.Subscribed(77, hello))
    link.handle(task.Produced(segment(OWN, 0), [], [published(0, 7)]))
    link.handle(task.Produced(segment(OWN, 1), [], [published(1, 8)]))
    progress = task.TaskProgress([], [], [], [], False, 2, [], [], [], {}, published=[2])
    assert link.handle(task.FeedPointTaken({}, progress, task.FeedPosition(0, 0, 2), [])) == []
    assert of(link.handle(io.OutputWritten(0, 1)), io.SendFrame) == [], "the second piece is being written"
    link.handle(task.Produced(segment(OWN, 2), [], [published(2, 9)]))
    (point,) = of(link.handle(io.OutputWritten(0, 1)), io.SendFrame)
    assert point.header.kind is FrameKind.FEED_POINT


def test_an_output_that_lacks_what_a_feed_point_covers_is_refused() -> None:
    outputs = CausalOutputs(PLAN, DOWN, CausalStore(PLAN.logs), PassThrough())
    outputs.check_visible([2], [5])  # it is not acquired yet
    outputs.acquired(io.OutputAcquired(0, PublishedOutput([], {2: 1, 3: 1, 5: 1})))
    outputs.check_visible([2], [4])
    with pytest.raises(SinkError, match="the output of sink 'down' lacks 1 pieces that down"):
        outputs.check_visible([2], [5])


def test_a_sink_task_hands_over_rows_with_its_log_and_numbers_them_across_snapshots() -> None:
    machine = task_machine(PLAN, DOWN, Outside())
    machine_after = task_machine(PLAN, DOWN, Outside())
    machine.offer(task.Begin(FIRST, [], []))
    produced: list[task.Produced] = []
    for frame in (data(0, 1, 2), data(1, 3), barrier(2, 1), data(3, 4, epoch=1)):
        machine.offer(task.Deliver(0, frame))
        found = machine.step(0).events
        produced += [event for event in found if isinstance(event, task.Produced) and event.published]
        snapped = [event for event in found if isinstance(event, task.SnapshotTaken)]
        if snapped:
            assert snapped[0].progress.published == [2]
            machine_after.offer(task.RestoreState(1, {}, snapped[0].progress))
    assert [(n, f.seq, f.epoch, keys(f.rows)) for event in produced for n, f in event.published] == [
        (0, 0, 0, [1, 2]),
        (0, 1, 0, [3]),
        (0, 2, 1, [4]),
    ]
    assert all(event.log is not None for event in produced)
    machine_after.offer(task.Begin(SECOND, [], []))
    machine_after.offer(task.Deliver(0, data(3, 4, epoch=1)))
    (shown_after,) = [e for e in machine_after.step(0).events if isinstance(e, task.Produced)]
    assert [frame.seq for _, frame in shown_after.published] == [2]
