"""Bugs of the record: what it lacks, and what it has too much (F1)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

import pytest

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import Landmark
from clonos_py.checkpoint.log_chunks import log_chunk
from clonos_py.link import instructions as io
from clonos_py.link import recording
from clonos_py.link.machine import LinkMachine
from clonos_py.link.recording import LogRecording
from clonos_py.model import messages as control
from clonos_py.model.ids import LogId
from clonos_py.model.segments import LogSegment
from clonos_py.model.state import Chunk
from tests.sim.planted.bug import Bugs
from tests.sim.planted.seams import Handle, parts_of, rehandled

BUGS = Bugs()
recorded = partial(BUGS.planted, recorded=True)


@recorded()
def a_piece_is_kept_for_one_epoch_too_few(patch: pytest.MonkeyPatch) -> None:
    complete = LogRecording.complete
    patch.setattr(LogRecording, "complete", lambda self, checkpoint: complete(self, checkpoint + 1))


@recorded()
def a_piece_is_dropped_when_its_checkpoint_is_aborted(patch: pytest.MonkeyPatch) -> None:
    recordings = parts_of(patch, LinkMachine, LogRecording)

    def dropping(abort: Handle, self: LinkMachine, message: control.AbortCheckpoint) -> list[io.Instruction]:
        recordings[self].complete(message.checkpoint)
        return abort(self, message)

    rehandled(patch, control.AbortCheckpoint, dropping)


@recorded(depth=0)
def the_log_of_an_attempt_that_was_rolled_back_is_kept(patch: pytest.MonkeyPatch) -> None:
    """A piece has what any attempt of the task has logged in its epoch."""
    logs: dict[tuple[LogId, int], list[LogSegment]] = {}
    produced = LogRecording.produced

    def keeping(self: LogRecording, segment: LogSegment) -> None:
        logs.setdefault((segment.log, segment.epoch), []).append(segment)
        produced(self, segment)

    def of_all_attempts(segments: Sequence[LogSegment]) -> Chunk:
        return log_chunk(logs[segments[0].log, segments[0].epoch])

    patch.setattr(LogRecording, "produced", keeping)
    patch.setattr(recording, "log_chunk", of_all_attempts)


@recorded()
def a_log_is_recorded_from_the_landmark_on(patch: pytest.MonkeyPatch) -> None:
    start = LogRecording.start

    def at_landmark(self: LogRecording, log: Iterable[LogSegment]) -> None:
        segments, codec = list(log), LogCodec()
        marked = [n for n, s in enumerate(segments) if any(isinstance(d, Landmark) for d in codec.load(s))]
        start(self, segments[marked[-1] :] if marked else segments)

    patch.setattr(LogRecording, "start", at_landmark)


@recorded(fed=True)
def a_log_is_recorded_from_the_feed_point_on(patch: pytest.MonkeyPatch) -> None:
    """Of a task whose log no other process holds."""
    patch.setattr(LogRecording, "since", lambda self, offset: [])


@recorded()
def the_log_that_is_replayed_is_not_recorded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LogRecording, "start", lambda self, log: None)
