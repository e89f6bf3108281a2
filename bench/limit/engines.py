"""One run of a query, by this engine and by DuckDB: how long it took, and the digest of its rows."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, get_args, get_type_hints

import pyarrow as pa

from clonos_py.bench.limit.queries import SQL, views
from clonos_py.columns.digest import MODULUS, digest
from clonos_py.evaluation.nexmark.jobs import transformation
from clonos_py.evaluation.nexmark.running import QueryRun, SinkKind, run_query
from clonos_py.settings.definitions import Settings

_BATCH_ROWS = 65_536


class RunTimes(NamedTuple):
    """Seconds of time, and of this process's processor time."""

    seconds: float
    processor_s: float


class RowsDigest(NamedTuple):
    """All rows of a result: their digest and their number."""

    digest: int
    rows: int


class QueryRuns(Protocol):
    """An engine that runs queries over the files of a folder."""

    def timed(self, query: str, folder: Path) -> RunTimes:
        """Runs a query, and drops its rows."""
        ...

    def answer(self, query: str, folder: Path) -> RowsDigest:
        """Runs a query, and digests its rows."""
        ...


@dataclass(frozen=True)
class OurRuns:
    """This engine. Timed runs emit every change of a table; answers have its final rows."""

    settings: Settings

    def timed(self, query: str, folder: Path) -> RunTimes:
        """The time is that from the moment when all tasks have been started. It includes the last checkpoint."""
        began_s = time.process_time()
        report = self._run(query, folder, SinkKind.BLACKHOLE)
        return RunTimes(report["seconds"] - report["deployed_s"], time.process_time() - began_s)

    def answer(self, query: str, folder: Path) -> RowsDigest:
        output = self._run(query, folder, SinkKind.DIGEST)["output"]
        return RowsDigest(int(output["digest"], 16), output["rows"])

    def _run(self, query: str, folder: Path, sink: SinkKind) -> dict[str, Any]:
        gc.collect()  # the state of the run before, which would take memory beside that of this one
        return run_query(QueryRun(query, 0, sink=sink, events_from=folder), self.settings)


@dataclass(frozen=True)
class DuckDBRuns:
    """DuckDB, which reads the files once and gives the rows of the result as Arrow batches."""

    threads: int

    def timed(self, query: str, folder: Path) -> RunTimes:
        with self._connected(folder) as database:
            began, began_s = time.perf_counter(), time.process_time()
            for _ in database.sql(SQL[query]).to_arrow_reader(_BATCH_ROWS):
                pass
            return RunTimes(time.perf_counter() - began, time.process_time() - began_s)

    def answer(self, query: str, folder: Path) -> RowsDigest:
        total, rows = 0, 0
        for batch in self.batches(query, folder):
            total += digest(batch)
            rows += batch.num_rows
        return RowsDigest(total % MODULUS, rows)

    def batches(self, query: str, folder: Path) -> Iterator[pa.RecordBatch]:
        """The rows of a result, with the columns of the query's job."""
        schema = result_schema(query)
        with self._connected(folder) as database:
            for batch in database.sql(SQL[query]).to_arrow_reader(_BATCH_ROWS):
                columns = [column.cast(field.type) for column, field in zip(batch.columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _connected(self, folder: Path) -> Any:
        import duckdb  # only this script and tests need it

        database = duckdb.connect(config={"threads": self.threads, "preserve_insertion_order": False})
        for statement in views(folder):
            database.execute(statement)
        return database


def result_schema(query: str) -> pa.Schema:
    """The schema of the rows that a query gives."""
    (record,) = get_args(get_type_hints(transformation(query))["return"])
    schema: pa.Schema = record.schema()
    return schema
