"""Bugs of the output of causal sinks: what is written when, which process may write, which is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from clonos_py.causal.log import CausalStore
from clonos_py.columns import compact
from clonos_py.link import instructions as io
from clonos_py.link.causal_outputs import CausalOutputs, SinkOutput
from clonos_py.link.machine import LinkMachine
from clonos_py.model.operators import OutputSegment, PublishedOutput
from clonos_py.model.segments import LogSegment
from clonos_py.process.contract import Produced
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.runtime.sim.memory_output import MemoryCausalSink, MemoryOutput
from tests.sim.planted.bug import Bugs
from tests.sim.planted.recovery import replacements_are_not_asked
from tests.sim.planted.seams import Handle, rehandled

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
    written_with(patch, lambda sink, epoch, segment: segment.log == sink.ctx.task.log_id)


def written_with(patch: pytest.MonkeyPatch, written: Callable[[MemoryCausalSink, int, LogSegment], bool]) -> None:
    """Sinks write these segments only. The second argument: the epoch under which they are written."""
    append = MemoryCausalSink.append

    def some(self: MemoryCausalSink, epoch: int, log: Sequence[LogSegment], *more: Any, **named: Any) -> None:
        append(self, epoch, [segment for segment in log if written(self, epoch, segment)], *more, **named)

    patch.setattr(MemoryCausalSink, "append", some)


@BUGS.planted()
def what_is_visible_is_written_again(patch: pytest.MonkeyPatch) -> None:
    acquired = CausalOutputs.acquired

    def forgetful(self: CausalOutputs, event: io.OutputAcquired) -> None:
        acquired(self, io.OutputAcquired(event.number, PublishedOutput(event.published.log, {})))

    patch.setattr(CausalOutputs, "acquired", forgetful)


@BUGS.planted()
def outputs_are_not_asked_in_the_round(patch: pytest.MonkeyPatch) -> None:
    replacements_are_not_asked(patch)


@BUGS.planted()
def a_sink_answers_before_it_knows_its_output(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CausalOutputs, "ready", True)


@BUGS.planted("crash")
def the_first_log_of_an_epoch_is_not_complete(patch: pytest.MonkeyPatch) -> None:
    """It has only the segments since the last write of the epoch before."""

    writes = SinkOutput.writes
    positions: dict[SinkOutput, int] = {}

    def news(self: SinkOutput, store: CausalStore) -> Iterator[io.WriteOutput]:
        for write in writes(self, store):
            position, positions[self] = positions.get(self, 0), store.position
            yield msgspec.structs.replace(write, log=store.since(position, lambda log: True))

    patch.setattr(SinkOutput, "writes", news)


@BUGS.planted()
def the_first_log_of_an_epoch_lacks_the_end_of_the_one_before(patch: pytest.MonkeyPatch) -> None:
    written_with(patch, lambda sink, epoch, segment: segment.epoch >= epoch)


@BUGS.planted()
def logs_of_an_output_go_before_their_checkpoint_is_complete(patch: pytest.MonkeyPatch) -> None:
    prepare = MemoryCausalSink.prepare

    def early(self: MemoryCausalSink, checkpoint: int) -> bytes | None:
        self.truncate_before(checkpoint)
        return prepare(self, checkpoint)

    patch.setattr(MemoryCausalSink, "prepare", early)


@BUGS.planted()
def a_snapshot_is_durable_before_the_rows_that_it_covers(patch: pytest.MonkeyPatch) -> None:
    """Rows wait for others to be written with."""
    unwritten = SinkOutput.writes

    def gathered(self: SinkOutput, store: CausalStore) -> Iterator[io.WriteOutput]:
        yield from unwritten(self, store) if len(self.waiting) > 1 else ()

    patch.setattr(SinkOutput, "writes", gathered)
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
    def dropping(handle: Handle, link: LinkMachine, event: Produced) -> list[io.Instruction]:
        return handle(link, event if link.outputs else Produced(None, event.frames, event.published))

    rehandled(patch, Produced, dropping)


@BUGS.planted()
def what_an_output_holds_is_told_but_not_kept(patch: pytest.MonkeyPatch) -> None:
    """Should the task die again before it has its log, no process holds it any more."""
    acquire, write = MemoryOutput.acquire, MemoryOutput.write
    gone: dict[MemoryOutput, set[LogSegment]] = {}

    def once(self: MemoryOutput, *given: Any) -> PublishedOutput:
        published, before = acquire(self, *given), gone.setdefault(self, set())
        log = [segment for segment in published.log if segment not in before]
        before.update(log)
        return PublishedOutput(log, published.checksums)

    def again(self: MemoryOutput, epoch: int, log: Sequence[LogSegment], pieces: Sequence[OutputSegment]) -> None:
        gone.setdefault(self, set()).difference_update(log)
        write(self, epoch, log, pieces)

    patch.setattr(MemoryOutput, "acquire", once)
    patch.setattr(MemoryOutput, "write", again)
