"""A job on Ray that copies a Delta table, while processes are killed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from clonos_py.connectors import DeltaSink, DeltaSource
from clonos_py.model.record_codec import encode
from clonos_py.runtime.ray.cluster import Cluster
from tests.connectors.killed_jobs import ITEMS, Item, copy_with_kills

pytestmark = pytest.mark.ray


@pytest.mark.thorough  # the sink of objects commits in the same way
def test_each_row_of_a_table_is_in_another_once_although_processes_are_killed(cluster: Cluster, tmp_path: Path) -> None:
    for start in range(0, len(ITEMS), 250):
        rows = pa.Table.from_batches([encode(ITEMS[start : start + 250], Item.schema())])
        write_deltalake(tmp_path / "in", rows, mode="append")
    source, sink = DeltaSource(tmp_path / "in", Item), DeltaSink(tmp_path / "out")
    copy_with_kills(source, sink, tmp_path / "checkpoints", runtime="ray")
    found = DeltaTable(tmp_path / "out").to_pyarrow_table().column("number").to_pylist()
    assert Counter(found) == Counter(range(len(ITEMS)))
