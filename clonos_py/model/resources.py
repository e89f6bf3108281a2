"""What a process needs of the node that it runs on: processors, memory, GPUs. Amounts of processors and GPUs may be
fractions; Ray counts both in ten-thousandths."""

from __future__ import annotations

from dataclasses import dataclass, replace

_DIGITS = 4


@dataclass(frozen=True)
class Resources:
    """Amounts of what a node has. Sums and differences go by kind; a difference may be negative."""

    cpus: float = 0.0
    memory_bytes: int = 0
    gpus: float = 0.0

    def __bool__(self) -> bool:
        """Whether there is any amount."""
        return self != NO_RESOURCES

    def __add__(self, other: Resources) -> Resources:
        return Resources(
            round(self.cpus + other.cpus, _DIGITS),
            self.memory_bytes + other.memory_bytes,
            round(self.gpus + other.gpus, _DIGITS),
        )

    def __sub__(self, other: Resources) -> Resources:
        return self + Resources(-other.cpus, -other.memory_bytes, -other.gpus)

    def with_cpus_times(self, share: float) -> Resources:
        """The same with this share of the processors."""
        return replace(self, cpus=round(self.cpus * share, _DIGITS))

    def fits_in(self, free: Resources) -> bool:
        """Whether there is enough of each kind that it needs; of the others any amount will do, also a negative one."""
        left = free - self
        return all(
            not needed or rest >= 0
            for needed, rest in (
                (self.cpus, left.cpus),
                (self.memory_bytes, left.memory_bytes),
                (self.gpus, left.gpus),
            )
        )

    @property
    def scarcest_first(self) -> tuple[float, int, float]:
        """A key by which larger demands come first in order, what nodes have least of before the rest."""
        return -self.gpus, -self.memory_bytes, -self.cpus


NO_RESOURCES = Resources()
