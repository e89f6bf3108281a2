"""Builds the job of a query: source, query, sink."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

from clonos_py import Job, Stream, Table
from clonos_py.connectors import BlackholeSink, FileSink
from clonos_py.evaluation.nexmark.recorded import RecordedEvents
from clonos_py.evaluation.nexmark.source import EVENT_TIME, NexmarkSource
from clonos_py.evaluation.nexmark.streams import Streams
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.errors import SettingError

QUERIES = (
    "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q13", "q14", "q15", "q16", "q17",
    "q18", "q19", "q20", "q21", "q22",
)  # fmt: skip
CHAINS = ("rebalanced", "rebalanced_q1", "rebalanced_q2", "chain", "wide_chain", "row_function")
"""Jobs that are not part of Nexmark. They measure the cost of shuffles, and of a Python call per row."""

EventSource: TypeAlias = NexmarkSource | RecordedEvents
Transformation: TypeAlias = Callable[[Streams], Stream[Any] | Table[Any]]


def unchanged(streams: Streams) -> Streams:
    return streams


def build(
    query: str, source: EventSource, sink: SinkDefinition, prepare: Callable[[Streams], Streams] = unchanged
) -> Job:
    """The job of a query over the events, after ``prepare``. Raises SettingError for an unknown query."""
    transform = transformation(query)
    job = Job(f"nexmark-{query.replace('_', '-')}")
    person, auction, bid = job.source(source, event_time=EVENT_TIME, out_of_order=source.out_of_order)
    result = transform(prepare(Streams(person, auction, bid)))
    (_final(result, sink) if isinstance(result, Table) else result).sink(sink)
    return job


def transformation(query: str) -> Transformation:
    """The function of a query. Raises SettingError for an unknown query."""
    if query not in (*QUERIES, *CHAINS):
        raise SettingError(f"there is no Nexmark query {query!r}: choose one of {', '.join((*QUERIES, *CHAINS))}")
    found: Transformation = getattr(_module(query), query)
    return found


def files_of(query: str, folder: str) -> FileSink:
    """A sink that writes results as Parquet files, partitioned into folders if the query names columns for that."""
    return FileSink(folder, "parquet", partition_by=getattr(_module(query), "PARTITION_BY", ()))


def _module(query: str) -> ModuleType:
    return importlib.import_module(f"clonos_py.evaluation.nexmark.queries.{query if query in QUERIES else 'chains'}")


def _final(table: Table[Any], sink: SinkDefinition) -> Table[Any] | Stream[Any]:
    """The output of an updating table: all changes for an upserting sink or a blackhole, otherwise the final rows."""
    if sink.upserts:
        return table
    return table.changes() if isinstance(sink, BlackholeSink) else table.at_end()
