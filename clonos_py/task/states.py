"""The states of a process that can be a task, as its task takes them (D8)."""

from __future__ import annotations

from enum import Enum

from clonos_py.model.states import StateTable
from clonos_py.process.contract import TaskState


class TaskCause(Enum):
    """What changes the state."""

    BEGUN = "state and log are here"
    LOG_USED_UP = "log used up"
    INPUT_ENDED = "all input ended"


TASK_STATES = StateTable(
    TaskState.STANDBY,
    {
        TaskState.STANDBY: {TaskCause.BEGUN: TaskState.REPLAYING},
        TaskState.REPLAYING: {TaskCause.LOG_USED_UP: TaskState.RUNNING},
        TaskState.RUNNING: {TaskCause.INPUT_ENDED: TaskState.FINISHED},
    },
    anywhere={},
)
