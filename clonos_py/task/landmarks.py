"""Landmarks: places in a task's log from which a replay can start, since the log holds the task's whole state there.

If a task's operators keep no state, call no services and have no side effects, its progress is its whole state. Such a
task logs a landmark as the first event of every epoch, and then one every 50 ms in which it reads. It cuts pending rows
into frames before each, and the landmark begins a segment that can be decoded alone. A replacement continues at the
last landmark instead of rereading all input since the checkpoint. If a receiver still needs frames from before it, they
are made again (``task/regeneration.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import Landmark
from clonos_py.causal.gate import Gate
from clonos_py.model.errors import DivergenceError, ProtocolError
from clonos_py.model.segments import LogSegment
from clonos_py.process.contract import Produced, RestoreState, Resumed
from clonos_py.task.snapshotting import Snapshotting

LANDMARK_INTERVAL_US = 50_000
"""A replacement rereads at most the input of this much time, unless a landmark is large."""
_US_PER_BYTE = 15
"""The least time between landmarks for each of their bytes: they take at most 64 KiB of the log in a second, however
many partitions the source has."""


class Landmarks:
    """Logs the landmarks of one task, and compares them in a replay or resumes at them."""

    def __init__(self, gate: Gate, snapshotting: Snapshotting, interval_us: int | None = None) -> None:
        """``interval_us``: the least time between two landmarks in one epoch."""
        self._gate, self._snapshotting = gate, snapshotting
        self._new_epoch, self._read, self._passed_us = True, False, 0
        self._interval_us = self._least_us = interval_us or LANDMARK_INTERVAL_US

    # ---- live

    def epoch(self) -> None:
        """A new epoch has begun."""
        self._new_epoch = True

    def read(self) -> None:
        """Input was read that a replacement would have to reread."""
        self._read = True

    def due(self, now_us: int) -> bool:
        return self._new_epoch or (self._read and now_us - self._passed_us >= self._interval_us)

    def log(self, other_events: int, ended: bool, now_us: int) -> Produced:
        """Logs a landmark, which begins a segment: the frames that are cut at it depend on it. Returns the determinants
        before it."""
        produced = self._snapshotting.cut()
        landmark = self._snapshotting.landmark(other_events, ended)
        self._gate.record(landmark)
        self._passed(landmark, now_us)
        return produced

    def _passed(self, landmark: Landmark, now_us: int) -> None:
        self._new_epoch, self._read, self._passed_us = False, False, now_us
        self._interval_us = max(self._least_us, len(landmark.state) * _US_PER_BYTE)

    # ---- replaying

    def compare(self, logged: Landmark, other_events: int, ended: bool, now_us: int) -> None:
        """Compares a landmark that the replay reaches with the task's state. Raises DivergenceError if they differ.

        The run of the job is that of the landmark. It may be an earlier one than that of this replay: the output of a
        causal sink has the log of a run that was lost before its first checkpoint."""
        reached = self._snapshotting.landmark(other_events, ended)
        if reached != logged:
            if self._compared(reached) != self._compared(logged):
                raise DivergenceError(
                    f"the replay reaches a landmark of epoch {logged.epoch} with another state than its predecessor: "
                    "the source or an operator behind it is not deterministic; find it with 'clonos check'"
                )
            self._snapshotting.continue_run_of(logged)
        self._passed(logged, now_us)

    def _compared(self, landmark: Landmark) -> tuple[object, ...]:
        state = self._snapshotting.state_at(landmark)
        progress = msgspec.structs.replace(state.progress, run="")
        return landmark.epoch, landmark.epoch_start, state.positions, progress

    def resume(
        self, log: Sequence[LogSegment], before: tuple[int, int] | None, restore_state: Callable[[RestoreState], None]
    ) -> Resumed | None:
        """Loads a log to replay from its last landmark on. If ``before`` is given, from the last landmark at which
        output ``before[0]`` had not passed frame ``before[1]``. If there is no landmark: returns None, and the replay
        starts from the current state. Only the segments from the landmark on are decoded.

        Raises ProtocolError if ``before`` is given and there is no such landmark.
        """
        for number in reversed(range(len(log))):
            landmark = _landmark_of(log[number])
            if landmark is None:
                continue
            state = self._snapshotting.at(landmark)
            assert state.progress is not None
            next_seqs = state.progress.outputs
            if before is None or next_seqs[before[0]] <= before[1]:
                restore_state(state)
                self._gate.load_from(log[number:])
                return Resumed(next_seqs)
        if before is not None:
            raise ProtocolError(f"frame {before[1]} cannot be regenerated: the log has no landmark before it")
        self._gate.load(log)
        return None


def _landmark_of(segment: LogSegment) -> Landmark | None:
    """The landmark with which a segment begins."""
    first = LogCodec().load(segment)[0] if segment.self_contained else None
    return first if isinstance(first, Landmark) else None
