"""The states of a process that can be a task, as its link takes them (D8)."""

from __future__ import annotations

from clonos_py.model.states import StateTable
from clonos_py.process.contract import TaskCause, TaskState

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
BEFORE_BEGIN = (TaskState.STANDBY, TaskState.CONNECTING, TaskState.FETCHING_DETERMINANTS)
"""The states in which a process may still be given another state to start from."""
