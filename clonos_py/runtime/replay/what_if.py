"""What if other code had run: changed code on the recorded input, order, clock and answers (F4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from clonos_py.dsl.job import Job
from clonos_py.model.errors import RecordError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import Partitioning, PhysicalPlan, Vertex
from clonos_py.model.snapshots import numbering_of
from clonos_py.plan.logical import EnrichRows, ReadSource
from clonos_py.plan.physical import plan
from clonos_py.runtime.replay.answers import Record, Unasked
from clonos_py.runtime.replay.counterparts import unrecorded
from clonos_py.runtime.replay.interval import legs
from clonos_py.runtime.replay.lockstep import SideBySide
from clonos_py.runtime.replay.row_differences import AFTER, BEFORE, RowComparison, SinkDifferences
from clonos_py.runtime.replay.run import Range, RecordedJob, ReplayReport, completed_us
from clonos_py.runtime.replay.sinks import SinkObserver
from clonos_py.runtime.replay.starting_states import StartingStates
from clonos_py.runtime.run_settings import limits
from clonos_py.runtime.user_code import code_digest

_WINDOW_BOUNDS = ("window_start", "window_end")


@dataclass(frozen=True)
class WhatIf:
    """How a comparison is made. ``keys``: the columns by which rows are versions of each other (empty: those by which
    the rows of a sink were grouped). ``dropped``: operators that start without the state of the record."""

    unasked: Unasked = Unasked.FAIL
    keys: Sequence[str] = ()
    dropped: Collection[str] = ()
    modules: frozenset[str] = frozenset()
    """The modules with the two versions of the job: what they define has the same names in both."""


@dataclass
class WhatIfReport:
    """What has come of a comparison."""

    replay: ReplayReport
    """The replay of the recorded code."""
    sinks: list[SinkDifferences] = field(default_factory=list)
    left: int = 0
    """The number of questions that the record had no answer for."""
    first_left: str = ""
    """The first of them: what was asked, by which operator, at which row."""
    empty: list[str] = field(default_factory=list)
    """The operators with state that are not in the record, so that they start empty in the middle of the job."""

    @property
    def differs(self) -> bool:
        return any(sink.differs for sink in self.sinks)


Observers = tuple[SinkObserver, SinkObserver]
"""They get the rows of sinks before and after the change."""


def what_if(
    job: Job,
    changed: Job,
    place: str,
    chosen: Range,
    how: WhatIf,
    observers: Observers,
    *,
    client: Callable[[str], Any] | None = None,
    before: Callable[[TaskId], None] | None = None,
    begun: Callable[[ReplayReport], None] = lambda report: None,
) -> WhatIfReport:
    """Compares a job with a changed one on a part of the record in ``place``. ``client``: gives the clients of
    services, for ``Unasked.LIVE``. ``before`` is called before each recorded event, ``begun`` when it is known what is
    replayed. Raises RecordError if the jobs cannot be compared, and what the user's code raises."""
    recorded = RecordedJob(job, place)
    first, last = recorded.between(chosen)
    found = legs(recorded.manifests, first, last)
    if len(found) > 1:
        raise RecordError(
            f"the job was started again after checkpoint {found[0].last.checkpoint}: compare one run at a time, with "
            f"--until {found[0].last.checkpoint}, or --checkpoint {found[0].last.checkpoint} for the next one"
        )
    for node in (*job.graph().nodes, *changed.graph().nodes):
        if isinstance(node.work, ReadSource | EnrichRows):
            node.work.definition.resolve()
    leg = found[0]
    settings = recorded.settings(leg)
    plans = recorded.plan(leg, settings), unrecorded(plan(changed, settings))
    _check_sources(*plans)
    tasks = recorded.tasks(plans[BEFORE], leg)
    states = StartingStates(plans, tasks, first, recorded.store, how.dropped)
    comparisons = _comparisons(plans, how.keys)
    report = WhatIfReport(ReplayReport(first, last, last.of_other_code(code_digest())), empty=states.empty)
    begun(report.replay)

    def observer(side: int) -> SinkObserver:
        def observed(task: TaskId, sink: str, batch: pa.RecordBatch) -> None:
            comparisons[sink].add(side, batch)
            observers[side](task, sink, batch)

        return observed

    times = [(manifest.checkpoint, completed_us(manifest)) for manifest in recorded.manifests]
    record = Record(how.unasked, how.modules)
    sides = SideBySide(
        plans,
        tasks,
        recorded.store,
        record,
        (observer(BEFORE), observer(AFTER)),
        numbering=numbering_of(leg.last.lineage, leg.last.renumberings),
        limits=limits(settings),
        checkpoints_us=times,
        client=client,
        before=before,
    )
    result = sides.run(states.of_tasks())
    report.replay.tasks, report.replay.events = len(tasks), result.events
    report.replay.snapshots, report.replay.differences = result.snapshots, result.differences
    report.replay.incomplete = result.incomplete
    report.sinks = [comparison.result() for comparison in comparisons.values()]
    report.left, report.first_left = record.left, record.first_left
    return report


def _check_sources(recorded: PhysicalPlan, changed: PhysicalPlan) -> None:
    """Raises RecordError if the changed job reads something that the recorded one did not read."""
    known = {v.source.name: v for v in recorded.vertices if v.source is not None}
    for vertex in changed.vertices:
        if vertex.source is None:
            continue
        name = vertex.source.name
        if name not in known:
            raise RecordError(
                f"the changed job reads source {name!r}, which is not in the record; it has {', '.join(known)}: a "
                "comparison needs the same input for both"
            )
        if vertex.parallelism != known[name].parallelism:
            raise RecordError(
                f"source {name!r} has parallelism {vertex.parallelism} in the changed job, in the record "
                f"{known[name].parallelism}: give it the same one"
            )


# ---- what is compared


def _comparisons(plans: tuple[PhysicalPlan, PhysicalPlan], keys: Sequence[str]) -> dict[str, RowComparison]:
    schemas = [dict(_sink_schemas(found)) for found in plans]
    names = list(dict.fromkeys([*schemas[BEFORE], *schemas[AFTER]]))
    columns = {name: [s[name].names for s in schemas if name in s] for name in names}
    if keys and not any(_has(found, keys) for found in columns.values()):
        listed = "; ".join(f"{name} has {', '.join(found[-1])}" for name, found in columns.items())
        raise RecordError(f"--key {','.join(keys)}: no sink has these columns: {listed}")
    found = {}
    for name in names:
        own = keys or _keys_of(plans[AFTER if name in schemas[AFTER] else BEFORE], name)
        both = [schemas[side].get(name) for side in (BEFORE, AFTER)]
        found[name] = RowComparison(name, both, own if _has(columns[name], own) else ())
    return found


def _has(columns: Sequence[Sequence[str]], keys: Sequence[str]) -> bool:
    return all(key in names for names in columns for key in keys)


def _sink_schemas(found: PhysicalPlan) -> Iterator[tuple[str, pa.Schema]]:
    for vertex in found.vertices:
        for number, operator in enumerate(vertex.operators):
            if operator.sink:
                yield operator.name, _input_schema(found, vertex, number)


def _input_schema(found: PhysicalPlan, vertex: Vertex, number: int) -> pa.Schema:
    for wire in vertex.wires:
        if wire.consumer == number:
            producer = vertex.operators[wire.producer] if wire.producer >= 0 else vertex.source
            assert producer is not None
            return producer.schemas[wire.port]
    return next(e.schema for e in found.edges if (e.target, e.consumer) == (vertex.name, number))


def _keys_of(found: PhysicalPlan, sink: str) -> tuple[str, ...]:
    """The columns by which the rows of a sink were grouped last, with the bounds of their windows."""
    schema = dict(_sink_schemas(found))[sink]
    vertex = next(v.name for v in found.vertices if any(o.name == sink for o in v.operators))
    seen = set[str]()
    while vertex not in seen:
        seen.add(vertex)
        entering = [edge for edge in found.edges if edge.target == vertex and not edge.feedback]
        for edge in entering:
            if edge.partitioning is Partitioning.HASH and edge.keys:
                keys = [*edge.keys, *(bound for bound in _WINDOW_BOUNDS if bound in schema.names)]
                return tuple(dict.fromkeys(keys)) if set(keys) <= set(schema.names) else ()
        if not entering:
            break
        vertex = entering[0].source
    return ()
