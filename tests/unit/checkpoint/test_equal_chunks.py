"""Chunks with equal rows are stored with equal checksums, whatever else their buffers hold (F2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.snapshots import TaskSnapshot
from clonos_py.model.state import Chunk, OperatorState

VALUES: list[list[Any]] = [
    list(range(100)),
    [f"text {number}" for number in range(100)],
    [number % 2 == 0 for number in range(100)],
    [None if number % 7 == 0 else number for number in range(100)],
    [[number, number + 1] for number in range(100)],
    [{"a": number, "b": str(number)} for number in range(100)],
]


@pytest.mark.parametrize("values", VALUES, ids=lambda values: str(values[1]))
def test_a_slice_has_the_checksum_of_a_copy(values: list[Any], tmp_path: Path) -> None:
    store, found = CheckpointStore(str(tmp_path), "job"), set()
    whole = pa.record_batch({"v": pa.array(values)})
    for number, rows in enumerate(
        [pa.record_batch({"v": pa.array(values[3:40])}), whole.slice(3, 37), whole.slice(1).slice(2, 37)]
    ):
        state = OperatorState({"rows": [Chunk(rows)]})
        handle = store.write(TaskSnapshot(TaskId("v", 0), number + 1, {"v": state}, b""), Attempt(1, 1))
        found.add(handle.operators["v"].tables["rows"][0].checksum)
    assert len(found) == 1
