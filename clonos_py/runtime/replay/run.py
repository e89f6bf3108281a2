"""Replays what a job did between two checkpoints, from its record, in this process (F2)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property

import pyarrow as pa

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.dsl.job import Job
from clonos_py.job.state_mapping import definitions_of, operators_of
from clonos_py.model.errors import RecordError, SettingError, UserCodeError
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest, RecordTail
from clonos_py.model.state_definitions import differences
from clonos_py.plan.logical import EnrichRows, ReadSource
from clonos_py.plan.physical import plan
from clonos_py.runtime.record_errors import as_record_errors
from clonos_py.runtime.replay.interval import Leg, RecordedTask, legs, recorded_tasks, tails_after
from clonos_py.runtime.replay.machines import LegReplay
from clonos_py.runtime.replay.sinks import SinkObserver, without_sinks
from clonos_py.runtime.replay.sources import with_recorded_partitions
from clonos_py.runtime.replay.watcher import OperatorWatcher
from clonos_py.runtime.run_settings import limits
from clonos_py.runtime.user_code import code_digest
from clonos_py.settings.definitions import Settings
from clonos_py.settings.resolution import resolve

_OF_ONE_RUN = frozenset(
    {
        "address", "drop_state", "fresh", "kills", "log_format", "log_level", "renames", "runtime", "take_over",
        "tls_ca", "tls_certificate", "tls_key", "trace",
    }
)  # fmt: skip
"""Settings that say nothing about what tasks do with rows."""


@dataclass(frozen=True)
class ReplayRange:
    """Which part of the record is replayed. Times are microseconds of the time of day.

    It begins at the last checkpoint from which a replay can start that is not after ``at_us``, or not after checkpoint
    ``checkpoint`` (0: at the beginning of the job), else at the beginning of the record. It ends at checkpoint
    ``until``, or at the first one that was complete at ``until_us``, else at the next one after ``at_us`` or
    ``checkpoint``, else at the last one."""

    at_us: int | None = None
    checkpoint: int | None = None
    until_us: int | None = None
    until: int | None = None


@dataclass
class ReplayReport:
    """What was replayed, and whether it was the same."""

    first: Manifest | None
    """The checkpoint at which the interval begins; None: the beginning of the job."""
    last: Manifest | None
    """The last checkpoint in it; None: the job failed before its first."""
    failed: bool
    """Whether it goes on from there to where the job failed."""
    code_changed: bool
    """Whether the user's code is not that which wrote the record."""
    tasks: int = 0
    """The number of tasks that were replayed."""
    events: int = 0
    snapshots: int = 0
    """How many snapshots were compared and are equal."""
    differences: list[str] = field(default_factory=list)
    """One line for each snapshot that differs."""
    incomplete: list[TaskId] = field(default_factory=list)
    """Tasks that end before their last snapshot; see ``ReplayResult``."""
    rows: Counter[str] = field(default_factory=Counter)
    """By sink: the number of rows that it was given."""
    without_tail: list[str] = field(default_factory=list)
    """Tasks of a failed job whose processes have left no file of what they held then: they had died, or it is
    missing."""


class RecordedJob:
    """The record of a job in a checkpoint folder."""

    def __init__(self, job: Job, place: str) -> None:
        """Raises RecordError if there is no record of the job."""
        self._job = job
        self.store: SnapshotStore = CheckpointStore(place, job.name)
        with as_record_errors(of_one_interval=False):
            self._written = self.store.manifests()
        self.manifests = [manifest for manifest in self._written if manifest.recorded is not None]
        if not self.manifests and not self._tails:
            raise RecordError(
                f"{place} has no record of job {job.name!r}: run it with this folder as --checkpoints and with "
                "--record, such as --record 24h; it has one from its first checkpoint on, or when it has failed"
            )

    @cached_property
    def _tails(self) -> list[RecordTail]:
        """What processes held when the job failed after the newest checkpoint. Only an interval that ends there needs
        it."""
        with as_record_errors(of_one_interval=bool(self._written)):
            return tails_after(self._written[-1] if self._written else None, self.store.tails())

    # ---- which interval

    def between(self, chosen: ReplayRange) -> tuple[Manifest | None, Manifest | None]:
        """The checkpoints at which a part of the record begins (None: the beginning of the job) and ends (None: there
        is none in it)."""
        first = self._first(chosen)
        return first, self._last(chosen, first)

    def _first(self, chosen: ReplayRange) -> Manifest | None:
        starts = self.store.bases()
        if chosen.at_us is not None:
            starts = [manifest for manifest in starts if completed_us(manifest) <= chosen.at_us]
        elif chosen.checkpoint is not None:
            starts = [manifest for manifest in starts if manifest.checkpoint <= chosen.checkpoint]
        elif self._from_the_beginning:
            return None
        else:
            starts = starts[:1]
        if starts:
            return starts[-1]
        if self._from_the_beginning:
            return None
        if not self.store.bases():
            raise RecordError(
                f"the record of job {self._job.name!r} has manifests, but none from which a replay can start: restore "
                "the folder from a copy"
            )
        raise RecordError(
            f"a replay can start from {self._starts}: choose one of these or a later time, or a later --checkpoint"
        )

    @property
    def _starts(self) -> str:
        bases = [f"{m.checkpoint} ({shown_time(completed_us(m))})" for m in self.store.bases()]
        return f"checkpoint {bases[0]} on" if bases else "no checkpoint yet"

    @property
    def _from_the_beginning(self) -> bool:
        """Whether the record has all that the job did since it began."""
        recorded = (self.manifests[0] if self.manifests else self._tails[0].interval).recorded
        return recorded is not None and recorded.first

    def _last(self, chosen: ReplayRange, first: Manifest | None) -> Manifest | None:
        reached = first.checkpoint if first is not None else 0
        if chosen.until is not None:
            if chosen.until <= reached:
                raise RecordError(
                    f"the interval begins at checkpoint {reached} and ends at {chosen.until}: choose a later end, or "
                    "an earlier beginning"
                )
            return self._numbered(chosen.until)
        later = [manifest for manifest in self.manifests if manifest.checkpoint > reached]
        self._check_kept(chosen.at_us)
        if not later and self._tails:
            return first
        if not later:
            raise RecordError(f"nothing is recorded after checkpoint {reached}: choose an earlier one")
        at_us = chosen.until_us if chosen.until_us is not None else chosen.at_us
        if at_us is None:
            after = [manifest for manifest in later if manifest.checkpoint > (chosen.checkpoint or 0)]
            return after[0] if chosen.checkpoint is not None and after else later[-1]
        return next((manifest for manifest in later if completed_us(manifest) >= at_us), later[-1])

    def _check_kept(self, at_us: int | None) -> None:
        """Raises RecordError if the record ends before this time. When it ends is unknown if the job failed."""
        if at_us is not None and self.manifests and at_us > completed_us(self.manifests[-1]) and not self._tails:
            first, last = (shown_time(completed_us(manifest)) for manifest in (self.manifests[0], self.manifests[-1]))
            raise RecordError(
                f"nothing is recorded at {shown_time(at_us)}: the record has checkpoints from {first} to {last}"
            )

    def tails(self, chosen: ReplayRange, last: Manifest | None) -> list[RecordTail]:
        """What processes held when the job failed after ``last``, if that is to be replayed."""
        ends_before = chosen.until is not None or chosen.until_us is not None
        newest = self._written[-1] if self._written else None
        return [] if ends_before or last != newest else self._tails

    def _numbered(self, checkpoint: int) -> Manifest:
        for manifest in self.manifests:
            if manifest.checkpoint == checkpoint:
                return manifest
        numbers = [manifest.checkpoint for manifest in self.manifests]
        if not numbers:
            raise RecordError(f"checkpoint {checkpoint} is not in the record: the job failed before its first")
        raise RecordError(
            f"checkpoint {checkpoint} is not in the record, which has {len(numbers)} from {numbers[0]} to {numbers[-1]}"
        )

    def interval(self, chosen: ReplayRange) -> tuple[list[Leg], ReplayReport]:
        """What is replayed: the legs of a part of the record, and the report of their replay, which has not begun."""
        first, last = self.between(chosen)
        tails = self.tails(chosen, last)
        newest = tails[0].interval if tails else last
        code_changed = newest is not None and newest.of_other_code(code_digest())
        report = ReplayReport(first, last, bool(tails), code_changed, without_tail=_without_tail(tails))
        return legs(self.manifests, first, last, tails), report

    # ---- how the job ran

    def settings(self, leg: Leg) -> Settings:
        """The settings of a run, as far as they decide what tasks do."""
        recorded = leg.description.recorded
        assert recorded is not None
        given = {name: value for name, value in recorded.settings.items() if name not in _OF_ONE_RUN}
        return resolve(arguments={**given, "runtime": "local"})

    def plan(self, leg: Leg, settings: Settings) -> PhysicalPlan:
        """The plan of a run. Raises RecordError if the job has another shape now."""
        made = plan(self._job, settings)
        _check_fits(made, leg.description)
        counted = None if leg.resumed and not leg.manifests else leg.end
        return with_recorded_partitions(made, counted) if counted is not None else made

    def tasks(self, made: PhysicalPlan, leg: Leg) -> Mapping[TaskId, RecordedTask]:
        """What the tasks did in a run."""
        return recorded_tasks(made, leg, self.manifests, self.store.read_record)


@as_record_errors(of_one_interval=True)
def replay(
    job: Job,
    place: str,
    chosen: ReplayRange,
    observer: SinkObserver,
    *,
    tasks: Collection[str] = (),
    before: Callable[[TaskId], None] | None = None,
    begun: Callable[[ReplayReport], None] = lambda report: None,
    leg_begun: Callable[[Mapping[TaskId, RecordedTask]], None] = lambda found: None,
    watcher: OperatorWatcher | None = None,
) -> ReplayReport:
    """Replays a part of the record in ``place``.

    ``observer`` gets the rows of sinks. ``tasks``: only these, such as ``join[0]``, and those upstream of them.
    ``before`` is called before each event, ``begun`` when it is known what is replayed, ``leg_begun`` with what the
    tasks did in a run of the job. ``watcher`` looks at the operators; without ``tasks`` those that it needs are
    replayed. Raises RecordError if it cannot be replayed, and what the user's code raises."""
    recorded = RecordedJob(job, place)
    found_legs, report = recorded.interval(chosen)
    begun(report)
    for node in job.graph().nodes:
        if isinstance(node.work, ReadSource | EnrichRows):
            node.work.definition.resolve()

    def observed(task: TaskId, sink: str, batch: pa.RecordBatch) -> None:
        report.rows[sink] += batch.num_rows
        observer(task, sink, batch)

    for leg in found_legs:
        settings = recorded.settings(leg)
        made = recorded.plan(leg, settings)
        needed = watcher.tasks(made) if watcher is not None else ()
        found = _leading_to(made, recorded.tasks(made, leg), tasks or needed)
        leg_begun(found)
        quiet, delivered = without_sinks(made, observed), None
        if watcher is not None:
            quiet, delivered = watcher.watched(quiet), watcher.delivered
            watcher.begin(found)
        run = LegReplay(quiet, found, recorded.store, leg.names, limits(settings), before, bool(leg.tails), delivered)
        try:
            result = run.run()
        except BaseException as error:
            if watcher is not None and isinstance(error, UserCodeError):
                watcher.failed(error)
            run.abandon()
            raise
        report.tasks = max(report.tasks, len(found))
        report.events += result.events
        report.snapshots += result.snapshots
        report.differences += result.differences
        report.incomplete += result.incomplete
    return report


def _without_tail(tails: Sequence[RecordTail]) -> list[str]:
    """The tasks of the job that are missing among these."""
    have = {tail.task for tail in tails}
    of_job = tails[0].interval.parallelism if tails else {}
    tasks = (TaskId(vertex, index) for vertex, count in of_job.items() for index in range(count))
    return [str(task) for task in tasks if task not in have]


def _leading_to(
    made: PhysicalPlan, found: Mapping[TaskId, RecordedTask], names: Collection[str]
) -> Mapping[TaskId, RecordedTask]:
    """The tasks with these names and those upstream of them; all if there are no names."""
    if not names:
        return found
    by_name = {str(task): task for task in made.tasks}
    for name in names:
        if name not in by_name:
            raise RecordError(f"there is no task {name!r}: choose from {', '.join(by_name)}")
    kept = {origin for name in names for origin in made.origins[by_name[name]]}
    return {task: recorded for task, recorded in found.items() if task in kept}


def _check_fits(made: PhysicalPlan, recorded: Manifest) -> None:
    """Raises RecordError if the job has other operators or tasks than the one that was recorded."""
    parallelism = {vertex.name: vertex.parallelism for vertex in made.vertices}
    operators = operators_of(made)
    if recorded.operators != operators:
        changed = sorted({*recorded.operators.items()} ^ {*operators.items()})
        raise RecordError(
            f"the job has other operators than the record: {', '.join(dict.fromkeys(name for name, _ in changed))}; "
            "replay it with the code that ran then"
        )
    if recorded.parallelism != parallelism:
        name = next(name for name in parallelism if recorded.parallelism.get(name) != parallelism[name])
        raise RecordError(
            f"operator {name!r} has parallelism {parallelism[name]}, in the record {recorded.parallelism.get(name)}: "
            "replay the job with the code and settings that ran then"
        )
    now = definitions_of(made)
    for name, definition in recorded.definitions.items():
        for difference in differences(definition, now[name], {}) if name in now else ():
            raise RecordError(f"the state of operator {name!r} has another meaning than in the record: {difference}")


def completed_us(manifest: Manifest) -> int:
    """When a recorded checkpoint was complete, in microseconds of the time of day."""
    return manifest.recorded.completed_ms * 1_000 if manifest.recorded is not None else 0


def interval_texts(report: ReplayReport) -> tuple[str, str]:
    """Where a replayed interval begins and ends, for people."""
    first = "the beginning of the job" if report.first is None else _shown(report.first)
    last = "" if report.last is None or report.last == report.first else _shown(report.last)
    ends = [*([last] if last else []), *(["the failure of the job"] if report.failed else [])]
    return first, " and on to ".join(ends)


def _shown(manifest: Manifest) -> str:
    return f"checkpoint {manifest.checkpoint} ({shown_time(completed_us(manifest))})"


def time_of_day_us(at: str | datetime) -> int:
    """Microseconds since 1970 of a time of day, in UTC unless it has an offset. Raises SettingError."""
    try:
        found = datetime.fromisoformat(at) if isinstance(at, str) else at
    except ValueError:
        raise SettingError(f"{at!r} is no time: write it as '2026-11-27 03:12:30', in UTC or with an offset") from None
    return round((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp() * 1e6)


def shown_time(at_us: int) -> str:
    """A time of day in UTC, to the second."""
    return f"{datetime.fromtimestamp(at_us / 1e6, UTC):%Y-%m-%d %H:%M:%S} UTC"
