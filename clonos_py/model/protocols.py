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

    partwise: bool = False
    """Whether operators that can save their state in parts do so (CEC)."""

    @property
    def rolls_back(self) -> bool:
        """Whether its snapshots can be used without determinants. Parts that were saved at different times cannot."""
        return not self.partwise

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class FootprintPolicy:
    """When the oldest parts of a state are saved again (CEC, section 3.A)."""

    extent_max: int = 0
    """Q: the most footprints that a restart should read; 0: no target."""
    replay_max: int = 0
    """U: the most rows of input that a restart should take again; 0: no target. Without both targets a part is saved
    once the expected time that this saves exceeds what it costs."""
    check_us: int = 5_000
    """CI: the most time for this in each period; 0: never."""
    period_us: int = 100_000
    """CP: the time from one check to the next."""
    failure_us: int = 86_400_000_000
    """The mean time between failures of a task."""
