"""The state of a run, computed from its events, for the live view and for reports. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from clonos_py.model.coordinator_events import (
    CheckpointAborted,
    CheckpointCompleted,
    CheckpointSkipped,
    CodeChanged,
    CoordinatorReplaced,
    DeletionFailed,
    Deployed,
    Deploying,
    Finished,
    FirstNewEffect,
    FunctionHangs,
    IntervalChosen,
    IntervalExceeded,
    Replayed,
    Restarted,
    RestartedWithoutLog,
    RolledBack,
    RoomAwaited,
    SourceStaysEnded,
    SpillFailed,
    StandbyActivated,
    StandbyUnready,
    StorageAwaited,
    TaskKeepsDying,
    WentBack,
)
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.observe.events import (
    CheckpointsLeft,
    CoordinatorAwaited,
    Detected,
    Event,
    ImplausibleEventTimes,
    KillMissed,
    Measured,
    MetricConflict,
    PlanWarning,
    Preparing,
    ProcessWarned,
    Progress,
    Recovered,
    RecoveryStep,
    RescaleFailed,
    TargetMissed,
    TaskFailed,
    TraceStopped,
)
from clonos_py.observe.latest import Latest
from clonos_py.observe.metrics import RateMeter

STEPS: Mapping[type[RecoveryStep], tuple[str, str]] = {
    Detected: ("detected", "detected_ms"),
    StandbyActivated: ("standby activated", "activated_ms"),
    Replayed: ("replayed", "replayed_ms"),
    FirstNewEffect: ("first new result", "first_new_effect_ms"),
    Recovered: ("latency normal", "recovered_ms"),
}
"""The steps of a recovery: by event, the words for it, and the attribute of ``Recovery`` with its time."""

SKIPPED_MIN = 3
"""A run reports skipped checkpoints as soon as so many were skipped in a row: a single slow one is not enough."""


@dataclass
class Recovery:
    """The recovery from one failure. Times are in milliseconds after the failure; None if the step has not happened."""

    task: TaskId
    how: str
    failed_at_us: int
    planned: bool = False
    detected_ms: float | None = None
    activated_ms: float | None = None
    replayed_ms: float | None = None
    first_new_effect_ms: float | None = None
    restarted_ms: float | None = None
    tasks_restarted: int = 0
    recovered_ms: float | None = None
    rows_replayed: int = 0
    attempt: Attempt | None = None

    @property
    def restart_ms(self) -> float | None:
        """The restart time, as ``definitions.py`` has it."""
        if self.detected_ms is None or self.first_new_effect_ms is None:
            return None
        return self.first_new_effect_ms - self.detected_ms

    def on(self, at_us: int, event: RecoveryStep) -> None:
        setattr(self, STEPS[type(event)][1], (at_us - self.failed_at_us) / 1000)
        match event:
            case StandbyActivated(attempt=attempt):
                self.attempt = attempt
            case Replayed(rows=rows):
                self.rows_replayed = rows
            case _:
                pass

    def step(self, kind: type[RecoveryStep]) -> tuple[str, float | None]:
        """The words for a step, and its time; None if it has not happened."""
        words, attribute = STEPS[kind]
        return words, getattr(self, attribute)

    def restarted(self, at_us: int, tasks: int) -> None:
        self.restarted_ms, self.tasks_restarted = (at_us - self.failed_at_us) / 1000, tasks

    def __str__(self) -> str:
        replayed, replayed_ms = self.step(Replayed)
        steps = (
            self.step(Detected),
            self.step(StandbyActivated),
            (f"{self.rows_replayed:,} rows {replayed}", replayed_ms),
            self.step(FirstNewEffect),
            (f"all {self.tasks_restarted} tasks restarted", self.restarted_ms if self.tasks_restarted > 1 else None),
            self.step(Recovered),
        )
        steps_text = ", ".join(f"{step} after {ms:,.0f} ms" for step, ms in steps if ms is not None)
        return f"{self.task} {'moved' if self.planned else 'failed'} ({self.how})" + (
            f": {steps_text}" if steps_text else ""
        )


def unready_text(event: StandbyUnready) -> str:
    return f"the standby of {event.task} could not load checkpoint {event.checkpoint}: {event.reason}"


def awaited_room_text(event: RoomAwaited) -> str:
    return f"{'a standby of ' if event.standby else ''}{event.task} waits until a node has room: {event.reason}"


def awaited_storage_text(event: StorageAwaited) -> str:
    return f"{event.task or 'the job'} waits for checkpoint storage, which is asked again and again: {event.reason}"


def dying_text(event: TaskKeepsDying) -> str:
    return (
        f"{event.task} has died {event.times} times without a completed checkpoint in between ({event.how}): if it "
        "dies at the same input each time, give it more memory (dmesg on its node tells whether that ran out), or mend "
        "what it does with that input; the job goes on trying"
    )


def unwritten_text(event: SpillFailed) -> str:
    return f"{event.task} keeps its frames in memory, as {event.reason}"


def interval_text(event: IntervalChosen) -> str:
    """What the job has chosen, and what it has measured."""
    known = []
    if event.cost_s is not None:
        known.append(f"a checkpoint costs {_span(event.cost_s)}")
    if event.restart_s is not None:
        known.append(f"a restart takes {_span(event.restart_s)}")
    if event.replay_speed is not None:
        known.append(f"replays run at {event.replay_speed:.3g} times normal speed")
    known.append(f"a failure every {_span(1 / event.failures_per_s) if event.failures_per_s else 'eternity'}")
    best = "" if event.best_s is None or event.bound is None else f" instead of {_span(event.best_s)}"
    bound = "" if event.bound is None else f"{best}, bound by {event.bound}"
    return (
        f"checkpoint interval {_span(event.interval_s)}{bound}: {', '.join(known)}; "
        f"utilization so far {event.utilization:.2%}"
    )


def _span(seconds: float) -> str:
    """A time with three digits, in the unit that suits it."""
    for unit, size_s in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1.0), ("ms", 1e-3)):
        if seconds >= size_s:
            return f"{seconds / size_s:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"


def exceeded_text(event: IntervalExceeded) -> str:
    return (
        f"the checkpoint interval of {event.asked_ms / 1e3:g} s is not kept: snapshots of {event.task} become durable "
        f"more slowly, and it takes one every {event.kept_ms / 1e3:.3g} s"
    )


def skipped_text(events: Latest[CheckpointSkipped]) -> str:
    last, amount = events[-1], events.amount
    return (
        f"the checkpoint interval of {last.asked_ms / 1e3:g} s is not kept: {amount} "
        f"{'checkpoint was' if amount == 1 else 'checkpoints were'} skipped, as the one before was not complete"
    )


def skipping_text(event: CheckpointSkipped) -> str:
    return (
        f"the checkpoint interval of {event.asked_ms / 1e3:g} s is not kept: {event.in_a_row} checkpoints in a row "
        f"were skipped, and checkpoint {event.pending} is not complete after {event.pending_ms / 1e3:.3g} s"
    )


def undeleted_text(event: DeletionFailed) -> str:
    return f"old checkpoints are not deleted, which is tried again with each new one: {event.reason}"


def untraced_text(at_us: int, event: TraceStopped) -> str:
    return f"the trace ends {at_us / 1e6:.1f} s into the run: {event.reason}"


def missed_text(event: KillMissed) -> str:
    return f"kill of {event.task} at {event.after_us / 1e6:g}s never happened: the job had ended"


def awaited_text(event: CoordinatorAwaited) -> str:
    return f"waiting for Ray to start the coordinator: {event.waited_us / 1e6:.0f} s so far ({event.seen})"


def deploying_text(event: Deploying) -> str:
    up = f"starting processes: {event.up} {'is' if event.up == 1 else 'are'} up"
    if not event.missing:
        return up
    others = event.missing - 1
    more = f" and {others} more task{'s' if others > 1 else ''}" if others else ""
    return f"{up}, none yet for {event.awaited}{more}"


def news_text(at_us: int, event: Event) -> str | None:
    """An exceptional event as text; None for the others."""
    match event:
        case CodeChanged(checkpoint):
            return f"the code has changed since checkpoint {checkpoint}"
        case SourceStaysEnded(source):
            return (
                f"{source} had read all input in an earlier run and reads nothing in this one: rows that "
                "came since are read when the whole job has finished and is run again"
            )
        case CheckpointsLeft():
            return left_text(event)
        case CheckpointAborted(checkpoint, reason):
            return f"checkpoint {checkpoint} aborted: {reason}"
        case RolledBack(checkpoint, reason):
            return f"rolled back to checkpoint {checkpoint}: {reason}"
        case WentBack(tasks, invalid, durable):
            return f"{tasks} tasks restored earlier snapshots, {invalid} of {durable} snapshots were invalid"
        case RestartedWithoutLog():
            return restart_text(event)
        case CoordinatorReplaced():
            return "the coordinator was lost and replaced"
        case StandbyUnready():
            return unready_text(event)
        case RoomAwaited():
            return awaited_room_text(event)
        case StorageAwaited():
            return awaited_storage_text(event)
        case TaskKeepsDying():
            return dying_text(event)
        case SpillFailed():
            return unwritten_text(event)
        case ProcessWarned():
            return f"{event.task}: {event.text}"
        case FunctionHangs() | ImplausibleEventTimes() | MetricConflict() | TargetMissed() | PlanWarning():
            return event.reason
        case IntervalExceeded():
            return exceeded_text(event)
        case CheckpointSkipped():
            return skipping_text(event) if event.in_a_row == SKIPPED_MIN else None
        case DeletionFailed():
            return undeleted_text(event)
        case TraceStopped():
            return untraced_text(at_us, event)
        case RescaleFailed(reason):
            return f"the parallelism is not changed: {reason}"
        case _:
            return None


def left_text(event: CheckpointsLeft) -> str:
    return (
        f"an earlier run was killed after checkpoint {event.checkpoint}: to continue from there, run the job with "
        f"--checkpoints {event.folder}"
    )


def restart_text(event: RestartedWithoutLog) -> str:
    return f"exactly-once lost, rows sent since checkpoint {event.checkpoint} may count twice: {event.reason}"


def _differs(event: IntervalChosen, reported: IntervalChosen | None) -> bool:
    """Whether the interval is longer or shorter by a fifth, or bound by something else."""
    if reported is None or event.bound != reported.bound:
        return True
    return not 0.8 * reported.interval_s < event.interval_s < 1.25 * reported.interval_s


@dataclass
class RunStatus:
    """The accumulated state of a run, of a size that does not depend on how long it lasts. ``rows_in`` and ``rows_out``
    are rate meters by vertex."""

    at_us: int = 0
    tasks: int = 0
    """0 until the job is deployed; ``deployment`` describes the progress of deployment."""
    standbys: int = 0
    attempts: dict[TaskId, Attempt] = field(default_factory=dict)
    """By task: the last attempt that is known."""
    deployment: str = "deploying"
    prepares: bool = False
    """Whether the run has to start or join a platform before its tasks run."""
    progress: Progress | None = None
    rows_in: dict[str, RateMeter] = field(default_factory=dict)
    rows_out: dict[str, RateMeter] = field(default_factory=dict)
    checkpoints: Latest[CheckpointCompleted] = field(default_factory=Latest)
    aborted: Latest[CheckpointAborted] = field(default_factory=Latest)
    rollbacks: Latest[RolledBack] = field(default_factory=Latest)
    went_back: Latest[WentBack] = field(default_factory=Latest)
    restarts_without_log: Latest[RestartedWithoutLog] = field(default_factory=Latest)
    coordinators_replaced: int = 0
    awaited: CoordinatorAwaited | None = None
    """The last event of this kind, until the coordinator has started."""
    recoveries: Latest[Recovery] = field(default_factory=Latest)
    kills_missed: Latest[KillMissed] = field(default_factory=Latest)
    standbys_unready: Latest[StandbyUnready] = field(default_factory=Latest)
    spills_failed: Latest[SpillFailed] = field(default_factory=Latest)
    interval_exceeded: IntervalExceeded | None = None
    interval: IntervalChosen | None = None
    """The last choice of a job that finds its checkpoint interval itself."""
    interval_reported: IntervalChosen | None = None
    """The last choice that differed much from the one reported before."""
    skipped: Latest[CheckpointSkipped] = field(default_factory=Latest)
    deletions_failed: Latest[DeletionFailed] = field(default_factory=Latest)
    news: deque[str] = field(default_factory=lambda: deque(maxlen=5))
    """The latest exceptional events, as text."""
    checkpoints_left: Latest[CheckpointsLeft] = field(default_factory=Latest)
    trace_stopped: tuple[int, TraceStopped] | None = None
    """When the trace stopped, and why."""
    code_changed: CodeChanged | None = None
    finished: Finished | None = None

    @property
    def waits_for(self) -> tuple[str | None, str]:
        """What the run waits for before its tasks run, None if for nothing; and what is seen meanwhile."""
        if self.awaited is not None:
            return "starting the coordinator", self.awaited.seen
        return (self.deployment if self.prepares and not (self.tasks or self.finished) else None), ""

    @classmethod
    def of_all(cls) -> RunStatus:
        """A status that keeps every event: for the report of a run that is short."""
        status = cls()
        for name, value in vars(status).items():
            if isinstance(value, Latest):
                setattr(status, name, Latest(None))
        return status

    def on(self, at_us: int, event: Event) -> None:
        self.at_us = max(self.at_us, at_us)
        if (news := news_text(at_us, event)) is not None:
            self.news.append(news)
        match event:
            case CodeChanged():
                self.code_changed = event
            case Preparing(doing=doing):
                self.deployment, self.prepares = doing, True
            case Deploying():
                self.deployment, self.awaited = deploying_text(event), None
            case Deployed(tasks=tasks, standbys=standbys):
                self.tasks, self.standbys, self.awaited = tasks, standbys, None
            case Progress():
                self._meter(at_us, event)
            case Measured(readings):
                self.attempts |= {
                    reading.task: reading.counters.attempt for reading in readings if reading.counters.attempt
                }
            case CheckpointCompleted():
                self.checkpoints.append(event)
            case CheckpointsLeft():
                self.checkpoints_left.append(event)
            case CheckpointAborted():
                self.aborted.append(event)
            case RolledBack():
                self.rollbacks.append(event)
            case WentBack():
                self.went_back.append(event)
            case RestartedWithoutLog():
                self.restarts_without_log.append(event)
            case CoordinatorAwaited():
                self.awaited = event
            case CoordinatorReplaced():
                self.coordinators_replaced += 1
                self.awaited = None
            case StandbyUnready():
                self.standbys_unready.append(event)
            case SpillFailed():
                self.spills_failed.append(event)
            case IntervalExceeded():
                self.interval_exceeded = event
            case IntervalChosen():
                self.interval = event
                if _differs(event, self.interval_reported):
                    self.interval_reported = event
            case CheckpointSkipped():
                self.skipped.append(event)
            case DeletionFailed():
                self.deletions_failed.append(event)
            case TraceStopped():
                self.trace_stopped = at_us, event
            case KillMissed():
                self.kills_missed.append(event)
            case TaskFailed(task=task, how=how, planned=planned):
                self.recoveries.append(Recovery(task, how, at_us, planned))
            case Detected() | StandbyActivated() | Replayed() | FirstNewEffect() | Recovered():
                self._recovery(at_us, event.task).on(at_us, event)
                if isinstance(event, StandbyActivated):
                    self.attempts[event.task] = event.attempt
            case Restarted(tasks):
                for recovery in self.recoveries:
                    if recovery.restarted_ms is None:
                        recovery.restarted(at_us, tasks)
            case Finished():
                self.finished = event

    @property
    def interval_changed(self) -> bool:
        """Whether the last choice of an interval is worth a line."""
        return self.interval is not None and self.interval is self.interval_reported

    def _meter(self, at_us: int, progress: Progress) -> None:
        self.progress = progress
        for vertex in progress.vertices:
            self.rows_in.setdefault(vertex.vertex, RateMeter()).read(at_us, vertex.rows_in)
            self.rows_out.setdefault(vertex.vertex, RateMeter()).read(at_us, vertex.rows_out + vertex.rows_written)

    def recovery(self, task: TaskId) -> Recovery | None:
        """The latest recovery of the task, if there was any."""
        return next((recovery for recovery in reversed(self.recoveries) if recovery.task == task), None)

    def _recovery(self, at_us: int, task: TaskId) -> Recovery:
        """The latest recovery of the task. If there was no ``TaskFailed``, it is created at the first event."""
        if (known := self.recovery(task)) is not None:
            return known
        self.recoveries.append(Recovery(task, "lost", at_us))
        return self.recoveries[-1]
