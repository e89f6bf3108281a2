"""What must be known of a checkpoint protocol to plan and to check a job: its properties. Its machinery is below
``protocols/``."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ProtocolProperties:
    """The properties of a checkpoint protocol."""

    name: str
    coordinated: bool = True
    """Whether a checkpoint is one of all tasks, and counts as a whole. If not, each task takes its snapshots alone, and
    the frames and determinants between the snapshots of two tasks are stored with them."""
    barriers: bool = True
    """Whether a snapshot ends its epoch with a barrier on every output channel."""
    stamps: bool = False
    """Whether frames carry stamps, for which a receiver may have to take a snapshot first."""
    stores_frames: bool = True
    """Whether frames in flight are stored with a snapshot. Then no sender may drop them to make them again."""

    def __str__(self) -> str:
        return self.name
