"""Rows that a transactional sink keeps in its snapshots: until they are committed, and no longer."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from clonos_py.connectors import TransactionalSink
from clonos_py.connectors.row_committer import CommitId, RowCommitter
from clonos_py.testing.attempts import SinkAttempt, SinkTask, StoredCheckpoint
from clonos_py.testing.rules import Rule

SCHEMA = pa.schema([("n", pa.int64())])
RULE = Rule("commit", "what was prepared is committed")


class Nothing(RowCommitter):
    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        assert rows.num_rows == 1


class Out(TransactionalSink):
    def open(self, schema: pa.Schema) -> RowCommitter:
        return Nothing()


def begun(index: int, parallelism: int, parts: Sequence[StoredCheckpoint] = ()) -> SinkAttempt:
    return SinkAttempt(Out(), SCHEMA, SinkTask("out", "L", index, parallelism)).start(RULE, parts)


def go_on(attempt: SinkAttempt, checkpoints: range) -> list[str]:
    """The tables that the last snapshot keeps."""
    kept: list[str] = []
    for checkpoint in checkpoints:
        attempt.write(pa.record_batch({"n": [checkpoint]}, schema=SCHEMA))
        stored = attempt.prepare(checkpoint)
        kept = sorted(stored.snapshot.tables)
        attempt.commit(stored, RULE)
    return kept


@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (1, 2), (2, 1)])
def test_after_a_change_of_parallelism_tasks_keep_no_rows_of_former_ones(before: int, after: int) -> None:
    """All have their snapshots; the first of them commits the committables."""
    former = [begun(index, before) for index in range(before)]
    for task in former:
        task.write(pa.record_batch({"n": [1]}, schema=SCHEMA))
    stored = [task.prepare(1) for task in former]
    for index in range(after):
        parts = [StoredCheckpoint(part.snapshot, part.committables if index == 0 else []) for part in stored]
        assert go_on(begun(index, after, parts), range(2, 6)) == [f"{index}.5"]


def test_rows_whose_commit_was_under_way_at_a_snapshot_are_dropped_after_a_restart_from_it() -> None:
    task = begun(0, 1)
    task.write(pa.record_batch({"n": [1]}, schema=SCHEMA))
    first = task.prepare(1)
    task.write(pa.record_batch({"n": [2]}, schema=SCHEMA))
    second = task.prepare(2)
    assert sorted(second.snapshot.tables) == ["0.1", "0.2"]
    named = [one for one in second.committables if one not in first.committables]
    assert go_on(begun(0, 1, [StoredCheckpoint(second.snapshot, named)]), range(3, 6)) == ["0.5"]
