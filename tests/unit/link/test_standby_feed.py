"""The feed of a standby, and what the standby makes of it: parts sent once, points one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import replace

import msgspec
import pyarrow as pa
import pytest

from clonos_py.causal.log import CausalStore
from clonos_py.channel.frames import FrameKind, PassThrough
from clonos_py.link import instructions as io
from clonos_py.link.causal_outputs import CausalOutputs
from clonos_py.link.feed_parts import PointPart, decode_part
from clonos_py.link.following import Following
from clonos_py.link.recording import LogRecording
from clonos_py.link.standby_feed import StandbyFeed
from clonos_py.model.errors import CodecError, ProtocolError
from clonos_py.model.ids import Attempt, LogId
from clonos_py.model.messages import Follow
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.record_limits import RecordLimit
from clonos_py.model.segments import ALL_LOGS, LogSegment, StableMark
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.process.contract import FeedPointTaken, FeedPosition, FeedRequested, RestoreState, TaskProgress
from tests.unit.job.graphs import graph, task

FIRST, SECOND = Attempt(1, 1), Attempt(1, 2)
PLAN = replace(graph("ab"), standby_feed_us=100_000)
SINK = task("b")
"""It has no outputs: the feed of frames is tested by the simulator."""


class Ends:
    """The feed of a process, and a standby that follows it on connection 7."""

    def __init__(self, plan: PhysicalPlan = PLAN) -> None:
        self.store = CausalStore(PLAN.logs)
        outputs = CausalOutputs(PLAN, SINK, self.store, PassThrough())
        self.recording = LogRecording(plan.recorded)
        self.feed = StandbyFeed(plan, SINK, [], self.store, PassThrough(), outputs, self.recording)
        self.held = CausalStore(PLAN.logs)
        self.standby = Following(plan, SINK, self.held)
        (connect,) = self.standby.follow(Follow("address", FIRST))
        assert isinstance(connect, io.Connect)
        self.hello = connect.hello
        assert self.standby.connected(io.Connected(connect.input, 7, self.hello)) == []

    def subscribe(self) -> list[io.Instruction]:
        return self.feed.subscribed(io.Subscribed(7, self.hello), FIRST) + self.feed.request()

    def point(self, offset: int, tables: Mapping[str, Iterable[Chunk]]) -> list[io.SendFrame]:
        """The task takes a point: the parts that are sent."""
        state = OperatorState({name: list(chunks) for name, chunks in tables.items()}, {"n": offset})
        progress = TaskProgress([], [], [], [], False, offset, [], [], [], {})
        taken = FeedPointTaken({"count": state}, progress, FeedPosition(3, 10, offset), [])
        return [sent for sent in self.feed.taken(taken, {}) if isinstance(sent, io.SendFrame)]

    def receive(self, parts: Iterable[io.SendFrame]) -> RestoreState | None:
        last = None
        for part in parts:
            last = self.standby.received(io.FeedReceived(7, part.header, part.body))
        return last

    def loaded(self, point: RestoreState) -> list[io.Instruction]:
        """The standby's task has loaded it: what the feed does then."""
        (ack,) = self.standby.acknowledge(point.feed_point)
        assert isinstance(ack, io.SendAck)
        return self.feed.acknowledged(io.Acknowledged(7, ack.acknowledgement))


def chunk(number: int) -> Chunk:
    return Chunk(pa.record_batch({"n": [number]}))


REQUESTED = [io.SendToTask(FeedRequested())]


def test_a_point_has_all_state_and_the_next_one_what_has_changed() -> None:
    ends, one, two, three = Ends(), chunk(1), chunk(2), chunk(3)
    assert ends.subscribe() == REQUESTED
    parts = ends.point(20, {"rows": [one, two]})
    assert [part.header.kind for part in parts] == [FrameKind.FEED_CHUNK, FrameKind.FEED_CHUNK, FrameKind.FEED_POINT]
    first = ends.receive(parts)
    assert first is not None
    assert ends.loaded(first) == REQUESTED

    parts = ends.point(30, {"rows": [one, three], "more": [one]})
    assert [part.header.kind for part in parts] == [FrameKind.FEED_CHUNK, FrameKind.FEED_POINT]
    second = ends.receive(parts)
    assert second is not None
    (state,) = second.operators["count"]
    assert (state.values, second.progress and second.progress.log_offset) == ({"n": 30}, 30)
    assert [c.rows["n"].to_pylist() for c in state.tables["rows"]] == [[1], [3]]
    (earlier,) = first.operators["count"]
    assert state.tables["rows"][0] is earlier.tables["rows"][0], "the operator reuses what it has loaded"
    assert state.tables["more"][0] is state.tables["rows"][0]


def test_the_next_point_is_requested_when_the_last_one_is_loaded() -> None:
    ends = Ends()
    ends.subscribe()
    parts = ends.point(20, {"rows": [chunk(n) for n in range(20)]})
    assert ends.feed.request() == []
    point = ends.receive(parts)
    assert ends.standby.acknowledge() == [], "the point is not loaded"
    assert point is not None
    assert ends.loaded(point) == REQUESTED


def test_a_task_that_lacks_logs_feeds_nobody_before_they_have_arrived() -> None:
    ends = Ends()
    ends.store.incomplete = (LogId(5),)
    assert ends.subscribe() == []
    ends.store.incomplete = ()
    assert ends.feed.logs_arrived() == REQUESTED


def test_a_process_that_is_another_attempt_or_has_not_begun_refuses() -> None:
    for attempt in (None, SECOND):
        ends = Ends()
        assert ends.feed.subscribed(io.Subscribed(7, ends.hello), attempt) == [io.Disconnect(7)]


def test_a_point_is_of_use_to_the_next_attempt_if_no_checkpoint_has_passed_it() -> None:
    ends = Ends()
    ends.subscribe()
    ends.receive(ends.point(20, {}))
    usable = [
        (attempt, checkpoint)
        for attempt, checkpoint in itertools.product((FIRST, SECOND, Attempt(1, 3), Attempt(2, 2)), (2, 3, 4))
        if ends.standby.usable(attempt, checkpoint)
    ]
    assert usable == [(SECOND, 2), (SECOND, 3)]
    ends.standby.follow(Follow("address", SECOND))
    assert ends.standby.usable(Attempt(1, 3), 2) is None, "its state is that of the first"


def test_a_lost_connection_is_opened_again_and_everything_comes_again() -> None:
    ends, one = Ends(), chunk(1)
    ends.subscribe()
    ends.receive(ends.point(20, {"rows": [one]}))
    ends.feed.lost(7)
    (connect,) = ends.standby.lost(io.Lost(7))
    assert isinstance(connect, io.Connect)
    assert ends.standby.usable(SECOND, 3) is not None, "the task has the point, whatever its predecessor does"
    ends.standby.connected(io.Connected(connect.input, 7, connect.hello))
    ends.feed.taken(
        FeedPointTaken({}, TaskProgress([], [], [], [], False, 0, [], [], [], {}), FeedPosition(3, 1, 2), []), {}
    )
    ends.subscribe()
    assert len(ends.point(30, {"rows": [one]})) == 2


def test_parts_out_of_order_and_points_that_name_what_was_not_sent_are_refused() -> None:
    ends = Ends()
    ends.subscribe()
    chunk_part, point_part = ends.point(20, {"rows": [chunk(1)]})
    with pytest.raises(ProtocolError, match="part 1 of a feed has arrived, 0 is next"):
        ends.receive([point_part])
    ends.receive([chunk_part])
    damaged = io.FeedReceived(7, msgspec.structs.replace(point_part.header, meta=b"\x00"), None)
    with pytest.raises(CodecError, match="bytes are no PointPart"):
        ends.standby.received(damaged)


# ---- a log that is only recorded


def segment(epoch: int, start: int) -> LogSegment:
    return LogSegment(SINK.log_id, epoch, start, start, 1, b"")


def held_record(ends: Ends) -> list[LogSegment]:
    point = ends.standby.point
    assert point is not None
    return point.record


def test_a_point_has_the_log_since_the_one_before_if_no_other_process_holds_it() -> None:
    ends = Ends(replace(PLAN, record=RecordLimit(1_000_000)))
    ends.subscribe()
    ends.recording.start([segment(2, 0), segment(2, 1)])
    first = ends.receive(ends.point(2, {}))
    assert first is not None
    assert held_record(ends) == [segment(2, 0), segment(2, 1)]
    ends.loaded(first)
    ends.recording.produced(segment(3, 2))
    (part,) = ends.point(3, {})
    assert decode_part(part.header.meta, PointPart).record == [segment(3, 2)]
    ends.receive([part])
    assert held_record(ends) == [segment(2, 0), segment(2, 1), segment(3, 2)]
    assert ends.held.of(SINK.log_id) == [], "it would be reported in a round"


def test_a_standby_drops_what_the_restart_point_covers() -> None:
    ends = Ends(replace(PLAN, record=RecordLimit(1_000_000)))
    ends.subscribe()
    ends.recording.start([segment(2, 0), segment(3, 1)])
    ends.store.mark(StableMark(ALL_LOGS, 3))
    ends.receive(ends.point(2, {}))
    assert held_record(ends) == [segment(3, 1)]


def test_a_new_connection_gets_the_whole_log_again() -> None:
    ends = Ends(replace(PLAN, record=RecordLimit(1_000_000)))
    ends.subscribe()
    ends.recording.start([segment(2, 0)])
    ends.receive(ends.point(1, {}))
    assert ends.standby.lost(io.Lost(7))
    ends.feed.lost(7)
    ends.standby.connected(io.Connected(0, 7, ends.hello))
    ends.subscribe()
    ends.recording.produced(segment(2, 1))
    ends.receive(ends.point(2, {}))
    assert held_record(ends) == [segment(2, 0), segment(2, 1)]


def test_no_log_is_in_a_point_of_a_job_that_does_not_record() -> None:
    ends = Ends()
    ends.subscribe()
    ends.receive(ends.point(1, {}))
    assert held_record(ends) == []
