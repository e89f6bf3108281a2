from __future__ import annotations

import pyarrow as pa
import pytest
from msgspec.structs import replace

from clonos_py.channel.frames import FrameKind
from clonos_py.link import instructions as io
from clonos_py.link.machine import LinkMachine
from clonos_py.model import messages as control
from clonos_py.model.errors import CheckpointError, DivergenceError, ProtocolError, SpillError, StorageUnavailableError
from clonos_py.model.ids import Attempt, ChannelId, TaskId
from clonos_py.model.messages import Expectation, Peer, Restore
from clonos_py.model.retention import Spill
from clonos_py.model.segments import Reach, StableMark
from clonos_py.model.snapshots import TaskHandle, TaskSnapshot
from clonos_py.model.state import Chunk, OperatorState, StateSize
from clonos_py.process import contract as task
from clonos_py.process.contract import ChannelLimits, TaskState
from tests.unit.link.links import (
    FIRST,
    FROM_UP,
    INPUT,
    OUTPUT,
    OWN_LOG,
    PLAN,
    SECOND,
    THIRD,
    TO_DOWN,
    UP_LOG,
    acknowledged,
    arrived,
    connected,
    handed,
    hello,
    of,
    opening,
    produced,
    promote,
    running,
    sending,
    standby,
    subscribe,
    to_coordinator,
)
from tests.unit.task.plans import DOWN, MIDDLE, UP, barrier, data

# ---- from standby to running


def test_a_promoted_standby_connects_then_fetches_its_log_then_replays() -> None:
    link = standby()
    (connect,) = of(link.handle(promote(SECOND)), io.Connect)
    assert (connect.address, connect.hello) == ("up:1", io.Hello(PLAN.job, INPUT, SECOND, FIRST, 0))
    states = [link.state]
    link.handle(io.Connected(0, FROM_UP, connect.hello))
    link.handle(opening())
    states.append(link.state)
    assert handed(link.handle(control.Replay(1, [OWN_LOG], [], [4]))) == [task.Begin(SECOND, [OWN_LOG], [4], "line-0")]
    states.append(link.state)
    link.handle(task.StateChanged(TaskState.RUNNING, 3))
    states.append(link.state)
    assert [state.value for state in states] == ["connecting", "fetching determinants", "replaying", "running"]
    assert to_coordinator(link.handle(task.StateChanged(TaskState.FINISHED))) == [control.Drained(5)]


def test_a_replay_waits_for_the_state() -> None:
    link = standby()
    (load,) = of(link.handle(promote(restore=Restore(3))), io.Load)
    assert link.handle(control.Replay(1, [], [], [])) == []
    instructions = link.handle(io.Loaded(load.restore, {}))
    assert [type(item) for item in handed(instructions)] == [task.RestoreState, task.Begin]
    assert len(of(instructions, io.Connect)) == 1


def test_a_standby_that_is_prepared_does_not_load_again() -> None:
    link = standby()
    (load,) = of(link.handle(control.Prepare(Restore(3))), io.Load)
    assert to_coordinator(link.handle(io.Loaded(load.restore, {}))) == [control.Prepared(5, 3)]
    assert of(link.handle(promote(restore=Restore(3))), io.Load) == []
    assert link.state is TaskState.CONNECTING


def test_state_is_loaded_in_the_background_before_the_promotion_and_at_once_after_it() -> None:
    link = standby()
    (ahead,) = of(link.handle(control.Prepare(Restore(3))), io.Load)
    (taken,) = handed(link.handle(io.Loaded(ahead.restore, {})))
    assert (ahead.ahead, taken.ahead) == (True, True)
    (load,) = of(link.handle(promote(restore=Restore(4))), io.Load)
    (taken,) = handed(link.handle(io.Loaded(load.restore, {})))
    assert (load.ahead, taken.ahead) == (False, False)


def test_state_that_arrives_after_the_promotion_is_not_loaded_in_the_background() -> None:
    link = standby()
    link.handle(control.Prepare(Restore(3)))
    assert of(link.handle(promote(restore=Restore(3))), io.Load) == []
    (taken,) = handed(link.handle(io.Loaded(Restore(3), {})))
    assert not taken.ahead


def test_state_that_is_no_longer_requested_is_dropped() -> None:
    link = standby()
    link.handle(control.Prepare(Restore(3)))
    link.handle(control.Prepare(Restore(4)))
    assert link.handle(io.Loaded(Restore(3), {})) == []
    assert to_coordinator(link.handle(io.Loaded(Restore(4), {}))) == [control.Prepared(5, 4)]


def test_a_standby_does_not_load_a_state_again_that_it_has() -> None:
    """The job goes back to it while a later one is loaded, and is not to start the promoted task twice."""
    link = standby()
    link.handle(control.Prepare(Restore(3)))
    link.handle(io.Loaded(Restore(3), {}))
    link.handle(control.Prepare(Restore(4)))
    instructions = link.handle(control.Prepare(Restore(3)))
    assert (of(instructions, io.Load), to_coordinator(instructions)) == ([], [control.Prepared(5, 3)])
    assert len(of(link.handle(promote(restore=Restore(3))), io.Connect)) == 1
    assert link.handle(io.Loaded(Restore(4), {})) == []


def test_a_standby_survives_the_deletion_of_the_checkpoint_it_loads() -> None:
    link = standby()
    link.handle(control.Prepare(Restore(1)))
    (report,) = link.handle(io.LoadFailed(Restore(1), CheckpointError("reclaimed")))
    assert report == io.SendToCoordinator(control.NotPrepared(5, 1, "reclaimed"))
    assert of(link.handle(promote(restore=Restore(3))), io.Load) == [io.Load(Restore(3))]
    silence = io.LoadFailed(Restore(3), StorageUnavailableError("no answer"))
    assert of(link.handle(silence), io.Load) == [io.Load(Restore(3))]
    with pytest.raises(CheckpointError, match="disk gone"):
        link.handle(io.LoadFailed(Restore(3), CheckpointError("disk gone")))


def test_progress_that_cannot_be_read_is_a_checkpoint_error() -> None:
    link = standby()
    link.handle(promote(restore=Restore(3, progress=b"\xc1 forged")))
    with pytest.raises(CheckpointError, match=r"checkpoint 3: the progress of middle\[0\] cannot be read"):
        link.handle(io.Loaded(Restore(3, progress=b"\xc1 forged"), {}))


def test_a_log_of_another_round_is_ignored() -> None:
    link = connected()
    assert link.handle(control.Replay(2, [], [], [])) == []
    assert link.state is TaskState.FETCHING_DETERMINANTS


# ---- which subscribers are served


def test_a_subscriber_gets_the_logs_before_frames() -> None:
    link = running()
    link.handle(produced(0, 1, log=OWN_LOG))
    frames = of(link.handle(subscribe()), io.SendFrame)
    assert [(f.connection, f.header.kind, f.header.seq) for f in frames] == [
        (TO_DOWN, FrameKind.LOG_ONLY, 0),
        (TO_DOWN, FrameKind.DATA, 0),
        (TO_DOWN, FrameKind.DATA, 1),
    ]
    assert [f.header.delta for f in frames] == [[OWN_LOG], [], []]


def test_a_subscription_to_an_old_attempt_is_refused() -> None:
    assert running(SECOND).handle(subscribe(sender=FIRST)) == [io.Disconnect(TO_DOWN)]


def test_a_subscriber_that_has_been_replaced_is_refused() -> None:
    link = running()
    link.handle(subscribe(receiver=SECOND))
    assert link.handle(subscribe(receiver=FIRST, connection=21)) == [io.Disconnect(21)]


def test_a_subscription_to_another_job_or_channel_is_refused() -> None:
    link = running()
    assert link.handle(io.Subscribed(20, io.Hello("other", OUTPUT, FIRST, FIRST, 0))) == [io.Disconnect(20)]
    unknown = io.Hello(PLAN.job, ChannelId(1, 0, 9), FIRST, FIRST, 0)
    assert link.handle(io.Subscribed(21, unknown)) == [io.Disconnect(21)]


def test_a_subscription_before_the_promotion_is_served_after_it() -> None:
    link = standby()
    assert link.handle(subscribe(sender=SECOND)) == []
    assert [f.connection for f in of(link.handle(promote(SECOND)), io.SendFrame)] == [TO_DOWN]


def test_a_new_subscription_closes_the_old_connection() -> None:
    link = running()
    link.handle(subscribe())
    instructions = link.handle(subscribe(connection=21))
    assert of(instructions, io.Disconnect) == [io.Disconnect(TO_DOWN)]
    assert [f.connection for f in of(instructions, io.SendFrame)] == [21]


def test_a_lost_upstream_is_suspected_and_reconnected() -> None:
    instructions = running().handle(io.Lost(FROM_UP))
    assert to_coordinator(instructions) == [control.Suspect(5, UP)]
    assert [c.address for c in of(instructions, io.Connect)] == ["up:1"]


def test_a_lost_subscriber_is_not_reported_and_gets_no_frames() -> None:
    link = running()
    link.handle(subscribe())
    assert link.handle(io.Lost(TO_DOWN)) == []
    assert of(link.handle(produced(0)), io.SendFrame) == []


# ---- a neighbour has failed


def sever(failed: TaskId, *replacements: Peer) -> control.Sever:
    return control.Sever(2, list(replacements), [(failed, SECOND)], control.Complete(0))


def test_sever_closes_connections_then_answers_then_subscribes_again() -> None:
    instructions = running().handle(sever(UP, Peer(INPUT, "up:2", SECOND)))
    assert [type(i) for i in instructions] == [io.Disconnect, io.SendToCoordinator, io.Connect]
    assert of(instructions, io.Disconnect) == [io.Disconnect(FROM_UP)]


def test_the_answer_to_sever_names_received_frames_and_held_logs() -> None:
    link = running()
    link.handle(arrived(0, UP_LOG, checksum=77))
    (holdings,) = to_coordinator(link.handle(sever(UP, Peer(INPUT, "up:2", SECOND))))
    received = [Expectation(INPUT, 1, [(0, 77)])]
    assert holdings == control.HeldLogsReport(5, 2, [UP_LOG], received, depends=[0], logs_received={0: [UP_LOG.log]})


def test_a_sender_that_restarted_without_log_and_failed_unreached_still_renumbers_its_frames() -> None:
    link = running()
    link.handle(arrived(0))
    link.handle(sever(UP, Peer(INPUT, "up:2", SECOND, reset=True)))
    instructions = link.handle(control.Sever(3, [Peer(INPUT, "up:3", THIRD)], [(UP, THIRD)], control.Complete(0)))
    (connect,) = of(instructions, io.Connect)
    assert connect.hello.next_seq < 0, "it accepts any numbering"
    (answer,) = to_coordinator(instructions)
    assert answer.received == [], "frames from before the sender restarted are void"
    link.handle(io.Connected(0, FROM_UP, connect.hello))
    link.handle(opening(seq=5))
    link.handle(arrived(5))
    assert link.state is TaskState.RUNNING


def renumbered(link: LinkMachine, seq: int) -> list[io.Instruction]:
    """The sender has restarted, and offers frames from ``seq`` on."""
    (connect,) = of(link.handle(sever(UP, Peer(INPUT, "up:2", SECOND, reset=True))), io.Connect)
    link.handle(io.Connected(0, FROM_UP, connect.hello))
    return link.handle(opening(seq))


def test_frames_of_the_old_numbering_are_not_acknowledged_to_a_sender_that_renumbers() -> None:
    link = running()
    link.handle(arrived(0))
    (connect,) = of(link.handle(sever(UP, Peer(INPUT, "up:2", SECOND, reset=True))), io.Connect)
    link.handle(io.Connected(0, FROM_UP, connect.hello))
    assert of(link.handle(task.FramesTaken(0, 1)), io.SendAck) == [], "before it has said how it numbers"
    link.handle(opening(5))
    assert of(link.handle(task.FramesTaken(0, 1)), io.SendAck) == [], "and after, until the task knows of it"
    link.handle(arrived(5))
    assert [
        ack.acknowledgement.next_seq for ack in of(link.handle(task.FramesTaken(0, 6, restarts=2)), io.SendAck)
    ] == [6]


def test_frames_of_a_sender_that_restarts_without_log_are_void_at_once() -> None:
    link = running()
    link.handle(arrived(0))
    instructions = link.handle(sever(UP, Peer(INPUT, "up:2", SECOND, reset=True)))
    assert handed(instructions) == [task.Renumber(0, -1)]
    assert handed(link.handle(sever(UP, Peer(INPUT, "up:2", SECOND, reset=True)))) == [], "once"


def test_a_renumbering_says_whether_the_channel_had_ended_at_the_restart_point() -> None:
    assert handed(renumbered(running(), 5)) == [task.Renumber(0, 5, ended=False)]
    link = running()
    progress = task.TaskProgress([task.InputProgress(3, ended=True)], [7], [0], [0], False, 0, [], [], [], {})
    link.handle(task.SnapshotTaken(_snapshot(1), progress, persist=True))
    link.handle(control.Complete(1))
    assert handed(renumbered(link, 3)) == [task.Renumber(0, 3, ended=True)]


def test_frames_of_a_severed_connection_are_ignored() -> None:
    link = running()
    link.handle(sever(UP, Peer(INPUT, "up:2", SECOND)))
    assert link.handle(arrived(0, UP_LOG)) == []
    assert link.store.of(UP_LOG.log) == []


def test_a_failed_receiver_gets_no_more_frames() -> None:
    link = running()
    link.handle(subscribe())
    assert of(link.handle(sever(DOWN)), io.Disconnect) == [io.Disconnect(TO_DOWN)]
    assert of(link.handle(produced(0)), io.SendFrame) == []
    assert link.handle(subscribe(receiver=FIRST, connection=21)) == [io.Disconnect(21)]
    again = link.handle(subscribe(receiver=SECOND, connection=22))
    assert [f.header.seq for f in of(again, io.SendFrame)] == [0, 0]


# ---- frames


def test_a_frame_is_handed_over_after_its_determinants_are_stored() -> None:
    link = running()
    (deliver,) = handed(link.handle(arrived(0, UP_LOG)))
    assert (deliver.input, deliver.frame.seq) == (0, 0)
    assert link.store.of(UP_LOG.log) == [UP_LOG]


def test_a_gap_in_the_frames_is_an_error() -> None:
    with pytest.raises(ProtocolError, match="sent frame 1"):
        running().handle(arrived(1))


def test_frames_that_the_receiver_has_are_rebuilt_but_not_sent_again() -> None:
    link = connected(SECOND)
    link.handle(control.Replay(1, [OWN_LOG], [Expectation(OUTPUT, 1, [])], []))
    link.handle(io.Subscribed(TO_DOWN, hello(SECOND, FIRST, next_seq=1)))
    assert of(link.handle(produced(0)), io.SendFrame) == []
    instructions = link.handle(produced(1))
    assert [f.header.seq for f in of(instructions, io.SendFrame)] == [1]
    assert control.NewEffect(5) in to_coordinator(instructions)


def test_receivers_learn_that_logs_have_arrived_which_were_incomplete() -> None:
    """A finished or idle task sends them no other frame: below full depth they would count as lacking these logs until
    the next checkpoint."""
    link = standby()
    (connect,) = of(link.handle(promote(SECOND)), io.Connect)
    link.handle(io.Connected(0, FROM_UP, connect.hello))
    (opened,) = of(link.handle(subscribe(sender=SECOND)), io.SendFrame)
    both = tuple(sorted((UP_LOG.log, OWN_LOG.log)))
    assert (opened.header.kind, opened.header.incomplete) == (FrameKind.LOG_ONLY, both)
    (upstream,) = of(link.handle(opening(delta=(UP_LOG,))), io.SendFrame)
    assert (upstream.header.kind, upstream.header.incomplete) == (FrameKind.LOGS_ARRIVED, (OWN_LOG.log,))
    assert upstream.header.delta == [UP_LOG]
    (own,) = of(link.handle(control.Replay(1, [OWN_LOG], [], [])), io.SendFrame)
    assert (own.header.incomplete, own.header.delta) == ((), [OWN_LOG])
    assert of(link.handle(task.StateChanged(TaskState.RUNNING)), io.SendFrame) == []


def test_logs_that_arrive_late_complete_those_of_a_receiver() -> None:
    link = standby()
    (connect,) = of(link.handle(promote(SECOND)), io.Connect)
    link.handle(io.Connected(0, FROM_UP, connect.hello))
    lacking = opening()
    link.handle(replace(lacking, header=replace(lacking.header, incomplete=(UP_LOG.log,))))
    link.handle(control.Replay(1, [OWN_LOG], [], []))
    assert link.store.incomplete == (UP_LOG.log,)
    kind = FrameKind.LOGS_ARRIVED
    late = replace(lacking, header=replace(lacking.header, kind=kind, delta=[UP_LOG]))
    assert handed(link.handle(late)) == []
    assert link.store.of(UP_LOG.log) == [UP_LOG]
    assert len(link.store.incomplete) == 0


def test_after_a_rollback_the_first_frame_is_reported_as_a_new_effect() -> None:
    link = connected(Attempt(2, 1))
    link.handle(control.Replay(1, [], [], []))
    link.handle(io.Subscribed(TO_DOWN, hello(Attempt(2, 1), Attempt(2, 1))))
    assert control.NewEffect(5) in to_coordinator(link.handle(produced(0)))
    assert control.NewEffect(5) not in to_coordinator(link.handle(produced(1)))


def test_a_rebuilt_frame_that_differs_is_a_divergence() -> None:
    link = connected(SECOND)
    link.handle(control.Replay(1, [OWN_LOG], [Expectation(OUTPUT, 1, [(0, 12345)])], []))
    with pytest.raises(DivergenceError, match="not deterministic"):
        link.handle(produced(0))


def test_the_task_is_held_back_while_its_receiver_is_behind() -> None:
    link = running()
    link.handle(subscribe())
    assert task.MayProduce(False) in handed(link.handle(produced(*range(40))))
    assert task.MayProduce(True) in handed(link.handle(acknowledged(16)))


def test_logs_that_a_receiver_has_from_others_are_not_sent_to_it() -> None:
    link = running()
    link.handle(subscribe())
    link.handle(produced(0))
    further = replace(UP_LOG, start=1)
    link.handle(acknowledged(1, [Reach(UP_LOG.log, 0, 1)]))
    link.handle(arrived(0, UP_LOG))
    (known,) = of(link.handle(produced(1, log=OWN_LOG)), io.SendFrame)
    link.handle(arrived(1, further))
    (new,) = of(link.handle(produced(2)), io.SendFrame)
    assert (known.header.delta, new.header.delta) == ([OWN_LOG], [further])
    again = of(link.handle(subscribe(connection=21)), io.SendFrame)
    assert again[0].header.delta == [UP_LOG, OWN_LOG, further], (
        "reports of what a receiver holds end with its connection"
    )


# ---- frames on disk

SPILLING = ChannelLimits(window=2, policy=Spill.BUFFER)


def on_disk(*seqs: int) -> LinkMachine:
    """Frames of these numbers are cut and written, frame n at place n; no receiver has subscribed."""
    link = running(limits=SPILLING)
    (write,) = of(link.handle(produced(*seqs)), io.WriteFrames)
    assert [seq for seq, _ in write.bodies] == list(seqs)
    link.handle(io.FramesWritten(0, [(seq, seq) for seq in seqs]))
    return link


def test_frames_on_disk_are_read_and_then_sent() -> None:
    link = on_disk(*range(6))
    instructions = link.handle(subscribe())
    assert [f.header.kind for f in of(instructions, io.SendFrame)] == [FrameKind.LOG_ONLY]
    assert of(instructions, io.ReadFrames) == [io.ReadFrames(0, [(seq, seq) for seq in range(4)])]
    instructions = link.handle(io.FramesRead(0, [(seq, data(seq, seq).rows) for seq in range(4)]))
    assert [f.header.seq for f in of(instructions, io.SendFrame)] == [0, 1]
    assert of(instructions, io.ReadFrames) == [io.ReadFrames(0, [(4, 4), (5, 5)])], "ahead of its turn"
    instructions = link.handle(acknowledged(2))
    assert [f.header.seq for f in of(instructions, io.SendFrame)] == [2, 3]


def test_frames_that_the_receiver_covers_are_freed_on_disk() -> None:
    link = on_disk(0, 1)
    instructions = link.handle(subscribe(next_seq=2, covered=2))
    assert of(instructions, io.FreeFrames) == [io.FreeFrames([0, 1])]


def test_a_full_disk_is_reported_once_and_writing_resumes_after_the_requested_checkpoint() -> None:
    link = running(limits=SPILLING)
    link.handle(subscribe())
    link.handle(produced(0, 1))
    full = io.FramesNotWritten(0, [0, 1], "the disk is full")
    assert to_coordinator(link.handle(full)) == [
        control.FramesNotSpilled(5, "the disk is full"),
        control.RequestCheckpoint(5),
    ]
    assert of(link.handle(produced(2)), io.WriteFrames) == []
    snapped(link, 0)
    link.handle(task.Produced(None, [(0, data(3, 3, epoch=1))]))
    assert to_coordinator(link.handle(control.Complete(1))) == []
    link.handle(acknowledged(2))
    (write,) = of(link.handle(acknowledged(3, covered=3)), io.WriteFrames)
    assert [seq for seq, _ in write.bodies] == [3]
    assert to_coordinator(link.handle(io.FramesNotWritten(0, [3], "the disk is full"))) == [
        control.RequestCheckpoint(5)
    ]


def test_a_requested_checkpoint_that_is_aborted_is_requested_again() -> None:
    link = running(limits=SPILLING)
    link.handle(produced(0))
    link.handle(io.FramesNotWritten(0, [0], "the disk is full"))
    assert to_coordinator(link.handle(control.AbortCheckpoint(1))) == [control.RequestCheckpoint(5)]


def test_a_process_that_cannot_read_its_spilled_frames_fails() -> None:
    link = on_disk(0)
    problem = SpillError("retained frames cannot be read: Input/output error")
    with pytest.raises(SpillError, match="Input/output error"):
        link.handle(io.FramesNotRead(problem))


# ---- slow receivers


def test_a_receiver_that_wants_few_rows_gets_few_frames() -> None:
    link = sending(adaptive=True)
    sent = [seq for frame in range(20) for seq in seqs_sent(link.handle(produced(frame)))]
    assert sent == list(range(16))
    instructions = link.handle(acknowledged(14, rows_requested=3, rows_at_once=6))
    assert handed(instructions) == [task.FrameRowsRequested(0, 6), task.MayProduce(False)]
    assert seqs_sent(instructions) == [16], "three frames of one row each, and two are on their way"
    instructions = link.handle(acknowledged(16, rows_requested=2, rows_at_once=7))
    assert task.FrameRowsRequested(0, 7) not in handed(instructions), "nearly the same number"
    assert seqs_sent(instructions) == [17]


def test_frames_to_receivers_without_python_functions_are_limited_by_number_only() -> None:
    link = sending(adaptive=False)
    sent = [seq for frame in range(20) for seq in seqs_sent(link.handle(produced(frame)))]
    instructions = link.handle(acknowledged(14, rows_requested=1))
    assert (sent, seqs_sent(instructions)) == (list(range(16)), [16, 17, 18, 19])


def test_the_rows_that_the_task_wants_are_sent_with_the_acknowledgement() -> None:
    link = running()
    link.handle(arrived(0))
    (ack,) = of(link.handle(task.FramesTaken(0, 1, rows_requested=70, rows_at_once=20)), io.SendAck)
    assert (ack.acknowledgement.rows_requested, ack.acknowledgement.rows_at_once) == (70, 20)


def seqs_sent(instructions: list[io.Instruction]) -> list[int]:
    return [frame.header.seq for frame in of(instructions, io.SendFrame)]


# ---- checkpoints


def snapped(link: LinkMachine, next_seq: int) -> None:
    """The task has taken all below ``next_seq`` when checkpoint 1 comes."""
    progress = task.TaskProgress([task.InputProgress(next_seq)], [2], [0], [0], False, 0, [], [], [], {})
    link.handle(task.SnapshotTaken(_snapshot(1), progress, persist=True))


def test_the_report_of_a_durable_snapshot_says_what_it_has_cost() -> None:
    link = running()
    for checkpoint in (1, 2, 3):
        progress = task.TaskProgress([task.InputProgress(1)], [2], [0], [0], False, 0, [], [], [], {})
        times = task.SnapshotTimes(checkpoint, 20.0, 30.0)
        link.handle(task.SnapshotTaken(_snapshot(checkpoint), progress, persist=True, times=times))
    for checkpoint in (1, 3):
        handle = TaskHandle(MIDDLE, checkpoint, {}, b"", {})
        found = link.handle(io.Persisted(handle, persist_ms=9.0, persist_cpu_ms=5.0))
        (said,) = [i.message for i in of(found, io.SendToCoordinator)]
        assert said == control.Snapshotted(link.process, handle, 9.0, 5.0, checkpoint, 20.0, 30.0)


def test_a_completed_checkpoint_truncates_logs_and_is_announced_to_senders() -> None:
    link = running()
    link.handle(arrived(0))
    snapped(link, 1)
    assert link.inputs[0].has_received
    instructions = link.handle(control.Complete(1, [StableMark(UP_LOG.log, 1)]))
    assert [ack.acknowledgement.covered for ack in of(instructions, io.SendAck)] == [1]
    assert not link.inputs[0].has_received
    assert link.store.stable(UP_LOG.log) == 1


def test_frames_are_retained_until_the_receiver_covers_them() -> None:
    link = running()
    link.handle(subscribe())
    link.handle(produced(0, 1))
    snapped(link, 0)
    link.handle(task.Produced(None, [(0, barrier(2, 1)), (0, data(3, 3, epoch=1))]))
    link.handle(control.Complete(1))
    assert link.outputs[0].frames.first == 0
    link.handle(acknowledged(4, covered=3))
    assert link.outputs[0].frames.first == 3


def test_a_subscription_says_what_is_covered() -> None:
    link = running()
    link.handle(produced(0, 1))
    link.handle(subscribe(next_seq=2, covered=1))
    assert link.outputs[0].frames.first == 1


def test_coverage_announced_while_disconnected_is_sent_after_the_connection() -> None:
    link = running()
    link.handle(arrived(0))
    snapped(link, 1)
    (connect,) = of(link.handle(io.Lost(FROM_UP)), io.Connect)
    assert connect.hello.covered == 0
    assert of(link.handle(control.Complete(1)), io.SendAck) == [], "there is no connection"
    instructions = link.handle(io.Connected(0, FROM_UP, connect.hello))
    assert [ack.acknowledgement.covered for ack in of(instructions, io.SendAck)] == [1]


def test_snapshots_are_persisted_except_those_of_a_replay() -> None:
    link = running()
    progress = task.TaskProgress([task.InputProgress(0)], [0], [0], [0], False, 0, [], [], [], {})
    kept = link.handle(task.SnapshotTaken(_snapshot(1), progress, persist=True))
    assert of(kept, io.Persist) == [io.Persist(_snapshot(1), FIRST)]
    assert link.handle(task.SnapshotTaken(_snapshot(2), progress, persist=False)) == []


def test_the_size_of_each_state_is_that_of_the_last_snapshot() -> None:
    link = running()
    progress = task.TaskProgress([task.InputProgress(3)], [7], [0], [0], False, 0, [], [], [], {})
    rows = pa.record_batch({"value": pa.array([1, 2, 3], pa.int64())})
    full = OperatorState({"rows": [Chunk(rows), Chunk(rows.slice(1))], "other": []})
    for kept, size in ((full, StateSize(5, 40)), (OperatorState({"rows": []}), StateSize(0, 0))):
        snapshot = TaskSnapshot(MIDDLE, 1, {"sum": kept, "map": OperatorState(values={"n": 1})}, b"")
        link.handle(task.SnapshotTaken(snapshot, progress, persist=True))
        assert link.counters.state == {"sum": size}


def _snapshot(checkpoint: int) -> TaskSnapshot:
    return TaskSnapshot(MIDDLE, checkpoint, {}, b"")


def test_a_failure_is_reported_with_task_and_kind() -> None:
    link = running()
    (failed,) = to_coordinator(link.fail(ValueError("no such column")))
    assert (failed.error, failed.message) == ("ClonosError", "middle[0]: ValueError: no such column")
    assert link.state is TaskState.FAILED


def test_a_replacement_holds_the_upstream_logs_that_came_with_its_own_before_any_frame() -> None:
    link = standby()
    link.handle(promote(SECOND, Restore(0)))
    link.handle(control.Replay(1, [OWN_LOG], [], [], [UP_LOG]))
    (holdings,) = to_coordinator(link.handle(sever(UP, Peer(INPUT, "up:2", SECOND))))
    assert holdings.logs == [UP_LOG]
    waiting = standby()
    waiting.handle(promote(SECOND, Restore(3)))
    waiting.handle(control.Replay(1, [OWN_LOG], [], [], [UP_LOG]))
    (holdings,) = to_coordinator(waiting.handle(sever(UP, Peer(INPUT, "up:2", SECOND))))
    assert holdings.logs == [UP_LOG], "its state is still loading"


def test_messages_of_the_task_after_its_process_has_failed_are_ignored() -> None:
    link = connected()
    link.handle(control.Replay(1, [], [], []))
    link.fail(ProtocolError("planted"))
    assert link.handle(task.StateChanged(TaskState.RUNNING)) == []
    assert link.handle(produced(0, log=OWN_LOG)) == []
    assert link.state is TaskState.FAILED
