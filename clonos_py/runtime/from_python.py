"""Runs that a script or a notebook asks for: ``Job.run``, ``Job.start`` and ``Job.preview``."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
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
from clonos_py.observe.console import watch
from clonos_py.observe.events import Event, Progress
from clonos_py.plan.logical import LogicalGraph, Node, Port, ReadSource, RunProcess, WriteSink
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.orders import RunResult
from clonos_py.settings.resolution import resolve, resolve_here


def run(job: Job, settings: Mapping[str, object]) -> RunResult:
    """See ``Job.run``."""
    resolved = resolve_here(job.settings, settings)
    with watch(job.name) as listener:
        return run_job(job, resolved, listener)


def start(job: Job, settings: Mapping[str, object]) -> JobHandle:
    """See ``Job.start``."""
    resolved = resolve_here(job.settings, settings)
    return JobHandle(job.name, lambda listener: run_job(job, resolved, listener))


class JobHandle:
    """A run in a thread of this process."""

    def __init__(self, name: str, carry_out: Callable[[Callable[[int, Event], None]], RunResult]) -> None:
        self.name = name
        self._carry_out = carry_out
        self._progress: Progress | None = None
        self._stop = threading.Event()
        self._interrupted = False
        self._result: RunResult | None = None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"job {name}", daemon=True)
        self._thread.start()

    def __repr__(self) -> str:
        state = "running" if self.running else "failed" if self._problem is not None else "ended"
        return f"<JobHandle {self.name!r}: {state}>"

    @property
    def running(self) -> bool:
        """False once the run has ended, failed or been stopped."""
        return self._thread.is_alive()

    @property
    def counters(self) -> Mapping[str, int]:
        """Totals of all tasks so far, a quarter of a second old at most: ``TASK.rows_in``, ``TASK.rows_out``, and what
        operators count, such as ``OPERATOR.late_rows``. Empty before the first task has reported."""
        progress = self._progress
        if progress is None:
            return {}
        rows = {
            f"{vertex.vertex}.{name}": count
            for vertex in progress.vertices
            for name, count in (("rows_in", vertex.rows_in), ("rows_out", vertex.rows_out))
        }
        return {**rows, **progress.counts}

    def stop(self) -> None:
        """Stops the run as Ctrl-C does and waits until it has. The last checkpoint is intact. Raises the ClonosError
        that had ended the run before."""
        self._stop.set()
        self.wait()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Waits until the run is over, ``timeout_s`` at most, and says whether it is. Raises the ClonosError that ended
        the run."""
        self._thread.join(timeout_s)
        if self.running:
            return False
        if self._problem is not None:
            raise self._problem
        return True

    @property
    def result(self) -> RunResult | None:
        """Of a run whose sources have ended; None before, and of a run that was stopped."""
        return self._result

    def _run(self) -> None:
        try:
            self._result = self._carry_out(self._on_event)
        except BaseException as problem:  # noqa: BLE001 - raised by wait
            if not (self._interrupted and isinstance(problem, KeyboardInterrupt)):
                self._problem = problem

    def _on_event(self, at_us: int, event: Event) -> None:
        if isinstance(event, Progress):
            self._progress = event
        if self._stop.is_set() and not self._interrupted:
            self._interrupted = True
            raise Interrupted


# ---- preview


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
    """A job cut down to what one stream needs, with ``sink`` behind it."""

    def __init__(self, output: OutputPort, sink: SinkDefinition, site: CallSite) -> None:
        super().__init__(f"{output.draft.job}-preview")
        nodes = output.draft.nodes
        needed = _needed(nodes, output.port)
        draft = Draft(self.name, nodes)
        ends = {draft.add("sink", WriteSink(sink), (output.port,), (), site, stem="preview").id}
        for port in _unread_results([nodes[number] for number in sorted(needed)], output.port):
            ends.add(draft.add("sink", WriteSink(BlackholeSink()), (port,), (), site, stem=f"unread-{len(ends)}").id)
        named = {node.id: node for node in draft.graph().nodes}
        self._graph = LogicalGraph(self.name, tuple(_without_commits(named[number]) for number in (*needed, *ends)))

    def graph(self) -> LogicalGraph:
        return self._graph.rebuilt(self._graph.by_id)


def _needed(nodes: Sequence[Node], port: Port) -> set[int]:
    """The nodes from which rows come to a port."""
    found: set[int] = set()
    left = [port.node]
    while left:
        number = left.pop()
        if number not in found:
            found.add(number)
            left += [read.node for read in nodes[number].read]
    return found


def _unread_results(nodes: Sequence[Node], previewed: Port) -> list[Port]:
    """Results of processes that none of the nodes takes: each needs a taker."""
    read = {previewed, *(port for node in nodes for port in node.read)}
    results = [
        Port(node.id, number)
        for node in nodes
        if isinstance(node.work, RunProcess)
        for number in range(len(node.work.outputs))
    ]
    return [port for port in results if port not in read]


def _without_commits(node: Node) -> Node:
    """A source that reports to others how far a job has read must not do so for a preview."""
    if not isinstance(node.work, ReadSource) or not node.work.definition.commits:
        return node
    definition = copy(node.work.definition)
    definition.commits = False
    return replace(node, work=replace(node.work, definition=definition))


def preview(output: OutputPort, rows: int, timeout_us: int, site: CallSite) -> pa.Table:
    """See ``Job.preview``."""
    sink = _PreviewSink(rows)
    until = time.monotonic() + timeout_us / 1e6
    over = False

    def listener(at_us: int, event: Event) -> None:
        nonlocal over
        if not over and (not sink.missing or time.monotonic() > until):
            over = True
            raise Interrupted

    settings = resolve({}, command_line={"runtime": "local", "parallelism": 1, "standbys": 0})
    try:
        run_job(_PreviewJob(output, sink, site), settings, listener)
    except KeyboardInterrupt:
        if not over:
            raise
    return pa.Table.from_batches(sink.batches, output.schema)
