"""Queries as jobs: a source in front, a sink behind."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeAlias

from clonos_py import Job, Stream, Table
from clonos_py.connectors import BlackholeSink, FileSink
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.errors import SettingError
from clonos_py.nexmark.recorded import RecordedEvents
from clonos_py.nexmark.source import EVENT_TIME, NexmarkSource
from clonos_py.nexmark.streams import Streams

QUERIES = (
    "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8", "q9", "q10", "q11", "q12", "q13", "q14", "q15", "q16", "q17",
    "q18", "q19", "q20", "q21", "q22",
)  # fmt: skip
CHAINS = ("rebalanced", "rebalanced_q1", "rebalanced_q2", "chain", "wide_chain", "row_function")
"""Not Nexmark: what moving rows costs, and a call of Python for each."""

EventSource: TypeAlias = NexmarkSource | RecordedEvents


def unchanged(streams: Streams) -> Streams:
    return streams


def build(
    query: str, source: EventSource, sink: SinkDefinition, prepare: Callable[[Streams], Streams] = unchanged
) -> Job:
    """The job of a query over what ``prepare`` makes of the events. Raises SettingError for one that there is not."""
    if query not in (*QUERIES, *CHAINS):
        raise SettingError(f"there is no Nexmark query {query!r}: choose one of {', '.join((*QUERIES, *CHAINS))}")
    transform: Callable[[Streams], Stream[Any] | Table[Any]] = getattr(_module(query), query)
    job = Job(f"nexmark-{query.replace('_', '-')}")
    person, auction, bid = job.source(source, event_time=EVENT_TIME, out_of_order=source.out_of_order_us)
    result = transform(prepare(Streams(person, auction, bid)))
    (_final(result, sink) if isinstance(result, Table) else result).sink(sink)
    return job


def files_of(query: str, folder: str) -> FileSink:
    """Where a query's results are Parquet files: in a folder, or in folders by the columns that the query names."""
    return FileSink(folder, "parquet", partition_by=getattr(_module(query), "PARTITION_BY", ()))


def _module(query: str) -> ModuleType:
    return importlib.import_module(f"clonos_py.nexmark.queries.{query if query in QUERIES else 'chains'}")


def _final(table: Table[Any], sink: SinkDefinition) -> Table[Any] | Stream[Any]:
    """What a sink is given of an updating result: all that it becomes where it keeps the last, or keeps nothing; else
    what it is in the end."""
    if sink.upserts:
        return table
    return table.changes() if isinstance(sink, BlackholeSink) else table.at_end()
