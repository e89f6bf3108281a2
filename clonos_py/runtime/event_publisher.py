"""Publishes the coordinator's events and the processes' counters to a listener."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from clonos_py.model.coordinator_events import (
    CheckpointTriggered,
    CoordinatorEvent,
    Finished,
    FirstNewEffect,
    StandbyLost,
    StandbyPromoted,
    TaskLost,
)
from clonos_py.model.counters import ProcessCounters, SavedParts
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan, Vertex
from clonos_py.model.user_metrics import UserMetric
from clonos_py.observe.events import (
    CheckpointsLeft,
    CoordinatorAwaited,
    Detected,
    Event,
    FunctionPrinted,
    KillMissed,
    Listener,
    Measured,
    Preparing,
    ProcessReading,
    ProcessWarned,
    Progress,
    Recovered,
    TargetMissed,
    TaskFailed,
    VertexProgress,
)
from clonos_py.observe.metrics import LatencyHistogram
from clonos_py.observe.normality import Normality
from clonos_py.runtime.function_output import LineOrigin, WorkerLines, printed_lines
from clonos_py.runtime.implausible_times import TimeWatch
from clonos_py.runtime.leftovers import Leftover
from clonos_py.runtime.metric_conflicts import MetricConflicts

PROGRESS_US = 250_000
"""The interval of progress events."""

_SILENT_US = 2_000_000
"""After this time without new counters, progress leaves out a process's memory, lag and waiting rows."""


@dataclass
class CoordinatorNews:
    """What the coordinator sends to the driver: events with times since the last call, and the newest counters of
    processes by number."""

    crashes: list[tuple[int, TaskId]] = field(default_factory=list)
    """Failures that ``--kill`` ordered."""
    events: list[tuple[int, CoordinatorEvent]] = field(default_factory=list)
    counters: dict[int, tuple[TaskId, ProcessCounters]] = field(default_factory=dict)
    printed: list[str] = field(default_factory=list)
    """Lines of print sinks in other processes, for the terminal of the run."""
    worker_lines: list[WorkerLines] = field(default_factory=list)
    """What users' functions have printed or logged in other processes, and what the engine has."""


class EventPublisher:
    """Publishes to one listener. Times come as microseconds of the run's clock; those of events are microseconds since
    ``began_us``."""

    def __init__(
        self, plan: PhysicalPlan, began_us: int, listener: Listener, kills: Sequence[tuple[int, TaskId]] = ()
    ) -> None:
        """``kills``: failures that ``--kill`` ordered, as (microseconds after deployment, task)."""
        self.began_us = began_us
        self._kills = sorted(kills)
        self._plan, self._listener = plan, listener
        self._crashed: Counter[TaskId] = Counter()
        """Ordered failures that were published already and that the coordinator has not reported."""
        self._counters: dict[int, tuple[TaskId, ProcessCounters]] = {}
        self._last_seen_us: dict[int, int] = {}
        self._fresh: dict[int, None] = {}
        self._progress_us = 0
        self._finished = False
        self._normality = Normality()
        self._times = TimeWatch()
        self._conflicts = MetricConflicts()
        self._missed: set[tuple[str, str]] = set()
        """(vertex, setting) of the targets that were reported as missed."""

    @property
    def latency(self) -> LatencyHistogram:
        """The latencies of all markers that have reached a sink."""
        merged = LatencyHistogram()
        for _, counters in self._counters.values():
            merged.merge(LatencyHistogram(counters.latency))
        return merged

    @property
    def kills_left(self) -> list[tuple[int, TaskId]]:
        """Ordered failures that have not happened yet."""
        return list(self._kills)

    def publish(self, news: CoordinatorNews, now_us: int) -> None:
        """Publishes the news, then progress if it is due. The counts of dead processes stay in the totals."""
        self._counters.update(news.counters)
        self._last_seen_us.update(dict.fromkeys(news.counters, now_us))
        self._fresh.update(dict.fromkeys(news.counters))
        for at_us, task in news.crashes:
            self._crashed[task] += 1
            self._carried_out(task)
            self._listener(at_us - self.began_us, self._failure(task, "killed by --kill"))
        self._warn(news, now_us)
        for written in news.worker_lines:
            for line in _line_events(written):
                self._listener(now_us - self.began_us, line)
        for at_us, event in news.events:
            self._publish(at_us - self.began_us, event)
        if now_us >= self._progress_us and not self._finished:
            self._progress_us = now_us + PROGRESS_US
            self._publish_progress(now_us - self.began_us)
            for _, counters in self._counters.values():
                self._normality.report(counters.worst_latency)
            for task, at_us in self._normality.recoveries(now_us):
                self._listener(at_us - self.began_us, Recovered(task))

    def prepare(self, now_us: int, doing: str) -> None:
        """Publishes a step of the preparation, before there is a coordinator."""
        self._listener(now_us - self.began_us, Preparing(doing=doing))

    def _warn(self, news: CoordinatorNews, now_us: int) -> None:
        for _, counters in news.counters.values():
            for warning in self._times.warnings(counters.event_times, now_us):
                self._listener(now_us - self.began_us, warning)
        for task, counters in news.counters.values():
            for conflict in self._conflicts.warnings(counters.metrics):
                self._listener(now_us - self.began_us, conflict)
            if counters.saved_parts is not None and counters.saved_parts.target_missed:
                self._warn_of_target(task, counters.saved_parts, now_us)

    def _warn_of_target(self, task: TaskId, saved: SavedParts, now_us: int) -> None:
        if (missed := (task.vertex, saved.target_missed)) in self._missed:
            return
        self._missed.add(missed)
        reason = (
            f"{task} does not keep {saved.target_missed}: with {saved.open:,} open windows or keys, a restart reads "
            f"{saved.extent:,} footprints and takes {saved.replay_rows:,} rows again; allow more, or raise check_time"
        )
        self._listener(now_us - self.began_us, TargetMissed(task=task, reason=reason))

    def coordinator_awaited(self, now_us: int, waited_us: int, seen: str) -> None:
        """Publishes that the platform has not started the coordinator yet."""
        self._listener(now_us - self.began_us, CoordinatorAwaited(waited_us=waited_us, seen=seen))

    def name_leftovers(self, leftovers: Sequence[Leftover], checkpoints: str | None) -> None:
        """Publishes, before the run, the checkpoints that killed runs have left. Does nothing if the user names a place
        for ``checkpoints``."""
        for folder, checkpoint in leftovers if checkpoints is None else ():
            self._listener(0, CheckpointsLeft(folder=str(folder), checkpoint=checkpoint))

    def stop(self, now_us: int) -> None:
        """Publishes that the run was interrupted and has stopped in order."""
        self._finish(now_us - self.began_us, Finished(stopped=True))

    def _finish(self, at_us: int, event: Finished) -> None:
        self._finished = True
        self._publish_progress(at_us)
        for after_us, task in self._kills:
            self._listener(at_us, KillMissed(task=task, after_us=after_us))
        self._listener(at_us, event)

    def _publish_progress(self, at_us: int) -> None:
        if self._fresh:
            self._listener(at_us, Measured(tuple(map(self._reading, self._fresh))))
            self._fresh = {}
        self._listener(at_us, self._progress(at_us))

    def _reading(self, number: int) -> ProcessReading:
        task, counters = self._counters[number]
        return ProcessReading(self._last_seen_us[number] - self.began_us, task, number, counters)

    def _carried_out(self, task: TaskId) -> None:
        done = next((order for order in self._kills if order[1] == task), None)
        if done is not None:
            self._kills.remove(done)

    def _failure(self, task: TaskId, how: str, planned: bool = False) -> TaskFailed:
        return TaskFailed(task=task, how=how, frames_at_stake=self._frames_at_stake().get(task, 0), planned=planned)

    def _frames_at_stake(self) -> Mapping[TaskId, int]:
        """The frames at stake of each task, from the newest counters of a process in its role."""
        active = [(self._last_seen_us[number], *entry) for number, entry in self._counters.items() if entry[1].active]
        return {task: counters.frames_at_stake for _, task, counters in sorted(active, key=itemgetter(0))}

    def _progress(self, at_us: int) -> Progress:
        counts, parts = self._counts(), self._saved_parts(at_us)
        return Progress(
            vertices=tuple(self._progress_of(vertex, counts, at_us) for vertex in self._plan.vertices),
            in_flight_bytes=sum(
                counters.in_flight_bytes
                for number, (_, counters) in self._counters.items()
                if self._is_recent(number, at_us)
            ),
            determinant_bytes=sum(counters.determinant_bytes for _, counters in self._counters.values()),
            stamp_bytes=sum(counters.stamp_bytes for _, counters in self._counters.values()),
            feed_bytes=sum(counters.feed_bytes for _, counters in self._counters.values()),
            standby_lag_us=max(
                (
                    counters.standby_lag_us
                    for number, (_, counters) in self._counters.items()
                    if counters.standby_lag_us is not None and counters.active and self._is_recent(number, at_us)
                ),
                default=None,
            ),
            extent=sum(saved.extent for saved in parts) if parts else None,
            replay_rows=max((saved.replay_rows for saved in parts), default=None),
            data_bytes=sum(counters.data_bytes for _, counters in self._counters.values()),
            cpu_us=sum(counters.cpu_us for _, counters in self._counters.values()),
            counts=counts,
            metrics=self._metrics(),
            frames_at_stake=self._frames_at_stake(),
        )

    def _progress_of(self, vertex: Vertex, counts: Mapping[str, int], at_us: int) -> VertexProgress:
        lag_us = max(self._lags(vertex.name, at_us), default=None)
        return VertexProgress(
            vertex=vertex.name,
            parallelism=vertex.parallelism,
            rows_in=sum(counters.rows_in for counters in self._of(vertex.name)),
            rows_out=sum(counters.rows_out for counters in self._of(vertex.name)),
            lag_us=lag_us,
            event_time_us=None if lag_us is None else self.began_us + at_us - lag_us,
            rows_waiting=self._rows_waiting(vertex.name, at_us),
            reads=vertex.source is not None,
            rows_written=sum(counts.get(f"{sink.name}.rows_out", 0) for sink in vertex.operators if sink.sink),
        )

    def _saved_parts(self, at_us: int) -> list[SavedParts]:
        """What each task has saved in parts."""
        return [
            counters.saved_parts
            for number, (_, counters) in self._counters.items()
            if counters.saved_parts is not None and counters.active and self._is_recent(number, at_us)
        ]

    def _is_recent(self, number: int, at_us: int) -> bool:
        return self._last_seen_us[number] > at_us + self.began_us - _SILENT_US

    def _lags(self, vertex: str, at_us: int) -> Iterator[int]:
        for number, (task, counters) in self._counters.items():
            if task.vertex == vertex and counters.lag_us is not None and self._is_recent(number, at_us):
                yield counters.lag_us

    def _rows_waiting(self, vertex: str, at_us: int) -> int | None:
        known = [
            counters.rows_waiting
            for number, (task, counters) in self._counters.items()
            if task.vertex == vertex and counters.rows_waiting is not None and self._is_recent(number, at_us)
        ]
        return sum(known) if known else None

    def _counted(self) -> Mapping[TaskId, ProcessCounters]:
        """By task: the newest process that has counted anything. Its counts and metrics include those of its
        predecessors."""
        processes = sorted(self._counters.items(), key=itemgetter(0))
        return {task: found for _, (task, found) in processes if found.counts or found.metrics}

    def _counts(self) -> Mapping[str, int]:
        """Operators' counts, summed over tasks."""
        totals: Counter[str] = Counter()
        for found in self._counted().values():
            totals.update(found.counts)
        return dict(totals)

    def _metrics(self) -> Mapping[str, Mapping[int, UserMetric]]:
        """See ``Progress``."""
        found: dict[str, dict[int, UserMetric]] = {}
        for task, counters in self._counted().items():
            for name, metric in counters.metrics.items():
                found.setdefault(name, {})[task.index] = metric
        return found

    def _of(self, vertex: str) -> Iterator[ProcessCounters]:
        return (counters for task, counters in self._counters.values() if task.vertex == vertex)

    def _publish(self, at_us: int, event: CoordinatorEvent) -> None:
        match event:
            case CheckpointTriggered() | StandbyLost() | StandbyPromoted():
                pass
            case TaskLost():
                self._publish_loss(at_us, event)
            case Finished():
                self._finish(at_us, event)
            case FirstNewEffect(task):
                self._normality.effective(task, at_us + self.began_us)
                self._listener(at_us, event)
            case _:
                self._listener(at_us, event)

    def _publish_loss(self, at_us: int, lost: TaskLost) -> None:
        """Publishes the loss of a task. If ``--kill`` ordered the failure, it was published before."""
        if lost.planned or not self._crashed[lost.task]:
            self._listener(at_us, self._failure(lost.task, lost.reason, lost.planned))
        else:
            self._crashed[lost.task] -= 1
        self._normality.failed(lost.task, at_us + self.began_us)
        self._listener(at_us, Detected(lost.task))


def _line_events(written: WorkerLines) -> Iterator[Event]:
    task, attempt = written.task, written.attempt
    if written.origin is LineOrigin.ENGINE:
        for text in written.lines.split("\n")[:-1]:
            yield ProcessWarned(task=task, text=text, attempt=attempt)
        return
    for operator, text in printed_lines(written.lines):
        yield FunctionPrinted(task=task, operator=operator, text=text, attempt=attempt)
