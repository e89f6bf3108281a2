"""Bugs of operators that keep rows or sessions until the watermark, and of distinct counts: what a restart begins
with."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.operators.distinct_counts import VALUE_COLUMN, VALUES_TABLE, DistinctCounts
from clonos_py.operators.session_join import SessionJoin
from clonos_py.operators.session_table import SessionTable
from clonos_py.operators.version_join import VersionJoin
from clonos_py.operators.window_groups import MapWindows
from tests.sim.planted.bug import Bugs

BUGS = Bugs()


def _restored_without(patch: pytest.MonkeyPatch, operator: type[Operator], table: str) -> None:
    restore = operator.restore

    def without(self: Operator, parts: Sequence[OperatorState]) -> None:
        restore(self, [OperatorState({**part.tables, table: []}, part.values) for part in parts])

    patch.setattr(operator, "restore", without)


@BUGS.planted("kill", "crash")
def a_session_is_joined_without_the_rows_of_one_side_of_before(patch: pytest.MonkeyPatch) -> None:
    _restored_without(patch, SessionJoin, "right")


@BUGS.planted("kill", "crash")
def versions_of_before_are_not_restored(patch: pytest.MonkeyPatch) -> None:
    _restored_without(patch, VersionJoin, "right")


@BUGS.planted("kill", "crash")
def rows_of_open_windows_are_not_restored(patch: pytest.MonkeyPatch) -> None:
    _restored_without(patch, MapWindows, "rows")


@BUGS.planted("kill", "crash")
def sessions_that_have_changed_are_not_restored(patch: pytest.MonkeyPatch) -> None:
    _restored_without(patch, SessionTable, "pending")


@BUGS.planted("kill", "crash", "stop", rescaled=True)
def sessions_that_were_shown_stay_beside_the_one_that_contains_them(patch: pytest.MonkeyPatch) -> None:
    _restored_without(patch, SessionTable, "replaced")


@BUGS.planted("kill", "crash", "stop", rescaled=True)
def distinct_counts_ask_a_chunk_of_other_key_groups_for_its_columns(patch: pytest.MonkeyPatch) -> None:
    restore = DistinctCounts.restore

    def asking(self: DistinctCounts, parts: Sequence[OperatorState], groups: range) -> None:
        for part in parts:
            for name, chunks in part.tables.items():
                if name.startswith(VALUES_TABLE) and chunks:
                    chunks[0].rows.column(VALUE_COLUMN)
        restore(self, parts, groups)

    patch.setattr(DistinctCounts, "restore", asking)
