"""Back-pressure and the memory of in-flight logs: when a task may produce, and when it is too much (D3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from clonos_py.model.errors import CapacityError
from clonos_py.task.sending import OutputChannel


@dataclass(frozen=True)
class LinkLimits:
    """``window``: frames on their way per channel; ``budget_bytes``: retained memory of the task, beyond which sources
    stop to read. The reserve, a share on top, admits what must pass for the next barrier; then the job stops."""

    window: int = 16
    budget_bytes: int = 1 << 30
    spill_at: float = 0.5
    reserve: float = 0.5

    @property
    def frames_merged(self) -> int:
        """So many frames at most a task takes together: on replay it waits for all of them, and of a window as much as
        a quarter may be taken and not acknowledged yet."""
        return self.window // 2


@dataclass(frozen=True, slots=True)
class Verdict:
    """What follows from the weight of the in-flight logs."""

    may_produce: bool
    wants_checkpoint: bool


class Pressure:
    """Weighs the outputs of one link after each change."""

    def __init__(self, outputs: Sequence[OutputChannel], limits: LinkLimits, spills: bool, source: bool) -> None:
        self._outputs, self._limits = outputs, limits
        self._spills = spills
        reserve = 0 if source else limits.reserve / 2
        self._stop_bytes = int(limits.budget_bytes * (1 + reserve))
        self._give_up_bytes = int(limits.budget_bytes * (1 + limits.reserve))

    @property
    def memory_bytes(self) -> int:
        return sum(output.log.memory_bytes for output in self._outputs)

    def weigh(self) -> Verdict:
        """Spills if there is a spill. Raises CapacityError when even the reserve is spent."""
        used = self.memory_bytes
        if self._spills:
            used = self._spill(used)
        budget = self._limits.budget_bytes
        if used > self._give_up_bytes:
            raise CapacityError(
                f"the in-flight log holds {used >> 20} MiB of a budget of {budget >> 20} MiB and its reserve is spent: "
                "checkpoint more often, raise the budget, or choose a spill policy"
            )
        crowded = any(output.log.unreceived >= 2 * self._limits.window for output in self._outputs)
        return Verdict(not crowded and used < self._stop_bytes, used * 2 > budget)

    def _spill(self, used: int) -> int:
        excess = used - int(self._limits.budget_bytes * self._limits.spill_at)
        for output in self._outputs:
            if excess > 0:
                excess -= output.log.spill_oldest(excess)
        return self.memory_bytes
