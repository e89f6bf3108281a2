"""Bugs of joins with tables: what a restart begins with, and which input holds the watermark back."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import pytest

from clonos_py.model.state import OperatorState
from clonos_py.operators.table_join import TableJoin
from clonos_py.process.contract import InputProgress
from clonos_py.task.inputs import Inputs
from tests.sim.planted.bug import Bugs

BUGS = Bugs()


@BUGS.planted("kill", "crash")
def rows_that_wait_for_a_table_are_not_stored(patch: pytest.MonkeyPatch) -> None:
    snapshot = TableJoin.snapshot

    def without_waiting(self: TableJoin) -> OperatorState:
        found = snapshot(self)
        return OperatorState({**found.tables, **{name: [] for name in found.tables if name == "waiting"}}, found.values)

    patch.setattr(TableJoin, "snapshot", without_waiting)


@BUGS.planted("kill", "crash", endless=True)
def inputs_that_have_settled_are_not_restored(patch: pytest.MonkeyPatch) -> None:
    restore = Inputs.restore

    def unsettled(self: Inputs, progress: Sequence[InputProgress] | None) -> None:
        restore(self, progress and [msgspec.structs.replace(channel, settled=False) for channel in progress])

    patch.setattr(Inputs, "restore", unsettled)


@BUGS.planted("kill", "crash")
def a_table_is_empty_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    restore = TableJoin.restore

    def emptied(self: TableJoin, parts: Sequence[OperatorState]) -> None:
        restore(self, [OperatorState({**part.tables, "rows": []}, part.values) for part in parts])

    patch.setattr(TableJoin, "restore", emptied)


@BUGS.planted("kill", silent=True)
def the_watermark_waits_for_a_table(patch: pytest.MonkeyPatch) -> None:
    made = Inputs.__init__

    def timed(self: Inputs, merge_rows: Sequence[int], frames_merged: int, untimed: Collection[int] = ()) -> None:
        made(self, merge_rows, frames_merged)

    patch.setattr(Inputs, "__init__", timed)
