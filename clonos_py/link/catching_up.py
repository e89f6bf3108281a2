"""How far a replacement has caught up with its predecessor, as far as its inputs show.

When a connection opens, the sender states below which number it had already sent frames to the predecessor. If no
process holds determinants (a task without receivers has no holders), only this separates replay from new work.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from clonos_py.channel.frames import FrameHeader
from clonos_py.link.instructions import Instruction, SendToCoordinator
from clonos_py.model.ids import Attempt
from clonos_py.model.messages import NewEffect, Running
from clonos_py.process.contract import FramesTaken, Observed

_FIRST = Attempt(generation=1, counter=1)


class CatchingUp:
    """Frames of each input below ``sent_before`` are replayed. Reports once to the coordinator that replay has ended,
    and once the first effect that the predecessor had not had."""

    def __init__(self, process: int, inputs: int) -> None:
        self._process = process
        self._running_reported, self._effect_reported = False, True
        self._sent_before: list[int | None] = [None] * inputs
        self._taken = [0] * inputs
        self.rows = 0

    def restore(self, next_seqs: Sequence[int]) -> None:
        """Resets everything to a snapshot."""
        self._sent_before = [None] * len(next_seqs)
        self._taken = list(next_seqs)
        self.rows = 0

    def begin(self, attempt: Attempt) -> None:
        """Decides whether a first effect will be reported. The first attempt of a run has no predecessor, so its
        effects are not reported. After a rollback all attempts are the first ones of a later generation: their first
        effect shows that they work again."""
        self._effect_reported = attempt == _FIRST

    def opened(self, index: int, header: FrameHeader) -> None:
        """The first connection of an input counts; later ones resume what this process itself has received."""
        if self._sent_before[index] is None:
            self._sent_before[index] = header.sent_before

    def received(self, index: int, header: FrameHeader) -> None:
        if header.seq < (self._sent_before[index] or 0):
            self.rows += header.rows

    def frames_taken(self, event: FramesTaken) -> bool:
        """The task has taken frames. Returns whether the last of them was new to the task, not only to this process."""
        self._taken[event.input] = event.next_seq
        return self.is_new(event.input, event.next_seq - 1)

    def is_new(self, input_: int, seq: int) -> bool:
        """Whether this frame was never sent to a predecessor."""
        before = self._sent_before[input_]
        return before is not None and seq >= before

    def observed(self, event: Observed, replaying: bool) -> Observed:
        """Drops a latency marker that a predecessor had also received: its age would include the failure."""
        if event.marker_us and (replaying if event.input < 0 else not self.is_new(event.input, event.seq)):
            return msgspec.structs.replace(event, marker_us=0)
        return event

    @property
    def done(self) -> bool:
        """Whether all frames that the predecessor had been sent have been taken."""
        return all(
            before is not None and taken >= before for before, taken in zip(self._sent_before, self._taken, strict=True)
        )

    def report_running(self, round_: int, rows_replayed: int) -> list[Instruction]:
        """Called when the log is used up: reports the end of replay once all frames of the predecessor are taken."""
        if self._running_reported or not self.done:
            return []
        self._running_reported = True
        return [SendToCoordinator(Running(self._process, round_, max(rows_replayed, self.rows)))]

    def report_effect(self) -> list[Instruction]:
        """Reports the first effect that the predecessor had not had."""
        if self._effect_reported:
            return []
        self._effect_reported = True
        return [SendToCoordinator(NewEffect(self._process))]
