"""The first rows of a stream: what ``Job.preview`` shows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from copy import copy
from dataclasses import replace

import pyarrow as pa

from clonos_py.connectors.blackhole import BlackholeSink
from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.draft import Draft
from clonos_py.dsl.job import Job
from clonos_py.dsl.outputs import OutputPort
from clonos_py.model.connectors import SinkDefinition
from clonos_py.model.errors import Interrupted
from clonos_py.model.operators import Sink
from clonos_py.observe.events import Event
from clonos_py.plan.logical import LogicalGraph, Node, Port, ReadSource, RunProcess, WriteSink, leading_to
from clonos_py.runtime.launch import run_job
from clonos_py.settings.resolution import resolve


def preview(output: OutputPort, rows: int, timeout_us: int, site: CallSite) -> pa.Table:
    """See ``Job.preview``."""
    sink = _PreviewSink(rows)
    until = time.monotonic() + timeout_us / 1e6
    finished = False

    def listener(at_us: int, event: Event) -> None:
        nonlocal finished
        if not finished and (not sink.missing or time.monotonic() > until):
            finished = True
            raise Interrupted

    settings = resolve({}, command_line={"runtime": "local", "parallelism": 1, "standbys": 0})
    try:
        run_job(_PreviewJob(output, sink, site), settings, listener)
    except KeyboardInterrupt:
        if not finished:
            raise
    return pa.Table.from_batches(sink.batches, output.schema)


class _PreviewSink(SinkDefinition):
    """Keeps the first rows in this process."""

    def __init__(self, rows_max: int) -> None:
        self.rows_max = rows_max
        self.batches: list[pa.RecordBatch] = []

    def create(self, schema: pa.Schema) -> Sink:
        return _PreviewWriter(self)

    @property
    def missing(self) -> int:
        return max(0, self.rows_max - sum(batch.num_rows for batch in self.batches))


class _PreviewWriter(Sink):
    def __init__(self, kept: _PreviewSink) -> None:
        self._kept = kept

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if missing := self._kept.missing:
            self._kept.batches.append(rows.slice(0, missing))


class _PreviewJob(Job):
    """A job reduced to the operators that one stream needs, with ``sink`` behind it."""

    def __init__(self, output: OutputPort, sink: SinkDefinition, site: CallSite) -> None:
        super().__init__(f"{output.draft.job}-preview")
        nodes = output.draft.nodes
        needed = leading_to([output.port.node], dict(enumerate(nodes)))
        draft = Draft(self.name, nodes)
        ends = {draft.add("sink", WriteSink(sink), (output.port,), (), site, stem="preview").id}
        for port in _unread_results([nodes[number] for number in sorted(needed)], output.port):
            ends.add(draft.add("sink", WriteSink(BlackholeSink()), (port,), (), site, stem=f"unread-{len(ends)}").id)
        named = {node.id: node for node in draft.graph().nodes}
        self._graph = LogicalGraph(self.name, tuple(_without_commits(named[number]) for number in (*needed, *ends)))

    def graph(self) -> LogicalGraph:
        return self._graph.rebuilt(self._graph.by_id)


def _unread_results(nodes: Sequence[Node], previewed: Port) -> list[Port]:
    """Results of process operators that none of the nodes reads. Each needs a sink."""
    read = {previewed, *(port for node in nodes for port in node.read)}
    results = [
        Port(node.id, number)
        for node in nodes
        if isinstance(node.work, RunProcess)
        for number in range(len(node.work.outputs))
    ]
    return [port for port in results if port not in read]


def _without_commits(node: Node) -> Node:
    """The node without commits to its source: a preview must not report to others how far the job has read."""
    if not isinstance(node.work, ReadSource) or not node.work.definition.commits:
        return node
    definition = copy(node.work.definition)
    definition.commits = False
    return replace(node, work=replace(node.work, definition=definition))
