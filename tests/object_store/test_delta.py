"""Delta tables in a real object store."""

from __future__ import annotations

import pyarrow as pa
import pytest

from clonos_py.connectors import CommitId, DeltaSink, DeltaSource
from clonos_py.model.errors import SourceError
from tests.connectors.killed_jobs import Item
from tests.s3_server import S3Server
from tests.tables.reading_tables import numbers, opened


def test_a_table_in_an_object_store_is_written_and_read(uri: str, s3: S3Server) -> None:
    committer = DeltaSink(uri, partition_by="text").open(Item.schema())
    source, positions = None, dict[int, int]()
    for checkpoint in (1, 2):
        rows = pa.Table.from_pylist([{"number": checkpoint, "text": "a b"}], Item.schema())
        for _ in range(2):
            committer.commit(CommitId("line/out/0", checkpoint), rows)
        source = source or opened(DeltaSource(uri, Item, follow=True))
        assert numbers(source, positions, seconds=2 * checkpoint) == [checkpoint]


def test_a_missing_table_is_one_line(uri: str, s3: S3Server) -> None:
    with pytest.raises(SourceError, match="there is no Delta table: name the folder that has _delta_log"):
        DeltaSource(uri, Item).resolve()
