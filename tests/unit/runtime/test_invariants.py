"""Frames that a task cuts again, as the checker of the simulator sees them: which of the first ones still count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.job.events import Send, StartProcess
from clonos_py.model.ids import Attempt
from clonos_py.model.messages import Promote, Replay, Restore
from clonos_py.model.segments import LogSegment
from clonos_py.process.contract import Produced, TaskState
from clonos_py.runtime.sim.invariants import InvariantChecker
from clonos_py.runtime.sim.violation import Violation
from clonos_py.runtime.world.processes import LocalProcess
from tests.unit.job.graphs import graph, task

SENDER = task("a")


class Story:
    """The processes of one task, one after the other, and what the checker is shown of them."""

    def __init__(self) -> None:
        self.checker = InvariantChecker(graph("ab"), lambda: None, cast("Any", None))

    def promoted(self, number: int) -> LocalProcess:
        """Process ``number`` is chosen for the task and has received its restart point."""
        link = SimpleNamespace(inputs=[], outputs=[], state=TaskState.RUNNING, feed_position=None)
        process = cast("LocalProcess", SimpleNamespace(number=number, task=SENDER, link=link))
        promote = Promote(number, Attempt(1, number), Restore(0), [])
        self.checker.decided([StartProcess(number, SENDER), Send(number, promote)], {})
        self.checker.handled(process, promote)
        return process

    def begins(self, process: LocalProcess, *log: LogSegment) -> None:
        """The process is sent the log that the others hold."""
        replay = Replay(process.number, list(log), [], [])
        self.checker.decided([Send(process.number, replay)], {})
        self.checker.handled(process, replay)

    def cuts(self, process: LocalProcess, seq: int, stamp: bytes, log: LogSegment | None = None) -> None:
        frame = Frame(seq, FrameKind.DATA, 0, stamp=stamp)
        self.checker.produced(process, Produced(log, [(0, frame)]))


def segment(start: int, count: int) -> LogSegment:
    return LogSegment(SENDER.log_id, 0, 0, start, count, b"")


def test_a_frame_that_the_replayed_log_has_is_cut_again_with_the_same_stamp() -> None:
    story, first = Story(), segment(0, 1)
    before = story.promoted(1)
    story.begins(before)
    story.cuts(before, 0, b"one", first)
    after = story.promoted(2)
    story.begins(after, first)
    with pytest.raises(Violation, match="again with another stamp"):
        story.cuts(after, 0, b"other")


def test_frames_behind_the_end_of_the_replayed_log_are_void() -> None:
    """No process holds the end of the log, so none that is left has received these frames. Others are cut in their
    place."""
    story, first = Story(), segment(0, 1)
    before = story.promoted(1)
    story.begins(before)
    story.cuts(before, 0, b"one", first)
    story.cuts(before, 1, b"two", segment(1, 2))
    after = story.promoted(2)
    story.begins(after, first)
    story.cuts(after, 0, b"one")
    story.cuts(after, 1, b"other")


def test_frames_count_that_a_process_cuts_until_receivers_have_closed_their_connections_with_it() -> None:
    """A process that leaves, or that hangs and continues, may still cut frames while its successor is promoted."""
    story, first, late = Story(), segment(0, 1), segment(1, 1)
    before = story.promoted(1)
    story.begins(before)
    story.cuts(before, 0, b"one", first)
    after = story.promoted(2)
    story.cuts(before, 1, b"two", late)
    story.begins(after, first, late)
    story.cuts(before, 1, b"not received", segment(2, 1))
    story.cuts(after, 0, b"one")
    with pytest.raises(Violation, match="cuts frame 1 of output 0 again with another stamp"):
        story.cuts(after, 1, b"other")
