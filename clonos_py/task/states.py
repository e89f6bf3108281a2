"""The states of a process that can be a task, by two tables: one for its link, one for its task (D8)."""

from __future__ import annotations

from enum import Enum

from clonos_py.model.states import StateTable


class TaskState(Enum):
    """Where a process stands. A task that never failed takes the same way, with nothing to replay."""

    STANDBY = "standby"
    CONNECTING = "connecting"
    FETCHING_DETERMINANTS = "fetching determinants"
    REPLAYING = "replaying"
    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"


class TaskCause(Enum):
    """What changes the state."""

    PROMOTED = "promoted"
    INPUTS_OPENED = "all inputs opened"
    BEGUN = "state and log are here"
    LOG_USED_UP = "log used up"
    INPUT_ENDED = "all input ended"
    ERROR = "error"


LINK_STATES = StateTable(
    TaskState.STANDBY,
    {
        TaskState.STANDBY: {TaskCause.PROMOTED: TaskState.CONNECTING},
        TaskState.CONNECTING: {
            TaskCause.INPUTS_OPENED: TaskState.FETCHING_DETERMINANTS,
            TaskCause.BEGUN: TaskState.REPLAYING,
        },
        TaskState.FETCHING_DETERMINANTS: {TaskCause.BEGUN: TaskState.REPLAYING},
        TaskState.REPLAYING: {TaskCause.LOG_USED_UP: TaskState.RUNNING},
        TaskState.RUNNING: {TaskCause.INPUT_ENDED: TaskState.FINISHED},
    },
    anywhere={TaskCause.ERROR: TaskState.FAILED},
)
TASK_STATES = StateTable(
    TaskState.STANDBY,
    {
        TaskState.STANDBY: {TaskCause.BEGUN: TaskState.REPLAYING},
        TaskState.REPLAYING: {TaskCause.LOG_USED_UP: TaskState.RUNNING},
        TaskState.RUNNING: {TaskCause.INPUT_ENDED: TaskState.FINISHED},
    },
    anywhere={},
)
BEFORE_BEGIN = (TaskState.STANDBY, TaskState.CONNECTING, TaskState.FETCHING_DETERMINANTS)
"""The states in which a process may still be given another state to start from."""
