"""Queries as jobs: a source in front, a sink behind."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, TypeAlias

from clonos_py import Job, Stream
from clonos_py.bench.nexmark.recorded import RecordedEvents
from clonos_py.bench.nexmark.source import EVENT_TIME, NexmarkSource
from clonos_py.bench.nexmark.streams import Streams
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.errors import SettingError

QUERIES = ("q0", "q1", "q2", "q3", "q5", "q7", "q8", "q11", "q12")
CHAINS = ("rebalanced", "rebalanced_q1", "rebalanced_q2", "chain", "wide_chain", "row_function")
"""Not Nexmark: what moving rows costs, and a call of Python for each."""

EventSource: TypeAlias = NexmarkSource | RecordedEvents


def build(query: str, source: EventSource, sink: SinkDefinition) -> Job:
    """The job of a query. Raises SettingError for one that there is not."""
    if query not in (*QUERIES, *CHAINS):
        raise SettingError(f"there is no Nexmark query {query!r}: choose one of {', '.join((*QUERIES, *CHAINS))}")
    module = importlib.import_module(f"clonos_py.bench.nexmark.queries.{query if query in QUERIES else 'chains'}")
    transform: Callable[[Streams], Stream[Any]] = getattr(module, query)
    job = Job(f"nexmark-{query.replace('_', '-')}")
    person, auction, bid = job.source(source, event_time=EVENT_TIME, out_of_order=source.out_of_order_us)
    transform(Streams(person, auction, bid)).sink(sink)
    return job
