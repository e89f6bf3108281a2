"""The states of a process as seen by its link (D8)."""

from __future__ import annotations

from enum import Enum

from clonos_py.model.states import StateTable
from clonos_py.process.contract import TaskState


class LinkCause(Enum):
    """What changes the state."""

    PROMOTED = "promoted"
    INPUTS_OPENED = "all inputs opened"
    BEGUN = "state and log loaded"
    LOG_USED_UP = "log used up"
    INPUT_ENDED = "all input ended"
    ERROR = "error"


LINK_STATES = StateTable(
    TaskState.STANDBY,
    {
        TaskState.STANDBY: {LinkCause.PROMOTED: TaskState.CONNECTING},
        TaskState.CONNECTING: {
            LinkCause.INPUTS_OPENED: TaskState.FETCHING_DETERMINANTS,
            LinkCause.BEGUN: TaskState.REPLAYING,
        },
        TaskState.FETCHING_DETERMINANTS: {LinkCause.BEGUN: TaskState.REPLAYING},
        TaskState.REPLAYING: {LinkCause.LOG_USED_UP: TaskState.RUNNING},
        TaskState.RUNNING: {LinkCause.INPUT_ENDED: TaskState.FINISHED},
    },
    anywhere={LinkCause.ERROR: TaskState.FAILED},
)
BEFORE_BEGIN = (TaskState.STANDBY, TaskState.CONNECTING, TaskState.FETCHING_DETERMINANTS)
"""The states in which a process may still be sent another state to start from."""
