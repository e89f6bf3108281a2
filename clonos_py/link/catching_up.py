"""How far a replacement has caught up with its predecessor, as far as its inputs show.

When a connection opens, the sender says below which number it had already sent frames to the predecessor. Where no
process holds determinants (a task without receivers has no holders) only this tells replay from new work.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from clonos_py.channel.frames import FrameHeader
from clonos_py.link.instructions import Instruction, SendToCoordinator
from clonos_py.model.ids import Attempt
from clonos_py.model.messages import NewEffect, Running
from clonos_py.process.contract import Observed, Took

_FIRST = Attempt(generation=1, counter=1)


class CatchingUp:
    """Frames of each input below ``sent_before`` are replayed ones. Reports once to the coordinator when replay is
    over, and once the first effect that the predecessor had not had."""

    def __init__(self, process: int, inputs: int) -> None:
        self._process = process
        self._running_reported, self._effect_reported = False, True
        self._sent_before: list[int | None] = [None] * inputs
        self._taken = [0] * inputs
        self.rows = 0

    def restore(self, next_seqs: Sequence[int]) -> None:
        """Starts over from a snapshot."""
        self._sent_before = [None] * len(next_seqs)
        self._taken = list(next_seqs)
        self.rows = 0

    def begin(self, attempt: Attempt) -> None:
        """The first attempt of a run has nothing to catch up with, and its effects are no news. After a rollback all
        attempts are first ones, of a later generation: their first effect says that they are at work again."""
        self._effect_reported = attempt == _FIRST

    def opened(self, index: int, header: FrameHeader) -> None:
        """The first connection of an input decides; later ones resume what this process has had itself."""
        if self._sent_before[index] is None:
            self._sent_before[index] = header.sent_before

    def received(self, index: int, header: FrameHeader) -> None:
        if header.seq < (self._sent_before[index] or 0):
            self.rows += header.rows

    def took(self, event: Took) -> bool:
        """The task has taken frames; whether the last of them was new to the task and not to this process only."""
        self._taken[event.input] = event.next_seq
        return self.is_new(event.input, event.next_seq - 1)

    def is_new(self, input_: int, seq: int) -> bool:
        """Whether no predecessor was ever sent this frame."""
        before = self._sent_before[input_]
        return before is not None and seq >= before

    def observed(self, event: Observed, replaying: bool) -> Observed:
        """What counts of it: a latency marker that a predecessor was given, too, has the age of the failure."""
        if event.marker_us and (replaying if event.input < 0 else not self.is_new(event.input, event.seq)):
            return replace(event, marker_us=0)
        return event

    @property
    def done(self) -> bool:
        """Whether everything that the predecessor was sent has been taken."""
        return all(
            before is not None and taken >= before for before, taken in zip(self._sent_before, self._taken, strict=True)
        )

    def report_running(self, round_: int, rows_replayed: int) -> list[Instruction]:
        """The task's log is used up; reports it once the inputs have given what they had given before, too."""
        if self._running_reported or not self.done:
            return []
        self._running_reported = True
        return [SendToCoordinator(Running(self._process, round_, max(rows_replayed, self.rows)))]

    def report_effect(self) -> list[Instruction]:
        """There is an effect that the predecessor had not had."""
        if self._effect_reported:
            return []
        self._effect_reported = True
        return [SendToCoordinator(NewEffect(self._process))]
