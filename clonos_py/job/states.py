"""The states of a job as its coordinator sees them, in one transition table (D8)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from clonos_py.model.purposes import Purpose
from clonos_py.model.states import StateTable


class JobState(Enum):
    TAKING_OVER = "taking over"
    STARTING = "starting"
    RUNNING = "running"
    DRAINED = "drained"
    """All tasks have read all of their input, and the final checkpoint is taken."""
    STOPPING = "stopping"
    """The checkpoint with which a requested stop ends the job is taken."""
    COMMITTING = "committing"
    """The last checkpoint is complete, and sinks commit it."""
    RECOVERING = "recovering"
    ROLLING_BACK = "rolling back"
    """While a manifest is being written, it is open to which checkpoint."""
    ENDED = "ended"


class JobCause(Enum):
    """What changes the state."""

    COORDINATOR_LOST = "another coordinator was lost"
    NOT_DEPLOYED = "all have answered, not all tasks deployed"
    DEPLOYED = "all have answered, all tasks deployed"
    ROUND_OVER = "all tasks replay or run"
    INPUT_ENDED = "all input ended"
    STOP_REQUESTED = "a stop was requested"
    LAST_COMPLETE = "the last checkpoint is complete"
    TASK_FAILED = "a task failed"
    NO_REPLAY = "only a rollback is possible"
    ROLLED_BACK = "a new generation begins"
    ENDED = "finished, or error"


_FAILURES = {JobCause.TASK_FAILED: JobState.RECOVERING, JobCause.NO_REPLAY: JobState.ROLLING_BACK}
JOB_STATES = StateTable(
    JobState.STARTING,
    {
        JobState.STARTING: {
            JobCause.COORDINATOR_LOST: JobState.TAKING_OVER,
            JobCause.ROUND_OVER: JobState.RUNNING,
            JobCause.NO_REPLAY: JobState.ROLLING_BACK,
        },
        JobState.TAKING_OVER: {
            JobCause.NOT_DEPLOYED: JobState.STARTING,
            JobCause.DEPLOYED: JobState.RECOVERING,
        },
        JobState.RUNNING: {
            JobCause.INPUT_ENDED: JobState.DRAINED,
            JobCause.STOP_REQUESTED: JobState.STOPPING,
            JobCause.LAST_COMPLETE: JobState.COMMITTING,
            **_FAILURES,
        },
        JobState.DRAINED: {JobCause.LAST_COMPLETE: JobState.COMMITTING, **_FAILURES},
        JobState.STOPPING: {JobCause.LAST_COMPLETE: JobState.COMMITTING, **_FAILURES},
        JobState.COMMITTING: _FAILURES,
        JobState.RECOVERING: {JobCause.ROUND_OVER: JobState.RUNNING, JobCause.NO_REPLAY: JobState.ROLLING_BACK},
        JobState.ROLLING_BACK: {
            JobCause.NO_REPLAY: JobState.ROLLING_BACK,
            JobCause.ROLLED_BACK: JobState.STARTING,
        },
    },
    anywhere={JobCause.ENDED: JobState.ENDED},
)
IN_ROUND = (JobState.STARTING, JobState.RECOVERING)
"""A recovery round is under way."""
BEFORE_LAST = (JobState.RUNNING, JobState.DRAINED, JobState.STOPPING)
"""All tasks replay or run, and checkpoints are taken."""
ALL_RUN = (*BEFORE_LAST, JobState.COMMITTING)
"""All tasks replay or run."""


class RoundState(Enum):
    OVER = "over"
    """No task has failed, or every replacement was sent its log."""
    GATHERING = "gathering"
    """The round waits until checkpoints are settled and every failed task has a process."""
    ANSWERING = "answering"
    """Promote and Sever are sent, and survivors answer."""


class RoundCause(Enum):
    """What changes the state of a round."""

    TASKS_FAILED = "tasks failed, or are deployed"
    PROCESSES_READY = "checkpoints settled, a process for every failed task"
    ALL_ANSWERED = "all survivors have answered"


_NEW_ROUND = {RoundCause.TASKS_FAILED: RoundState.GATHERING}
ROUND_STATES = StateTable(
    RoundState.OVER,
    {
        RoundState.OVER: _NEW_ROUND,
        RoundState.GATHERING: {**_NEW_ROUND, RoundCause.PROCESSES_READY: RoundState.ANSWERING},
        RoundState.ANSWERING: {**_NEW_ROUND, RoundCause.ALL_ANSWERED: RoundState.OVER},
    },
    anywhere={},
)


class RoundKind(Enum):
    """Why the tasks of a round have no process that runs them."""

    FIRST_DEPLOYMENT = "no task has run yet"
    DEPLOYMENT = "no task has run yet in this generation"
    RECOVERY = "tasks have failed"


class LoopState(Enum):
    OPEN = "open"
    """Rows may enter the loop, or be in it."""
    PROBED = "probed"
    """Its tasks count the frames of their channels."""
    QUIET = "quiet"
    """It held no rows when the tasks counted."""
    ENDED = "ended"


class LoopCause(Enum):
    """What changes the state of a loop."""

    PROBE_SENT = "all that enters it has ended"
    ROWS_LEFT = "rows are left"
    NO_ROWS_LEFT = "no rows are left"
    END_SENT = "every task of the loop restarts behind that"
    HEADS_ENDED = "its heads have ended"
    TASK_FAILED = "a task failed"


LOOP_STATES = StateTable(
    LoopState.OPEN,
    {
        LoopState.OPEN: {LoopCause.PROBE_SENT: LoopState.PROBED},
        LoopState.PROBED: {LoopCause.ROWS_LEFT: LoopState.OPEN, LoopCause.NO_ROWS_LEFT: LoopState.QUIET},
        LoopState.QUIET: {LoopCause.END_SENT: LoopState.ENDED},
    },
    anywhere={LoopCause.HEADS_ENDED: LoopState.ENDED, LoopCause.TASK_FAILED: LoopState.OPEN},
)


@dataclass(frozen=True, slots=True)
class Ending:
    """How the job is to end. It outlasts recoveries, in which the state does not say it."""

    purpose: Purpose = Purpose.FINAL
    """Of the last checkpoint; STOP after a stop was requested."""
    complete: bool = False
    """Whether that checkpoint is complete."""
