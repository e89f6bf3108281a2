"""The states of a job as its coordinator sees them, in one transition table (D8)."""

from __future__ import annotations

from enum import Enum

from clonos_py.model.states import StateTable


class JobState(Enum):
    TAKING_OVER = "taking over"
    STARTING = "starting"
    RUNNING = "running"
    RECOVERING = "recovering"
    ENDED = "ended"


class JobCause(Enum):
    """What changes the state."""

    COORDINATOR_LOST = "another coordinator was lost"
    NOT_DEPLOYED = "all have answered, not all tasks deployed"
    DEPLOYED = "all have answered, all tasks deployed"
    ROUND_OVER = "all tasks replay or run"
    TASK_FAILED = "a task failed"
    ROLLED_BACK = "rollback"
    ENDED = "finished, or error"


JOB_STATES = StateTable(
    JobState.STARTING,
    {
        JobState.STARTING: {
            JobCause.COORDINATOR_LOST: JobState.TAKING_OVER,
            JobCause.ROUND_OVER: JobState.RUNNING,
            JobCause.ROLLED_BACK: JobState.STARTING,
        },
        JobState.TAKING_OVER: {
            JobCause.NOT_DEPLOYED: JobState.STARTING,
            JobCause.DEPLOYED: JobState.RECOVERING,
        },
        JobState.RUNNING: {JobCause.TASK_FAILED: JobState.RECOVERING, JobCause.ROLLED_BACK: JobState.STARTING},
        JobState.RECOVERING: {JobCause.ROUND_OVER: JobState.RUNNING, JobCause.ROLLED_BACK: JobState.STARTING},
    },
    anywhere={JobCause.ENDED: JobState.ENDED},
)
