"""Channel state: which frames a snapshot is stored with, and how they are used after a restart."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest

from clonos_py.channel.frames import FrameKind, PassThrough
from clonos_py.checkpoint.frames import between
from clonos_py.link import instructions as io
from clonos_py.link.machine import LinkMachine
from clonos_py.model import messages as control
from clonos_py.model.errors import CheckpointError, ProtocolError
from clonos_py.model.messages import Restore
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.model.retention import Spill
from clonos_py.model.snapshots import FrameRecord, FrameRun, StoredFrames, TaskHandle, TaskSnapshot
from clonos_py.process import contract as task
from clonos_py.process.contract import ChannelLimits, TaskState
from clonos_py.protocols.parts import channel_state
from clonos_py.settings.protocols import INDUCED, UNALIGNED, UNCOORDINATED
from tests.machines import link_machine
from tests.unit.link.links import (
    FROM_UP,
    PLAN,
    SECOND,
    TO_DOWN,
    UP_LOG,
    arrived,
    of,
    opening,
    produced,
    promote,
    subscribe,
    to_coordinator,
)
from tests.unit.task.plans import DOWN, MIDDLE, SCHEMA, UP, barrier, keys, rows, three

STORED = "state/000000000001.middle-0.1.1.1.chunks#0+8:0123456789abcdef"


def connected_link(protocol: ProtocolProperties, limits: ChannelLimits) -> LinkMachine:
    """A running link with a receiver."""
    link = link_machine(replace(PLAN, protocol=protocol), MIDDLE, 5, PassThrough(), limits)
    (connect,) = of(link.handle(promote()), io.Connect)
    link.handle(io.Connected(0, FROM_UP, connect.hello))
    link.handle(opening())
    link.handle(control.Replay(1, [], [], []))
    link.handle(task.StateChanged(TaskState.RUNNING))
    link.handle(subscribe())
    return link


def unaligned(limits: ChannelLimits = ChannelLimits()) -> LinkMachine:  # noqa: B008 - frozen
    return connected_link(UNALIGNED, limits)


def progress(taken: int, cut: int) -> task.TaskProgress:
    return task.TaskProgress([task.InputProgress(taken)], [cut], [0], [0], False, 0, [], [], [], {})


def snapped(link: LinkMachine, taken: int, cut: int, checkpoint: int = 1) -> list[io.Instruction]:
    """The task takes a snapshot, whose barrier is the last of the frames below ``cut``."""
    link.handle(task.Produced(None, [(0, barrier(cut - 1, checkpoint))]))
    snapshot = TaskSnapshot(MIDDLE, checkpoint, {}, b"")
    return link.handle(task.SnapshotTaken(snapshot, progress(taken, cut), persist=True))


def reported(next_seq: int, checkpoint: int = 1, taken: int = 0) -> io.Acknowledged:
    """The receiver's report of a snapshot at this frame."""
    return io.Acknowledged(TO_DOWN, io.Acknowledgement(taken, [], 0, 0, 0, io.SnapshotPosition(checkpoint, next_seq)))


def parts_of(persist: io.Persist) -> list[StoredFrames | list[tuple[int, list[int] | None]]]:
    """The parts stored with a snapshot: stored frames, or the numbers and keys of new ones."""
    return [part if isinstance(part, StoredFrames) else content(part) for part in persist.snapshot.frames.get(0, ())]


def content(run: FrameRun) -> list[tuple[int, list[int] | None]]:
    return [
        (record.seq, keys(pa.ipc.read_record_batch(body, run.schema)) if body else None)
        for record, body in zip(run.records, run.bodies, strict=True)
    ]


def frames_of(persist: io.Persist) -> list[tuple[int, list[int] | None]]:
    """Numbers and keys of the frames that are stored with a snapshot for the first time."""
    return [frame for part in parts_of(persist) if not isinstance(part, StoredFrames) for frame in part]


def test_a_snapshot_waits_for_the_snapshot_of_the_receiver() -> None:
    link = unaligned()
    link.handle(produced(0, 1))
    assert of(snapped(link, taken=0, cut=3), io.Persist) == []
    (persist,) = of(link.handle(reported(1)), io.Persist)
    assert frames_of(persist) == [(1, [1]), (2, None)], "and the barrier"


def test_a_receiver_may_take_its_snapshot_first() -> None:
    link = unaligned()
    link.handle(produced(0, 1))
    link.handle(reported(2))
    (persist,) = of(snapped(link, taken=0, cut=3), io.Persist)
    assert frames_of(persist) == [(2, None)]


def test_frames_that_the_receiver_takes_after_its_snapshot_are_stored() -> None:
    link = unaligned()
    link.handle(produced(0, 1))
    link.handle(reported(0, taken=2))
    (persist,) = of(snapped(link, taken=0, cut=3), io.Persist)
    assert frames_of(persist) == [(0, [0]), (1, [1]), (2, None)]


def test_the_report_of_another_checkpoint_does_not_count() -> None:
    link = unaligned()
    link.handle(produced(0))
    link.handle(reported(1, checkpoint=1))
    assert of(snapped(link, taken=0, cut=2, checkpoint=2), io.Persist) == []


def test_an_aborted_checkpoint_is_not_stored() -> None:
    link = unaligned()
    link.handle(produced(0))
    snapped(link, taken=0, cut=2)
    link.handle(control.AbortCheckpoint(1))
    assert of(link.handle(reported(0)), io.Persist) == []


def durable(persist: io.Persist) -> io.Persisted:
    frames = {index: [placed(part) for part in parts] for index, parts in persist.snapshot.frames.items()}
    return io.Persisted(TaskHandle(MIDDLE, persist.snapshot.checkpoint, {}, b"", {}, frames=frames), 1.0)


def placed(part: StoredFrames | FrameRun) -> StoredFrames:
    if isinstance(part, StoredFrames):
        return part
    return StoredFrames(f"{STORED}{part.start}", part.start, part.stop, part.rows)


def test_a_frame_is_stored_once() -> None:
    link = unaligned()
    link.handle(produced(0))
    link.handle(reported(0))
    (persist,) = of(snapped(link, taken=0, cut=2), io.Persist)
    link.handle(durable(persist))
    link.handle(reported(0, checkpoint=2))
    (later,) = of(snapped(link, taken=0, cut=3, checkpoint=2), io.Persist)
    assert parts_of(later) == [StoredFrames(f"{STORED}0", 0, 2, 1), [(2, None)]]
    link.handle(durable(later))
    link.handle(reported(1, checkpoint=3))
    (last,) = of(snapped(link, taken=0, cut=4, checkpoint=3), io.Persist)
    assert parts_of(last) == [StoredFrames(f"{STORED}0", 1, 2, 0), StoredFrames(f"{STORED}2", 2, 3, 0), [(3, None)]]


def test_frames_before_the_stored_ones_are_stored_when_a_receiver_needs_them() -> None:
    """A replaced receiver may take its next snapshot earlier than its predecessor took its last."""
    link = unaligned()
    link.handle(produced(0, 1))
    link.handle(reported(1))
    (persist,) = of(snapped(link, taken=0, cut=3), io.Persist)
    link.handle(durable(persist))
    link.handle(reported(0, checkpoint=2))
    (later,) = of(snapped(link, taken=0, cut=4, checkpoint=2), io.Persist)
    assert parts_of(later) == [[(0, [0])], StoredFrames(f"{STORED}1", 1, 3, 1), [(3, None)]]


def test_many_frames_are_stored_in_runs_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel_state, "RUN_BYTES", 16)
    link = unaligned()
    link.handle(produced(*range(5)))
    link.handle(reported(0))
    (persist,) = of(snapped(link, taken=0, cut=6), io.Persist)
    assert [[seq for seq, _ in part] for part in parts_of(persist) if isinstance(part, list)] == [
        [0, 1],
        [2, 3],
        [4, 5],
    ]


def test_frames_on_disk_are_read_before_a_snapshot_is_persisted() -> None:
    link = unaligned(ChannelLimits(policy=Spill.BUFFER, window=1))
    link.handle(produced(0, 1))
    link.handle(io.FramesWritten(0, [(0, 100), (1, 101)]))
    link.handle(reported(0))
    instructions = snapped(link, taken=0, cut=3)
    assert of(instructions, io.Persist) == []
    (read_frames,) = [read for read in of(instructions, io.ReadFrames) if read.checkpoint == 1]
    bodies = [(seq, rows(seq)) for seq, _ in read_frames.places]
    (persist,) = of(link.handle(io.FramesRead(0, bodies, 1)), io.Persist)
    assert frames_of(persist) == [(0, [0]), (1, [1]), (2, None)]


def test_at_most_once_no_frames_are_stored() -> None:
    link = link_machine(replace(PLAN, protocol=UNALIGNED), MIDDLE, 5, PassThrough(), retain=False)
    link.handle(promote())
    link.handle(control.Replay(1, [], [], []))
    link.handle(task.StateChanged(TaskState.RUNNING))
    link.handle(produced(0, 1))
    (persist,) = of(snapped(link, taken=0, cut=3), io.Persist)
    assert persist.snapshot.frames == {}


def test_a_snapshot_is_reported_to_senders_at_once_and_after_each_reconnection() -> None:
    link = unaligned()
    link.handle(arrived(0))
    (ack,) = of(snapped(link, taken=1, cut=1), io.SendAck)
    assert ack.acknowledgement.snapshot == io.SnapshotPosition(1, 1)
    (connect,) = of(link.handle(io.Lost(FROM_UP)), io.Connect)
    (again,) = of(link.handle(io.Connected(0, FROM_UP, connect.hello)), io.SendAck)
    assert again.acknowledgement.snapshot == io.SnapshotPosition(1, 1)


# ---- after a restart


def restarted(
    *runs: FrameRun,
    cut: int = 3,
    plan: PhysicalPlan = replace(PLAN, protocol=UNALIGNED),  # noqa: B008 - frozen
    limits: ChannelLimits = ChannelLimits(),  # noqa: B008 - frozen
) -> LinkMachine:
    """A link that starts from checkpoint 1, before which frames below ``cut`` had been cut."""
    link = link_machine(plan, MIDDLE, 5, PassThrough(), limits)
    restore = Restore(1, progress=msgspec.msgpack.encode(progress(0, cut)))
    link.handle(promote(restore=restore))
    link.handle(io.Loaded(restore, {}, {0: list(runs)}))
    return link


def stored(*frames: tuple[int, int | None], schema: pa.Schema = SCHEMA) -> FrameRun:
    """The stored run of frames with these numbers and keys; without a key a frame is a barrier."""
    bodies = [rows(key).rename_columns(schema.names).serialize() if key is not None else None for _, key in frames]
    records = [
        FrameRecord(seq, FrameKind.DATA, 0, 0, False, 0, b"", 1, body.size)
        if body is not None
        else FrameRecord(seq, FrameKind.BARRIER, 0, 0, False, 1, b"", 0, 0)
        for (seq, _), body in zip(frames, bodies, strict=True)
    ]
    return FrameRun(schema, records, bodies)


def test_frames_in_flight_are_sent_again_from_the_next_one_of_the_receiver() -> None:
    link = restarted(stored((1, 7)), stored((2, None)))
    sent = of(link.handle(subscribe(next_seq=1)), io.SendFrame)
    assert [(frame.header.seq, frame.header.kind, keys(frame.body)) for frame in sent] == [
        (1, FrameKind.LOG_ONLY, []),
        (1, FrameKind.DATA, [7]),
        (2, FrameKind.BARRIER, []),
    ]


@pytest.mark.parametrize("policy", [Spill.IN_MEMORY, Spill.REGENERATE])
def test_stored_frames_are_retained_although_later_ones_can_be_made_again(policy: Spill) -> None:
    up, middle, down = PLAN.vertices
    plan = replace(PLAN, vertices=(up, replace(middle, regenerates=True), down))
    link = restarted(stored((1, 7), (2, None)), plan=plan, limits=ChannelLimits(policy=policy))
    begin = [i.item for i in link.handle(control.Replay(1, [], [], [])) if isinstance(i, io.SendToTask)]
    assert [item.at_landmark for item in begin if isinstance(item, task.Begin)] == [False]
    for _ in range(2):
        sent = of(link.handle(subscribe(next_seq=1)), io.SendFrame)
        assert [frame.header.seq for frame in sent] == [1, 1, 2]
        link.handle(io.Acknowledged(TO_DOWN, io.Acknowledgement(3, [], 0, 0, 0, io.SnapshotPosition(0, 0))))
        link.handle(io.Lost(TO_DOWN))


@pytest.mark.parametrize(
    "runs", [[stored((1, 7))], [stored((0, 7)), stored((2, None))], [stored((2, None), (3, None))]]
)
def test_a_missing_frame_is_an_error(runs: list[FrameRun]) -> None:
    with pytest.raises(CheckpointError, match=r"are stored, those before 3 belong there.*--fresh"):
        restarted(*runs)


def test_frames_of_other_columns_are_an_error() -> None:
    with pytest.raises(CheckpointError, match="was in flight with other columns than the job has now"):
        restarted(stored((2, 7), schema=pa.schema([("other", pa.int64())])))


def test_a_stored_frame_that_cannot_be_read_is_an_error() -> None:
    good = stored((2, 7))
    strange = msgspec.structs.replace(good.records[0], kind=9)
    for run in (replace(good, records=[strange]), replace(good, bodies=[pa.py_buffer(b"no message")])):
        with pytest.raises(CheckpointError, match=r"frame 2 of .* cannot be read: .*--fresh"):
            restarted(run)


class CountingCodec(PassThrough):
    """Counts the frames that are decoded from storage."""

    def __init__(self) -> None:
        self.made = 0

    def body(self, message: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
        self.made += 1
        return super().body(message, schema)


def prepared(link: LinkMachine, checkpoint: int, cut: int, *runs: FrameRun) -> Restore:
    restore = Restore(checkpoint, progress=msgspec.msgpack.encode(progress(0, cut)))
    link.handle(control.Prepare(restore))
    link.handle(io.Loaded(restore, {}, {0: list(runs)}))
    return restore


def replayed_by(link: LinkMachine, restore: Restore, next_seq: int) -> list[tuple[int, list[int]]]:
    """Numbers and keys of the frames that a receiver gets after the standby has been promoted."""
    link.handle(promote(restore=restore))
    sent = of(link.handle(subscribe(next_seq=next_seq)), io.SendFrame)
    return [(frame.header.seq, keys(frame.body)) for frame in sent if frame.header.kind is FrameKind.DATA]


def test_a_standby_decodes_each_stored_frame_once() -> None:
    codec = CountingCodec()
    link = link_machine(replace(PLAN, protocol=UNCOORDINATED), MIDDLE, 5, codec)
    old, new = stored((0, 7), (1, 8), (2, 9)), stored((3, 10))
    prepared(link, 1, 3, old)
    restore = prepared(link, 2, 4, between(old, StoredFrames("", 1, 3, 2)), new)
    assert codec.made == 4
    assert replayed_by(link, restore, 1) == [(1, [8]), (2, [9]), (3, [10])]


def test_a_frame_of_another_run_of_frames_replaces_that_of_the_same_number() -> None:
    """After a rollback, a job cuts its frames again, and they may differ."""
    link = link_machine(replace(PLAN, protocol=UNALIGNED), MIDDLE, 5, PassThrough())
    prepared(link, 1, 2, stored((0, 7), (1, 8)))
    restore = prepared(link, 2, 2, stored((0, 7), (1, 9)))
    assert replayed_by(link, restore, 0) == [(0, [7]), (1, [9])]


# ---- snapshots that tasks take alone


def alone(limits: ChannelLimits = ChannelLimits()) -> LinkMachine:  # noqa: B008 - frozen
    return connected_link(UNCOORDINATED, limits)


def test_a_snapshot_taken_alone_holds_the_frames_that_no_restart_point_covers_and_upstream_logs() -> None:
    link = alone()
    link.handle(arrived(0, UP_LOG))
    link.handle(produced(0, 1))
    (persist,) = of(alone_snapped(link, taken=1, cut=2), io.Persist)
    assert frames_of(persist) == [(0, [0]), (1, [1])]
    assert persist.snapshot.logs == [UP_LOG]


def test_while_a_snapshot_is_stored_only_the_newest_later_one_waits() -> None:
    link = alone()
    link.handle(produced(0))
    (first,) = of(alone_snapped(link, taken=0, cut=1, checkpoint=3), io.Persist)
    assert [of(alone_snapped(link, taken=0, cut=1, checkpoint=n), io.Persist) for n in (4, 5)] == [[], []]
    done = io.Persisted(TaskHandle(MIDDLE, first.snapshot.checkpoint, {}, b"", {}), 1.0)
    assert [later.snapshot.checkpoint for later in of(link.handle(done), io.Persist)] == [5]


def test_no_snapshot_is_stored_while_logs_may_be_missing() -> None:
    link = alone()
    link.store.incomplete = (UP_LOG.log,)
    assert of(alone_snapped(link, taken=0, cut=0), io.Persist) == []


def test_a_receiver_ahead_of_the_log_is_an_error() -> None:
    link = alone()
    link.handle(acknowledging(covered=2))
    with pytest.raises(ProtocolError, match=r"covers the frames below 2 .* only those below 0"):
        alone_snapped(link, taken=0, cut=0)


def test_a_promoted_process_reports_the_logs_in_its_snapshot_after_it_has_loaded_it() -> None:
    link = link_machine(replace(PLAN, protocol=UNCOORDINATED), MIDDLE, 5, PassThrough())
    restore = Restore(1, progress=msgspec.msgpack.encode(progress(1, 0)))
    link.handle(promote(SECOND, restore))
    sever = control.Sever(1, [], [(UP, SECOND), (MIDDLE, SECOND)], control.Complete(1))
    assert to_coordinator(link.handle(sever)) == []
    (answer,) = to_coordinator(link.handle(io.Loaded(restore, {}, {}, [UP_LOG])))
    assert answer.logs == [UP_LOG]


def alone_snapped(link: LinkMachine, taken: int, cut: int, checkpoint: int = 1) -> list[io.Instruction]:
    snapshot = TaskSnapshot(MIDDLE, checkpoint, {}, b"")
    return link.handle(task.SnapshotTaken(snapshot, progress(taken, cut), persist=True))


def acknowledging(covered: int) -> io.Acknowledged:
    return io.Acknowledged(TO_DOWN, io.Acknowledgement(0, [], 0, 0, covered, io.SnapshotPosition(0, 0)))


def replacement_that_may_go_back() -> tuple[LinkMachine, Restore]:
    """A promoted process that starts from checkpoint 7 and may have to go back to 3."""
    link = link_machine(replace(three(sharing_depth=0), protocol=UNCOORDINATED), DOWN, 5, PassThrough())
    found = task.TaskProgress([task.InputProgress(8)], [], [0], [0], False, 0, [], [], [], {})
    restore = Restore(7, progress=msgspec.msgpack.encode(found), committables={"down": [b"3", b"7"]}, fallback=FALLBACK)
    link.handle(control.Promote(1, SECOND, restore, [control.Peer(PLAN.inputs[DOWN][0], "middle:1", SECOND)]))
    return link, restore


def test_a_replacement_that_may_still_go_back_covers_and_commits_as_far_as_its_fallback() -> None:
    link, restore = replacement_that_may_go_back()
    told_ = link.handle(io.Loaded(restore, {}, {}, []))
    assert of(told_, io.Commit) == [io.Commit(3, {"down": [b"3"]})]
    (connect,) = of(told_, io.Connect)
    assert (connect.hello.next_seq, connect.hello.covered) == (8, 5)
    link.handle(control.Replay(1, [], [], []))
    later = link.handle(control.Complete(7))
    assert of(later, io.Commit) == [io.Commit(7, {"down": [b"3", b"7"]})]
    assert link.inputs[0].covered == 8


FALLBACK = control.Fallback(3, {"down": [b"3"]}, [5])


@pytest.mark.parametrize("at", ["promoted", "loaded"])
def test_a_checkpoint_that_completes_before_a_replacement_begins_is_committed_when_it_begins(at: str) -> None:
    """The snapshot it starts from has become one to which it never goes back; nobody says so again."""
    link, restore = replacement_that_may_go_back()
    told_ = [] if at == "loaded" else link.handle(control.Complete(7))
    told_ += link.handle(io.Loaded(restore, {}, {}, []))
    told_ += link.handle(control.Complete(7)) if at == "loaded" else []
    assert of(told_, io.Commit) == [io.Commit(3, {"down": [b"3"]})]
    assert of(link.handle(control.Replay(1, [], [], [])), io.Commit) == [io.Commit(7, {"down": [b"3", b"7"]})]
    assert link.inputs[0].covered == 8


def test_a_checkpoint_that_leaves_the_fallback_where_it_is_commits_nothing_at_the_begin() -> None:
    link, restore = replacement_that_may_go_back()
    link.handle(control.Complete(3))
    link.handle(io.Loaded(restore, {}, {}, []))
    assert of(link.handle(control.Replay(1, [], [], [])), io.Commit) == []
    assert link.inputs[0].covered == 5


def test_a_snapshot_taken_alone_is_stored_although_a_new_coordinator_voids_its_number() -> None:
    """Tasks that number their epochs themselves may reach the number of a manifest."""
    link = connected_link(INDUCED, ChannelLimits(policy=Spill.BUFFER, window=1))
    link.handle(produced(0, 1))
    link.handle(io.FramesWritten(0, [(0, 100), (1, 101)]))
    snapshot = TaskSnapshot(MIDDLE, 8, {}, b"")
    instructions = link.handle(task.SnapshotTaken(snapshot, progress(0, 2), persist=True))
    (read_frames,) = [read for read in of(instructions, io.ReadFrames) if read.checkpoint == 8]
    link.handle(control.AbortCheckpoint(8))
    bodies = [(seq, rows(seq)) for seq, _ in read_frames.places]
    assert of(link.handle(io.FramesRead(0, bodies, 8)), io.Persist)
