"""What if other code had run: changed code on the recorded input, order, clock and answers (F3)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from clonos_py.dsl.job import Job
from clonos_py.model.errors import RecordError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import Partitioning, PhysicalPlan, Vertex
from clonos_py.model.windows import BOUNDS
from clonos_py.plan.logical import EnrichRows, ReadSource
from clonos_py.plan.physical import plan
from clonos_py.runtime.record_errors import as_record_errors
from clonos_py.runtime.replay.answers import RecordedAnswers, Unasked
from clonos_py.runtime.replay.counterparts import unrecorded
from clonos_py.runtime.replay.interval import Leg, RecordedTask
from clonos_py.runtime.replay.lockstep import ReplayedFailure, SideBySide
from clonos_py.runtime.replay.row_differences import AFTER, BEFORE, RowComparison, SinkDifferences
from clonos_py.runtime.replay.run import RecordedJob, ReplayRange, ReplayReport, completed_us
from clonos_py.runtime.replay.sinks import SinkObserver
from clonos_py.runtime.replay.starting_states import Carried, StartingStates
from clonos_py.runtime.run_settings import limits
from clonos_py.settings.definitions import Settings


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
    failure: ReplayedFailure | None = None
    """How the recorded code failed at the end; None: it did not, or the interval ends before."""

    @property
    def differs(self) -> bool:
        return any(sink.differs for sink in self.sinks)


Observers = tuple[SinkObserver, SinkObserver]
"""They get the rows of sinks before and after the change."""


@as_record_errors(of_one_interval=True)
def what_if(
    job: Job,
    changed: Job,
    place: str,
    chosen: ReplayRange,
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
    found, replay = recorded.interval(chosen)
    _check_legs(found)
    for node in (*job.graph().nodes, *changed.graph().nodes):
        if isinstance(node.work, ReadSource | EnrichRows):
            node.work.definition.resolve()
    comparing = _Comparing(recorded, changed, found, how, observers)
    report = WhatIfReport(replay, empty=comparing.empty)
    begun(report.replay)
    for number in range(len(found)):
        report.failure = comparing.leg(number, report.replay, client, before)
    report.sinks = [comparison.result() for comparison in comparing.comparisons.values()]
    report.left, report.first_left = comparing.record.left, comparing.record.first_left
    return report


def _check_legs(found: Sequence[Leg]) -> None:
    """Raises RecordError if the changed code cannot go on from run to run of the job."""
    for leg in found[:-1]:
        last = leg.manifests[-1]
        if not last.coordinated:
            raise RecordError(
                f"the job was started again after checkpoint {last.checkpoint}, and with protocol {last.protocol} "
                f"tasks went back then: compare one run at a time, with --until {last.checkpoint}"
            )


class _PlannedLeg(NamedTuple):
    plans: tuple[PhysicalPlan, PhysicalPlan]
    tasks: Mapping[TaskId, RecordedTask]
    settings: Settings


class _Comparing:
    """The comparison of all legs of an interval."""

    def __init__(
        self, recorded: RecordedJob, changed: Job, found: Sequence[Leg], how: WhatIf, observers: Observers
    ) -> None:
        """Raises RecordError if the jobs cannot be compared."""
        self._recorded, self._changed, self._legs, self._observers = recorded, changed, found, observers
        self.record = RecordedAnswers(how.unasked, how.modules)
        self._first = self._plan(0)
        plans, tasks, _ = self._first
        _check_sources(*plans)
        states = StartingStates(plans, tasks, found[0].before, recorded.store, how.dropped)
        self.empty, self._states = states.empty, states.of_tasks()
        self.comparisons = _comparisons(plans, how.keys)
        self._carried: Carried | None = None

    def _plan(self, number: int) -> _PlannedLeg:
        leg = self._legs[number]
        settings = self._recorded.settings(leg)
        plans = self._recorded.plan(leg, settings), unrecorded(plan(self._changed, settings))
        return _PlannedLeg(plans, self._recorded.tasks(plans[BEFORE], leg), settings)

    def leg(
        self,
        number: int,
        report: ReplayReport,
        client: Callable[[str], Any] | None,
        before: Callable[[TaskId], None] | None,
    ) -> ReplayedFailure | None:
        """Compares a leg. Returns how the recorded code failed at its end."""
        plans, tasks, settings = self._plan(number) if number else self._first
        leg, later = self._legs[number], self._legs[number + 1 :]
        sides = SideBySide(
            plans,
            tasks,
            self._recorded.store,
            self.record,
            (self._observer(BEFORE), self._observer(AFTER)),
            names=leg.names,
            limits=limits(settings),
            checkpoints_us=self._times(leg),
            client=client,
            before=before,
            failed=bool(leg.tails),
        )
        if self._carried is not None:
            self._states = self._carried.states(plans[AFTER], tasks)
        frames = self._carried.frames if self._carried is not None else None
        result, self._carried = sides.run(self._states, frames, leg.manifests[-1].checkpoint if later else None)
        report.tasks = max(report.tasks, len(tasks))
        report.events += result.events
        report.snapshots += result.snapshots
        report.differences += result.differences
        report.incomplete += result.incomplete
        return sides.failure

    def _times(self, leg: Leg) -> list[tuple[int, int]]:
        begin = leg.before.checkpoint if leg.before is not None else 0
        manifests = [manifest for manifest in self._recorded.manifests if manifest.checkpoint >= begin]
        return [(manifest.checkpoint, completed_us(manifest)) for manifest in manifests or [leg.description]]

    def _observer(self, side: int) -> SinkObserver:
        def observed(task: TaskId, sink: str, batch: pa.RecordBatch) -> None:
            self.comparisons[sink].add(side, batch)
            self._observers[side](task, sink, batch)

        return observed


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
                keys = [*edge.keys, *(bound for bound in BOUNDS if bound in schema.names)]
                return tuple(dict.fromkeys(keys)) if set(keys) <= set(schema.names) else ()
        if not entering:
            break
        vertex = entering[0].source
    return ()
