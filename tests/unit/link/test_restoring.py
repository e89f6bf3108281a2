"""The state that a process starts from: which state is requested, which one the task has, where the channels begin."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from clonos_py.causal.log import CausalStore
from clonos_py.channel.frames import FrameHeader, FrameKind, PassThrough
from clonos_py.link import instructions as io
from clonos_py.link.feed_parts import PointPart, encode_part
from clonos_py.link.following import Following
from clonos_py.link.receiving import InputChannel
from clonos_py.link.restoring import RestoredFrames, Restoring
from clonos_py.link.sending import OutputChannel
from clonos_py.model.errors import CheckpointError, StorageUnavailableError, UnreadableCheckpointError
from clonos_py.model.messages import Follow, LoadDelayed, NotPrepared, Prepared, Restore
from clonos_py.model.snapshots import FrameRecord, FrameRun
from clonos_py.process.contract import FeedPosition, InputProgress, RestoreState, TaskProgress
from tests.unit.link.links import FIRST, INPUT, OUTPUT, PLAN, SECOND, THIRD, handed, of, to_coordinator
from tests.unit.task.plans import DOWN, MIDDLE, SCHEMA, UP

FEED = 7
"""The connection of the feed."""


def progress(received: int, sent: int) -> TaskProgress:
    inputs = [InputProgress(received, 0, False, False)]
    return TaskProgress(inputs, [sent], [], [], False, 0, [], [], [], {})


def restore(checkpoint: int, received: int = 0, sent: int = 0) -> Restore:
    return Restore(checkpoint, progress=msgspec.msgpack.encode(progress(received, sent)))


def loaded(which: Restore, frames: Mapping[int, Sequence[FrameRun]] | None = None) -> io.Loaded:
    return io.Loaded(which, {}, dict(frames or {}), [])


class Process:
    """A standby of the middle task, without the rest of its link."""

    def __init__(self) -> None:
        self.input, self.output = InputChannel(0, INPUT, UP, 16), OutputChannel(0, OUTPUT, DOWN, frozenset())
        self.following = Following(PLAN, MIDDLE, CausalStore(PLAN.logs))
        frames = RestoredFrames(PLAN, PassThrough(), False)
        self.restoring = Restoring(5, MIDDLE, [self.input], [self.output], frames, self.following)

    @property
    def positions(self) -> tuple[int, int, int]:
        """The next frame received, the one below which the restart point covers all, and the next frame sent."""
        return self.input.next_seq, self.input.covered, self.output.frames.next_seq

    def point(self, epoch: int, received: int, sent: int, committables: dict[int, dict[str, list[bytes]]]) -> object:
        """The feed sends a point that needs no frames. Returns what the task is given."""
        if self.following.connection is None:
            (connect,) = of(self.following.follow(Follow("a:1", FIRST)), io.Connect)
            self.following.connected(io.Connected(connect.input, FEED, connect.hello))
        part = PointPart({}, progress(received, sent), FeedPosition(epoch, 0, 0), [], committables, [sent])
        header = FrameHeader(0, FrameKind.FEED_POINT, 0, 0, False, 0, 0, 0, 0, (), [], meta=encode_part(part))
        (state,) = handed(self.restoring.feed_received(io.FeedReceived(FEED, header, None)))
        return state


@pytest.fixture
def process() -> Process:
    return Process()


def test_a_process_without_a_checkpoint_is_ready_when_it_is_promoted(process: Process) -> None:
    assert not process.restoring.ready
    assert process.restoring.promote(FIRST, Restore(0)) == []
    assert process.restoring.ready
    assert process.positions == (0, 0, 0)


def test_a_standby_requests_the_state_of_a_checkpoint_once(process: Process) -> None:
    assert process.restoring.prepare(restore(3)) == [io.Load(restore(3), ahead=True)]
    assert process.restoring.prepare(restore(3)) == []


def test_a_standby_with_the_state_of_a_checkpoint_reports_it_and_starts_there(process: Process) -> None:
    process.restoring.prepare(restore(3, received=8, sent=5))
    instructions = process.restoring.loaded_ahead(loaded(restore(3, received=8, sent=5)))
    assert to_coordinator(instructions) == [Prepared(5, 3)]
    assert handed(instructions) == [RestoreState(3, {}, progress(8, 5), ahead=True, closed=frozenset())]
    assert process.restoring.promote(SECOND, restore(3, received=8, sent=5)) == []
    assert process.restoring.ready
    assert process.positions == (8, 8, 5)


def test_a_process_that_is_promoted_while_its_state_is_on_its_way_waits_for_it(process: Process) -> None:
    process.restoring.prepare(restore(3))
    assert process.restoring.promote(SECOND, restore(3)) == []
    assert not process.restoring.ready
    (state,) = handed(process.restoring.loaded(loaded(restore(3))))
    assert not state.ahead
    assert process.restoring.ready


def test_a_process_with_an_older_state_requests_that_of_its_restart_point(process: Process) -> None:
    process.restoring.loaded_ahead(loaded(restore(3)))
    assert process.restoring.promote(SECOND, restore(4)) == [io.Load(restore(4), ahead=False)]
    assert process.restoring.is_awaited(restore(4))
    assert not process.restoring.is_awaited(restore(3))
    assert not process.restoring.ready


def test_a_state_that_a_standby_could_not_load_may_be_requested_again(process: Process) -> None:
    process.restoring.prepare(restore(3))
    failed = io.LoadFailed(restore(3), CheckpointError("it was deleted"))
    assert to_coordinator(process.restoring.not_loaded_ahead(failed)) == [NotPrepared(5, 3, "it was deleted")]
    assert process.restoring.prepare(restore(3)) == [io.Load(restore(3), ahead=True)]


def test_a_promoted_process_requests_its_state_as_long_as_storage_does_not_answer(process: Process) -> None:
    process.restoring.promote(SECOND, restore(3))
    silence = io.LoadFailed(restore(3), StorageUnavailableError("no answer"))
    load = io.Load(restore(3), ahead=False)
    assert process.restoring.not_loaded(silence) == [io.SendToCoordinator(LoadDelayed(5, "no answer")), load]
    assert process.restoring.not_loaded(silence) == [load], "the wait is reported once"
    process.restoring.loaded(loaded(restore(3)))
    assert process.restoring.ready


def test_a_feed_point_replaces_what_was_loaded_and_what_is_on_its_way(process: Process) -> None:
    process.restoring.loaded_ahead(loaded(restore(3)))
    process.restoring.prepare(restore(4))
    process.point(4, 9, 6, {})
    assert not process.restoring.is_awaited(restore(4))
    process.following.forget()
    assert process.restoring.promote(THIRD, restore(3)) == [io.Disconnect(FEED), io.Load(restore(3), ahead=False)]


def test_a_standby_that_is_fed_reports_a_checkpoint_when_a_point_after_it_is_loaded(process: Process) -> None:
    process.point(3, 9, 6, {})
    assert process.restoring.prepare(restore(3)) == [io.SendToCoordinator(Prepared(5, 3))]
    assert process.restoring.prepare(restore(4)) == []


def test_a_task_that_starts_at_a_feed_point_keeps_its_restart_point(process: Process) -> None:
    """If it fails again, it needs the frames since its restart point."""
    process.point(3, 9, 6, {})
    assert process.restoring.promote(SECOND, restore(3, received=8, sent=5)) == [io.Disconnect(FEED)]
    assert process.restoring.ready
    assert process.positions == (9, 8, 6)
    assert process.restoring.restart_point == progress(8, 5)
    assert not process.restoring.is_awaited(restore(3, received=8, sent=5))
    assert process.restoring.begin() == FeedPosition(3, 0, 0)
    assert process.restoring.fed is None


def test_a_feed_point_of_an_older_checkpoint_is_of_no_use(process: Process) -> None:
    process.point(3, 9, 6, {})
    assert process.restoring.promote(SECOND, restore(4)) == [io.Disconnect(FEED), io.Load(restore(4), ahead=False)]
    assert process.restoring.fed is None


def barrier_in_flight(seq: int) -> FrameRun:
    return FrameRun(SCHEMA, [FrameRecord(seq, FrameKind.BARRIER.value, 2, 0, False, 3, b"", 0, 0)], [None])


def test_frames_in_flight_are_retained_again(process: Process) -> None:
    process.restoring.promote(SECOND, restore(3, sent=5))
    process.restoring.loaded(loaded(restore(3, sent=5), {0: [barrier_in_flight(4)]}))
    assert (process.output.frames.first, process.output.frames.next_seq) == (4, 5)


def test_frames_in_flight_that_do_not_reach_the_position_of_their_output_are_an_error(process: Process) -> None:
    with pytest.raises(UnreadableCheckpointError, match="those before 6 belong there"):
        process.restoring.loaded(loaded(restore(3, sent=6), {0: [barrier_in_flight(4)]}))


def test_progress_that_cannot_be_read_names_the_task(process: Process) -> None:
    with pytest.raises(CheckpointError, match=r"the progress of middle\[0\] cannot be read"):
        process.restoring.loaded(loaded(Restore(3, progress=b"?")))
