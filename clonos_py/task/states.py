"""The states of a task machine, and its transition table (D8)."""

from __future__ import annotations

from enum import Enum

from clonos_py.model.states import StateTable
from clonos_py.process.contract import TaskState


class TaskCause(Enum):
    """The causes of state changes."""

    BEGUN = "state and log loaded"
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
