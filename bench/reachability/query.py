"""The reachability query (CheckMate, VI and figure 6): which nodes can be reached from the sources, and on which paths.

Links and sources are joined where a path ends and a link begins. Pairs whose link ends on the path are dropped; the
others become paths that are longer by one link. These are the result, and they are fed back into the loop. All streams
are deltas: a link or a source that is deleted retracts every path over it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py import Job, Stream
from clonos_py.bench.reachability.rows import LinkChange, PathChange, changes, nodes_of, paths_batch
from clonos_py.bench.reachability.source import CommandSource
from clonos_py.columns.views import Bools, fixed
from clonos_py.dsl.deltas import join_deltas
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.record import Record

Paths = Stream[PathChange]


class Extension(Record):
    """A path, and a link from its last node to ``target``."""

    path: bytes
    target: int
    weight: int


def reachability(source: CommandSource, sink: SinkDefinition, **settings: Any) -> Job:
    """A job that writes every change of a path (``PathChange``) to the sink."""
    job = Job("reachability", **settings)
    found_paths(job, source).sink(sink)
    return job


def found_paths(job: Job, source: CommandSource) -> Paths:
    commands = job.source(source).named("commands")
    links = commands.map_batches(links_of, returns=LinkChange).named("links")
    sources = commands.map_batches(sources_of, returns=PathChange).named("sources")

    def step(paths: Paths) -> tuple[Paths, Paths]:
        extensions = join_deltas(links, paths, on="node", into=Extension).named("join")
        selected = extensions.map_batches(without_cycles, returns=Extension).named("select")
        longer = selected.map_batches(projected, returns=PathChange).named("project")
        return longer, longer

    return sources.iterate(step)


def links_of(commands: pa.RecordBatch) -> pa.RecordBatch:
    return changes(commands)[0]


def sources_of(commands: pa.RecordBatch) -> pa.RecordBatch:
    return changes(commands)[1]


def without_cycles(extensions: pa.RecordBatch) -> pa.RecordBatch:
    """The extensions whose target is not on the path yet."""
    starts, nodes = nodes_of(extensions.column("path"))
    owners = np.repeat(np.arange(extensions.num_rows), np.diff(starts))
    met = nodes == fixed(extensions.column("target"))[owners]
    on_path: Bools = np.bincount(owners[met], minlength=extensions.num_rows) > 0
    return extensions.filter(pa.array(~on_path)) if on_path.any() else extensions


def projected(extensions: pa.RecordBatch) -> pa.RecordBatch:
    """The paths extended by their targets."""
    starts, nodes = nodes_of(extensions.column("path"))
    starts = starts + np.arange(len(starts))
    longer = np.empty(starts[-1], np.int64)
    is_target = np.zeros(len(longer), bool)
    is_target[starts[1:] - 1] = True
    longer[~is_target], longer[is_target] = nodes, fixed(extensions.column("target"))
    return paths_batch(starts, longer, fixed(extensions.column("weight")))
