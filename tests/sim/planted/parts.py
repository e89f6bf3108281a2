"""Bugs of state that is saved in parts: where its rebuild begins, what comes again, and what counts then."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from clonos_py.link.receiving import InputChannel
from clonos_py.model.state import OperatorState
from clonos_py.operators import footprints
from clonos_py.process.contract import InputProgress, TaskProgress
from clonos_py.settings.protocols import CONTINUOUS
from clonos_py.task.context import TaskContext
from clonos_py.task.partwise import Arrival, PartwiseState
from clonos_py.task.snapshotting import Snapshotting
from tests.sim.planted.bug import Bugs

BUGS = Bugs()
parts = partial(BUGS.planted, protocol=CONTINUOUS)


@parts("kill")
def senders_keep_no_frames_for_a_rebuild(patch: pytest.MonkeyPatch) -> None:
    def covered(self: InputChannel, next_seq: int) -> None:
        self.covered = max(self.acknowledged, next_seq)

    patch.setattr(InputChannel, "cover", covered)


@parts("kill")
def the_extent_is_cut_one_window_early(patch: pytest.MonkeyPatch) -> None:
    def rebuild_from(self: PartwiseState) -> tuple[int, list[InputProgress]]:
        mark = self._marks[min(1, len(self._marks) - 1)] if self._marks else None
        return (self.taken, []) if mark is None or mark.position == self.taken else (mark.position, mark.inputs)

    patch.setattr(PartwiseState, "rebuild_from", rebuild_from)


@parts("kill")
def rows_count_twice_that_a_footprint_holds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(footprints._Log, "counting", lambda self, rows, position: rows)


@parts("kill")
def a_footprint_is_one_event_ahead_of_its_position(patch: pytest.MonkeyPatch) -> None:
    counting = footprints._Log.counting

    def late(self: footprints._Log, rows: pa.RecordBatch, position: int) -> pa.RecordBatch:
        return counting(self, rows, position - 1)

    patch.setattr(footprints._Log, "counting", late)


@parts("kill")
def the_oldest_footprint_of_a_key_decides(patch: pytest.MonkeyPatch) -> None:
    """Not the newest: what a check has saved is ignored, though its senders have dropped the frames before."""
    write = footprints._Log._write

    def unwritten(self: footprints._Log, at: footprints.FootprintPlace, *given: Any) -> None:
        write(self, at._replace(position=self._log[0].position) if self._log else at, *given)

    patch.setattr(footprints._Log, "_write", unwritten)


@parts("kill")
def results_of_a_rebuild_are_sent(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TaskContext, "silent", property(lambda self: False, lambda self, value: None), raising=False)


@parts("kill", "crash")
def replayed_events_are_not_counted(patch: pytest.MonkeyPatch) -> None:
    """Then positions after a recovery are those of other events."""
    finish, took = PartwiseState.finish, PartwiseState.took

    def finished(self: PartwiseState, *given: Any) -> None:
        finish(self, *given)
        self.forgets = 3  # type: ignore[attr-defined]

    def forgetful(self: PartwiseState, arrival: Arrival, rows: int) -> None:
        if getattr(self, "forgets", 0):
            self.forgets -= 1  # type: ignore[attr-defined]
            return
        took(self, arrival, rows)

    patch.setattr(PartwiseState, "finish", finished)
    patch.setattr(PartwiseState, "took", forgetful)


@parts("kill", "crash")
def the_order_of_input_is_stored_without_the_last_event(patch: pytest.MonkeyPatch) -> None:
    begin_rebuild = PartwiseState.begin_rebuild

    def shorter(self: PartwiseState) -> None:
        begin_rebuild(self)
        if self._pending:
            self._pending.pop()

    patch.setattr(PartwiseState, "begin_rebuild", shorter)


@parts("kill")
def windows_opened_since_the_last_snapshot_are_left_out(patch: pytest.MonkeyPatch) -> None:
    save = PartwiseState.save

    def without(self: PartwiseState, *given: Any) -> OperatorState:
        with pytest.MonkeyPatch.context() as left_out:
            left_out.setattr(footprints.KeyedParts, "save", lambda self, position: None)
            return save(self, *given)

    patch.setattr(PartwiseState, "save", without)


@parts("kill")
def the_progress_of_the_rebuild_is_that_of_the_snapshot(patch: pytest.MonkeyPatch) -> None:
    progress = Snapshotting.progress

    def forward(self: Snapshotting, *given: Any, **named: Any) -> TaskProgress:
        found = progress(self, *given, **named)
        return msgspec.structs.replace(found, rebuild=found.inputs if found.rebuild else [])

    patch.setattr(Snapshotting, "progress", forward)


@parts("kill")
def keys_that_have_closed_are_not_marked(patch: pytest.MonkeyPatch) -> None:
    def mark(self: footprints._Log, keys: pa.RecordBatch, key_groups: int) -> pa.RecordBatch:
        return marks(self, keys.slice(0, 0), key_groups)

    marks = footprints._Log._marks
    patch.setattr(footprints._Log, "_marks", mark)
