"""The states of a process that can be a task, as its task takes them (D8)."""

from __future__ import annotations

from clonos_py.model.states import StateTable
from clonos_py.process.contract import TaskCause, TaskState

TASK_STATES = StateTable(
    TaskState.STANDBY,
    {
        TaskState.STANDBY: {TaskCause.BEGUN: TaskState.REPLAYING},
        TaskState.REPLAYING: {TaskCause.LOG_USED_UP: TaskState.RUNNING},
        TaskState.RUNNING: {TaskCause.INPUT_ENDED: TaskState.FINISHED},
    },
    anywhere={},
)
