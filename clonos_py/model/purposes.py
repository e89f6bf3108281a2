"""Why a checkpoint is taken (D7)."""

from __future__ import annotations

from enum import Enum


class Purpose(Enum):
    """Why a checkpoint is taken."""

    PERIODIC = "periodic"
    """Its interval has passed."""
    REQUESTED = "requested"
    """A task has little room for frames, or a loop ends."""
    STOP = "stop"
    """The user stops the job; tasks may have more input."""
    FINAL = "final"
    """All tasks have read all of their input."""

    @property
    def ends_job(self) -> bool:
        """Whether the job ends with the checkpoint."""
        return self in (Purpose.STOP, Purpose.FINAL)
