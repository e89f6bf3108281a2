"""Communication-induced checkpoints on the side of a task: when frames force a snapshot, and their stamps."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from clonos_py.causal.determinants import FrameBatch, InputOrder, Linger, Trigger
from clonos_py.channel.frames import Frame
from clonos_py.channel.stamps import HmnrStamp
from clonos_py.model.errors import CodecError
from clonos_py.process.contract import Deliver, Produced, RestoreState, SnapshotTaken, TriggerRequest
from clonos_py.protocols.induced.hmnr import Hmnr
from clonos_py.protocols.induced.task import InducedSnapshots
from clonos_py.settings.protocols import INDUCED
from clonos_py.task.inputs import Inputs
from tests.unit.task.plans import DOWN, MIDDLE, data, three
from tests.unit.task.test_machine import Run

PLAN = replace(three(merge_rows=3), protocol=INDUCED)
OWN, SENDER, RECEIVER = (PLAN.tasks.index(task) for task in (MIDDLE, *PLAN.tasks[:1], DOWN))


class Sender:
    """The upstream task: it stamps its frames."""

    def __init__(self) -> None:
        self.hmnr = Hmnr(SENDER, len(PLAN.tasks))
        self.seq = 0

    def frames(self, count: int = 1) -> Iterable[Deliver]:
        for _ in range(count):
            self.hmnr.sent(OWN)
            yield Deliver(0, replace(data(self.seq, self.seq), stamp=self.hmnr.stamp().encode()))
            self.seq += 1


def cut(run: Run) -> list[Frame]:
    return [replace(frame, marker_us=0) for event in run.of(Produced) for _, frame in event.frames]


def stamps(run: Run) -> list[HmnrStamp]:
    return [HmnrStamp.decode(frame.stamp, len(PLAN.tasks)) for frame in cut(run)]


def forced_run() -> tuple[Run, Sender]:
    """A frame was taken and passed on; then the sender took a snapshot, and two frames more have come."""
    run, sender = Run(PLAN), Sender()
    run.offer(*sender.frames()).go()
    run.go(200)
    sender.hmnr.snapshot()
    run.offer(*sender.frames(2)).go(300)
    run.go(500)
    return run, sender


def test_frames_after_a_snapshot_of_their_sender_force_one_if_frames_were_sent_since_the_last() -> None:
    run, _ = forced_run()
    assert run.log == [InputOrder(0, 1), Linger(), Trigger(1, forced=True), FrameBatch(0, 2), Linger()]
    (snapped,) = run.of(SnapshotTaken)
    assert snapped.snapshot.forced
    assert snapped.progress.inputs[0].next_seq == 1, "it is taken before these frames"


def test_no_snapshot_is_forced_if_no_frame_was_sent_since_the_last_one() -> None:
    run, sender = Run(PLAN), Sender()
    sender.hmnr.snapshot()
    run.offer(*sender.frames(2)).go()
    assert run.of(SnapshotTaken) == []


def test_stamps_of_frames_have_the_clock_and_checkpoint_counts_of_their_sender() -> None:
    run, _ = forced_run()
    assert [(stamp.clock, stamp.checkpoints) for stamp in stamps(run)] == [(1, (1, 1, 0)), (2, (2, 2, 0))]


def test_a_replay_repeats_forced_snapshots_and_stamps() -> None:
    run, _ = forced_run()
    again, sender = Run(PLAN, log=run.segments), Sender()
    again.offer(*sender.frames())
    sender.hmnr.snapshot()
    again.offer(*sender.frames(2)).go()
    assert cut(again) == cut(run)


def test_a_replacement_continues_with_the_protocol_state_of_its_snapshot() -> None:
    run, sender = forced_run()
    (snapped,) = run.of(SnapshotTaken)
    again = Run(PLAN)
    again.machine._restore_state(
        RestoreState(1, {name: [s] for name, s in snapped.snapshot.operators.items()}, snapped.progress)
    )
    before = sender.hmnr
    again.offer(*(Deliver(0, replace(data(seq, seq), stamp=before.stamp().encode())) for seq in (1, 2))).go()
    again.go(200)
    assert stamps(again) == stamps(run)[1:]


def test_every_call_takes_a_snapshot_also_after_forced_ones() -> None:
    run, _ = forced_run()
    run.offer(TriggerRequest(1)).go(600)
    run.offer(TriggerRequest(40)).go(700)
    assert [d.checkpoint for d in run.log if isinstance(d, Trigger)] == [1, 2, 40]
    assert [snapped.snapshot.forced for snapped in run.of(SnapshotTaken)] == [True, False, False]


def test_frames_of_another_protocol_force_no_snapshot() -> None:
    run = Run(PLAN)
    run.offer(Deliver(0, data(0, 0))).go()
    run.go(200)
    assert run.of(SnapshotTaken) == []


def test_the_state_of_another_task_is_refused() -> None:
    protocol = InducedSnapshots(Inputs([0], 8), PLAN, MIDDLE)
    with pytest.raises(CodecError, match="is of task 2 among 3, and it is to be that of task 1 among 3"):
        protocol.restore(Hmnr(2, 3).encode())
