"""Bugs of state that is saved in parts: where its rebuild begins, what comes again, and what counts then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec
import pyarrow as pa
import pytest

from clonos_py.link.receiving import InputChannel
from clonos_py.model.operators import Extent, PartwiseOperator
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.operators import footprints
from clonos_py.operators.footprints import FootprintLog, FootprintPlace
from clonos_py.operators.keyed_chunks import with_groups
from clonos_py.operators.windows import WindowAggregate
from clonos_py.process.contract import ORDER_TABLE, TaskProgress
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
    """Its oldest footprints are stored, and the input behind them does not come again."""

    def without_oldest(extent: Callable[[PartwiseOperator], Extent], self: PartwiseOperator) -> Extent:
        found = extent(self)
        return Extent(found.positions[1:], found.records[1:], found.live[1:]) if found.positions[1:] else found

    for operator in (footprints.KeyedParts, WindowAggregate):
        extent = vars(operator)["extent"].fget
        patch.setattr(operator, "extent", property(partial(without_oldest, extent)))


@parts("kill")
def rows_count_twice_that_a_footprint_holds(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FootprintLog, "counting", lambda self, rows, position: rows)


@parts("kill")
def a_footprint_is_one_event_ahead_of_its_position(patch: pytest.MonkeyPatch) -> None:
    counting = FootprintLog.counting
    patch.setattr(FootprintLog, "counting", lambda self, rows, position: counting(self, rows, position - 1))


@parts("kill")
def the_oldest_footprint_of_a_key_decides(patch: pytest.MonkeyPatch) -> None:
    """Not the newest: what a check has saved is ignored, though its senders have dropped the frames before."""
    save, check = FootprintLog.save, FootprintLog.check

    def oldest(log: FootprintLog, at: FootprintPlace) -> FootprintPlace:
        return at._replace(position=log.extent.positions[0]) if log.extent.positions else at

    patch.setattr(FootprintLog, "save", lambda self, at: save(self, oldest(self, at)))
    patch.setattr(FootprintLog, "check", lambda self, at, keys: check(self, oldest(self, at), keys))


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
    restore = PartwiseState.restore

    def shorter(self: PartwiseState, parts: Sequence[OperatorState], progress: TaskProgress | None) -> None:
        order = parts[0].tables.get(ORDER_TABLE) if parts else None
        if order and progress is not None:
            last = order[-1].rows
            order = [*order[:-1], Chunk(last.slice(0, last.num_rows - 1))]
            parts = [OperatorState({**parts[0].tables, ORDER_TABLE: order}, parts[0].values)]
            progress = msgspec.structs.replace(progress, taken=progress.taken - 1)
        restore(self, parts, progress)

    patch.setattr(PartwiseState, "restore", shorter)


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
    def none(keys: pa.RecordBatch, by: Sequence[str], key_groups: int) -> pa.RecordBatch:
        return with_groups(keys.slice(0, 0), by, key_groups)

    patch.setattr(footprints, "with_groups", none)
