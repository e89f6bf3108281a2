"""Bugs of the output of causal sinks: what is written when, which process may write, which is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from clonos_py.causal.log import CausalStore
from clonos_py.columns import compact
from clonos_py.job.events import Instructions
from clonos_py.job.rounds import Rounds
from clonos_py.link import instructions as io
from clonos_py.link.causal_outputs import CausalOutputs, _Output
from clonos_py.link.machine import LinkMachine
from clonos_py.model.operators import OutputSegment, PublishedOutput
from clonos_py.model.segments import LogSegment
from clonos_py.process.contract import Produced
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.runtime.sim.memory_output import MemoryCausalSink, MemoryOutput
from tests.sim.planted.bug import Bugs
from tests.sim.planted.recovery import rehandled

BUGS = Bugs()


@BUGS.planted()
def rows_are_visible_before_their_determinants_are_durable(patch: pytest.MonkeyPatch) -> None:
    """The process dies between the two writes."""
    append = MemoryCausalSink.append

    def hasty(
        self: MemoryCausalSink,
        epoch: int,
        log: Sequence[LogSegment],
        pieces: Sequence[OutputSegment],
        torn_after: int | None = None,
    ) -> None:
        append(self, epoch, log if torn_after is None else [], pieces, torn_after)

    patch.setattr(MemoryCausalSink, "append", hasty)


@BUGS.planted()
def checksums_are_of_what_lies_beside_the_rows(patch: pytest.MonkeyPatch) -> None:
    """Bytes after a slice in its buffer are included."""
    patch.setattr(compact, "compact", lambda rows: rows)


@BUGS.planted()
def only_a_sinks_own_log_is_written(patch: pytest.MonkeyPatch) -> None:
    append = MemoryCausalSink.append

    def own(self: MemoryCausalSink, epoch: int, log: Sequence[LogSegment], *more: Any, **named: Any) -> None:
        append(self, epoch, [segment for segment in log if segment.log == self.ctx.task.log_id], *more, **named)

    patch.setattr(MemoryCausalSink, "append", own)


@BUGS.planted()
def what_is_visible_is_written_again(patch: pytest.MonkeyPatch) -> None:
    acquired = CausalOutputs.acquired

    def forgetful(self: CausalOutputs, event: io.OutputAcquired) -> None:
        acquired(self, io.OutputAcquired(event.number, PublishedOutput(event.published.log, {})))

    patch.setattr(CausalOutputs, "acquired", forgetful)


@BUGS.planted()
def outputs_are_not_asked_in_the_round(patch: pytest.MonkeyPatch) -> None:
    tell = Rounds._promote_and_sever

    def without(self: Rounds, round_: Any, promoted: Any) -> Instructions:
        instructions = tell(self, round_, promoted)
        round_.awaited -= {process.number for process in promoted}
        return instructions

    patch.setattr(Rounds, "_promote_and_sever", without)


@BUGS.planted()
def a_sink_answers_before_it_knows_its_output(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CausalOutputs, "ready", True)


@BUGS.planted("crash")
def the_first_log_of_an_epoch_is_not_complete(patch: pytest.MonkeyPatch) -> None:
    """It has only the segments since the last write of the epoch before."""

    def news(self: _Output, epoch: int, store: CausalStore) -> list[LogSegment]:
        position, self._position = self._position, store.position
        return store.since(position, lambda task: True)

    patch.setattr(_Output, "_log", news)


@BUGS.planted()
def the_first_log_of_an_epoch_lacks_the_end_of_the_one_before(patch: pytest.MonkeyPatch) -> None:
    def own_epoch(self: _Output, epoch: int, store: CausalStore) -> list[LogSegment]:
        position = self._position if epoch == self._epoch else 0
        self._epoch, self._position = epoch, store.position
        return [s for s in store.since(position, lambda task: True) if s.epoch >= epoch]

    patch.setattr(_Output, "_log", own_epoch)


@BUGS.planted()
def logs_of_an_output_go_before_their_checkpoint_is_complete(patch: pytest.MonkeyPatch) -> None:
    prepare = MemoryCausalSink.prepare

    def early(self: MemoryCausalSink, checkpoint: int) -> bytes | None:
        if self._attempt is not None:
            self.truncate_before(checkpoint)
        return prepare(self, checkpoint)

    patch.setattr(MemoryCausalSink, "prepare", early)


@BUGS.planted()
def a_snapshot_is_durable_before_the_rows_that_it_covers(patch: pytest.MonkeyPatch) -> None:
    """Rows wait for others to be written with."""
    unwritten = _Output.writes

    def gathered(self: _Output, store: CausalStore) -> Iterator[io.WriteOutput]:
        yield from unwritten(self, store) if len(self.waiting) > 1 else ()

    patch.setattr(_Output, "writes", gathered)
    patch.setattr(CausalOutputs, "flush", lambda self: [])


@BUGS.planted("zombie")
def replaced_sinks_go_on_writing(patch: pytest.MonkeyPatch) -> None:
    def append(self: MemoryCausalSink, epoch: int, log: Any, pieces: Any, torn_after: int | None = None) -> None:
        self.output.write(epoch, log, pieces)
        for piece in pieces[:torn_after]:
            self.output.show(piece)

    patch.setattr(MemoryCausalSink, "append", append)


@BUGS.planted("crash")
def checkpoints_of_which_only_logs_speak_are_numbered_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CoordinatedCheckpoints, "skip_to", lambda self, epoch: None)


@BUGS.planted()
def the_log_of_a_sink_is_not_kept(patch: pytest.MonkeyPatch) -> None:
    produced = LinkMachine._on_produced

    def dropping(self: LinkMachine, event: Produced) -> list[io.Instruction]:
        return produced(self, event if self.outputs else Produced(None, event.frames, event.published))

    rehandled(patch, Produced, dropping)


@BUGS.planted()
def what_an_output_holds_is_told_but_not_kept(patch: pytest.MonkeyPatch) -> None:
    """Should the task die again before it has its log, no process holds it any more."""
    acquire = MemoryOutput.acquire

    def once(self: MemoryOutput, *more: Any) -> PublishedOutput:
        published = acquire(self, *more)
        self._logs.clear()
        return published

    patch.setattr(MemoryOutput, "acquire", once)
