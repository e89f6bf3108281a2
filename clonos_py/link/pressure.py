"""Back-pressure and memory limits of in-flight logs: when a task may produce and which frames go to disk (D3).

    0 ......... spill_bytes ........ halfway .... budget ........ give up
      in memory  | oldest to disk    | checkpoint | sources stop   | the job stops, its last checkpoint intact

A source that stops reading still processes the trigger of a checkpoint. A task with inputs continues past the budget
until the barrier has passed, for which the reserve exists. Only then does it wait for the checkpoint to complete. While
frames are being written to disk it waits for these, too. They are certain to leave memory, so even a step that makes
more than the budget does not fail the task.

Frames that wait on a feedback channel do not hold a task back, because their receiver may in turn wait for the sender
(E11). They count towards memory like all others, and go to disk.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from clonos_py.channel.retained import RetainedFrame
from clonos_py.link.causal_outputs import CausalOutputs
from clonos_py.link.sending import OutputChannel
from clonos_py.model.errors import CapacityError
from clonos_py.model.retention import Spill
from clonos_py.process.contract import ChannelLimits

WRITE_BYTES = 8 << 20
"""Spilling by threshold continues until this much (or a quarter of the threshold) is free, so that writes are large."""


@dataclass(frozen=True, slots=True)
class MemoryState:
    """What follows from the size of the in-flight logs."""

    may_produce: bool
    wants_checkpoint: bool


class Pressure:
    """Checks the outputs of one link after each change."""

    def __init__(
        self,
        outputs: Sequence[OutputChannel],
        limits: ChannelLimits,
        source: bool,
        drops_taken: bool,
        causal_outputs: CausalOutputs,
    ) -> None:
        """``drops_taken``: the outputs retain no frames that could be written."""
        self._outputs, self._limits, self._source, self._causal_outputs = outputs, limits, source, causal_outputs
        policy = Spill.THRESHOLD if limits.regenerates else limits.policy
        self._policy = Spill.IN_MEMORY if drops_taken else policy
        spilled = limits.spill_bytes if self._policy is Spill.THRESHOLD else 0
        self._checkpoint_bytes = (limits.budget_bytes + min(spilled, limits.budget_bytes)) // 2
        self._give_up_bytes = int(limits.budget_bytes * (1 + limits.reserve))
        self.disk_problem: str | None = None
        """Why nothing can be written to disk; reset when a completed checkpoint frees space."""
        self.barrier_passed = 0
        """The checkpoint for which this task has taken a snapshot and that is not complete yet; 0: none."""

    @property
    def writes(self) -> bool:
        return self._policy is not Spill.IN_MEMORY

    @property
    def memory_bytes(self) -> int:
        """Size of retained frames in memory, those read back from disk included."""
        return sum(output.frames.memory_bytes + output.frames.ahead_bytes for output in self._outputs)

    @property
    def spilled_bytes(self) -> int:
        return sum(output.frames.spilled_bytes for output in self._outputs)

    def measure(self) -> MemoryState:
        """Decides whether the task may produce. Raises CapacityError when even the reserve is used up."""
        used = sum(output.frames.memory_bytes for output in self._outputs)
        being_written = any(output.frames.writing_bytes for output in self._outputs) and self.disk_problem is None
        budget = self._limits.budget_bytes
        if used > self._give_up_bytes and not being_written:
            raise CapacityError(
                f"the in-flight log holds {used >> 20} MiB of a budget of {budget >> 20} MiB and its reserve is spent"
                f"{f', as {self.disk_problem}' if self.disk_problem else ''}: {self._remedy}"
            )
        crowded = any(o.cursor.unreceived >= 2 * o.window for o in self._outputs if not o.feedback)
        crowded = crowded or self._causal_outputs.unwritten >= 2 * self._limits.window
        full = used >= budget and (self._source or self.barrier_passed > 0 or being_written)
        return MemoryState(not crowded and not full, used > self._checkpoint_bytes or self.disk_problem is not None)

    @property
    def _remedy(self) -> str:
        if self.disk_problem:
            return "free space there, or checkpoint more often"
        return "checkpoint more often, raise the budget" + ("" if self.writes else ", or choose a spill policy")

    def to_write(self) -> Iterator[tuple[OutputChannel, list[RetainedFrame]]]:
        """The frames that the policy wants on disk and that are not being written yet."""
        if self.disk_problem is not None:
            return
        match self._policy:
            case Spill.BUFFER:
                yield from self._oldest(float("inf"))
            case Spill.EPOCH:
                yield from self._oldest(float("inf"), max((o.frames.epoch for o in self._outputs), default=0))
            case Spill.THRESHOLD:
                kept = sum(output.frames.memory_bytes - output.frames.writing_bytes for output in self._outputs)
                threshold = self._limits.spill_bytes
                if kept > threshold:
                    yield from self._oldest(kept - threshold + min(threshold // 4, WRITE_BYTES))

    def _oldest(
        self, bytes_max: float, before_epoch: float = float("inf")
    ) -> Iterator[tuple[OutputChannel, list[RetainedFrame]]]:
        for output in self._outputs:
            entries = output.frames.to_write(bytes_max, before_epoch)
            bytes_max -= sum(entry.size_bytes for entry in entries)
            if entries:
                yield output, entries
