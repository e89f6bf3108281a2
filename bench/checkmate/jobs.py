"""Builds the job of a query at a rate, and names the task that is killed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from clonos_py import Job, Record, Stream, apply, col, count
from clonos_py.bench.checkmate.skew import sent_by_remainder
from clonos_py.bench.reachability.query import reachability
from clonos_py.bench.reachability.source import CommandSource
from clonos_py.connectors import BlackholeSink
from clonos_py.evaluation.checkmate.dimensions import BY_HASH, CYCLE
from clonos_py.evaluation.nexmark.jobs import EventSource, build, unchanged
from clonos_py.evaluation.nexmark.model import Model
from clonos_py.evaluation.nexmark.running import QueryRun
from clonos_py.evaluation.nexmark.source import EVENT_TIME
from clonos_py.evaluation.nexmark.streams import Streams
from clonos_py.evaluation.reachability.generator import Reachability
from clonos_py.settings.definitions import Settings

VICTIMS = {"q1": "select[0]", "q3": "join[0]", "q8": "join[0]", "q12": "counts[0]", CYCLE: "join[0]"}
"""The task that is killed, by query: a stateful one if there is any."""
NODES_MIN = 1_000_000
"""The number of graph nodes in the paper. With more commands there are as many nodes as commands, to keep paths few."""
_PARTITIONS = 8
_WINDOW_US = 10_000_000


class RunningCount(Record):
    """The number of bids that a bidder has made in a window so far."""

    bidder: int
    window: int
    bid_count: int


def job_of(query: str, events: int, rate: float | None, settings: Settings, skew: int = 0, keys: str = BY_HASH) -> Job:
    """The job of a query over ``events`` events, with a blackhole sink. ``rate``: events per second; None: as fast as
    possible. ``skew``: percent of events with a hot key; 0: keys are uniform. ``keys``: how keys are assigned to tasks,
    by hash or by remainder. Event time advances as fast as real time."""
    event_rate: dict[str, Any] = {} if rate is None else {"event_rate": max(round(rate), 1)}
    if query == CYCLE:
        commands = Reachability(events, max(NODES_MIN, events), **event_rate)
        partitions = -(-_PARTITIONS // settings.parallelism) * settings.parallelism
        return reachability(CommandSource(commands, rate, partitions), BlackholeSink())
    source = QueryRun(query, events, rate=rate, model=Model(skew=skew / 100), **event_rate).source(settings)
    by_remainder = partial(_by_remainder, parallelism=settings.parallelism, groups=settings.key_groups)
    prepare = unchanged if keys == BY_HASH else by_remainder
    return running_counts(source, prepare) if query == "q12" else build(query, source, BlackholeSink(), prepare)


def _by_remainder(streams: Streams, parallelism: int, groups: int) -> Streams:
    """Replaces the ids of people by others, whose hashes assign rows to tasks as the paper's implementation does: by
    the remainder of the original id."""

    def other(keys: pa.Int64Array) -> pa.Int64Array:
        return pa.array(sent_by_remainder(keys.to_numpy(), parallelism, groups), pa.int64())

    def changed(stream: Stream[Any], column: str) -> Stream[Any]:
        return stream.with_columns(**{column: apply(other, column, returns=int)})

    person, auction, bid = streams
    return Streams(changed(person, "id"), changed(auction, "seller"), changed(bid, "bidder"))


def running_counts(source: EventSource, prepare: Callable[[Streams], Streams] = unchanged) -> Job:
    """Query 12 as in the paper: every bid emits the current count of its bidder and window. A query that emits only at
    the end of windows would give no latencies in between. Windows are of event time, which advances as real time here.
    Counts of past windows stay in state."""
    job = Job("nexmark-q12-running")
    events = prepare(Streams(*job.source(source, event_time=EVENT_TIME, out_of_order=source.out_of_order)))
    windows = events.bid.key_by("bidder", window=col("date_time").cast(int) // _WINDOW_US)
    windows.aggregate(RunningCount, bid_count=count()).named("counts").changes().sink(BlackholeSink())
    return job
