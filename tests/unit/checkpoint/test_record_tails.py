"""What processes held of logs when their job failed, as files of the record (F1)."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.checkpoint.log_chunks import decode_tail, encode_tail
from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.model.errors import UnreadableCheckpointError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.segments import LogSegment
from clonos_py.model.snapshots import RecordTail
from tests.unit.checkpoint.stores import manifest

TASK = TaskId("join of a/b", 1)
TAIL = RecordTail(
    TASK, Attempt(2, 3), [LogSegment(TASK.log_id, 7, 40, 40, 2, b"ab")], manifest(7, generation=2, job="job")
)


def test_tails_are_read_as_they_were_written(store: SnapshotStore) -> None:
    assert store.tails() == []
    other = RecordTail(TaskId("source", 0), Attempt(2, 1), TAIL.logs, TAIL.interval)
    store.write_tail(TAIL)
    store.write_tail(other)
    assert sorted(store.tails(), key=lambda tail: tail.task) == [TAIL, other]


def test_a_damaged_tail_is_an_error_that_names_its_file(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path), "job")
    store.write_tail(TAIL)
    (file,) = tmp_path.rglob("*.tail")
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(UnreadableCheckpointError, match=rf"{file} is corrupt"):
        store.tails()


def test_every_flipped_byte_of_a_tail_is_detected() -> None:
    content = encode_tail(TAIL)
    assert decode_tail(content, "here") == TAIL
    for position in range(len(content)):
        flipped = content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :]
        with pytest.raises(UnreadableCheckpointError, match="here is corrupt"):
            decode_tail(flipped, "here")
