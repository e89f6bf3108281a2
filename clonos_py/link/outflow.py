"""What leaves a link: frames in their order, each with its delta; and where those that may be wanted again live.

Nothing waits here: what lies on disk or has to be made again is asked for ahead of its turn, and the other channels go
on meanwhile.
"""

from __future__ import annotations

import typing
from collections.abc import Sequence

from clonos_py.causal.log import CausalStore
from clonos_py.channel.frames import FrameCodec, FrameHeader
from clonos_py.link import instructions as io
from clonos_py.link.catching_up import CatchingUp
from clonos_py.link.pressure import Pressure
from clonos_py.link.sending import OutputChannel
from clonos_py.model import messages as control
from clonos_py.model.counters import ProcessCounters
from clonos_py.model.errors import SpillError
from clonos_py.process import contract as task
from clonos_py.process.contract import LinkLimits

FramesMoved = io.FramesWritten | io.FramesNotWritten | io.FramesRead | io.FramesNotRead | task.WentOn | task.Regenerated
FRAMES_MOVED = typing.get_args(FramesMoved)


class Outflow:
    """The outputs of one link. Instructions go to the link's ``out``."""

    def __init__(
        self,
        process: int,
        own_log: int | None,
        outputs: Sequence[OutputChannel],
        store: CausalStore,
        codec: FrameCodec,
        limits: LinkLimits,
        pressure: Pressure,
        catching_up: CatchingUp,
        out: list[io.Instruction],
    ) -> None:
        """``own_log``: the number of the task's own log, None where there are no logs."""
        self._process, self._own_log, self._outputs, self._store = process, own_log, outputs, store
        self._checks = own_log is not None
        self._codec, self._limits, self._pressure = codec, limits, pressure
        self._catching_up, self._out = catching_up, out
        self._spill_failure_told = False
        self._uncovered: set[int] = set()
        """Outputs that hold what they held when a checkpoint was asked for."""
        self._runs: dict[int, tuple[int, int]] = {}
        """By output: the run under way, and the number below which it may make frames."""
        self.may_produce = True
        self._frames_sent = 0
        self._data_bytes = 0
        self._delta_bytes = 0

    @property
    def counters(self) -> ProcessCounters:
        """Frames and bytes sent, frames that wait for their receivers, and bytes of those retained."""
        return ProcessCounters(
            frames_sent=self._frames_sent,
            frames_queued=sum(output.log.unreceived for output in self._outputs),
            held_back=not self.may_produce,
            data_bytes=self._data_bytes,
            determinant_bytes=self._delta_bytes,
            in_flight_bytes=self._pressure.memory_bytes,
            spilled_bytes=self._pressure.spilled_bytes,
        )

    # ---- sending

    def produced(self, event: task.Produced) -> None:
        """Retains what the task cut, and sends what may be sent."""
        for index, frame in event.frames:
            self._outputs[index].retained(frame, self._codec, self._checks)
        for index in dict.fromkeys(index for index, _ in event.frames):
            self.pump(self._outputs[index])

    def pump(self, output: OutputChannel) -> None:
        """Sends what may be sent, and asks for what will be next."""
        if output.connection is None:
            return
        for header, body, new in output.sendable(self._store):
            self.send(output.connection, header, body)
            if new:
                self._catching_up.tell_effect()
        if output.again is not None:
            self._make_again(output)
        elif self._pressure.writes:
            self._read_ahead(output)

    def send(self, connection: int, header: FrameHeader, body: object) -> None:
        self._frames_sent += 1
        self._delta_bytes += sum(len(segment.payload) + 16 for segment in header.delta)
        self._data_bytes += self._codec.size_bytes(body) if body is not None else 0
        self._out.append(io.SendFrame(connection, header, body))

    # ---- frames on disk

    def moved(self, event: FramesMoved) -> None:
        """What was asked for has been done, or not. Raises SpillError where frames are lost with this process."""
        match event:
            case io.FramesWritten():
                self._written(event)
            case io.FramesNotWritten():
                self._not_written(event)
            case io.FramesRead(index, bodies):
                for seq, body in bodies:
                    self._outputs[index].log.read(seq, body)
                self.pump(self._outputs[index])
            case io.FramesNotRead(problem):
                raise SpillError(str(problem)) from problem
            case task.WentOn():
                self._went_on(event)
            case task.Regenerated():
                self._regenerated(event)
        self.weigh()

    def _read_ahead(self, output: OutputChannel) -> None:
        if entries := output.log.to_read(2 * self._limits.window):
            self._out.append(io.ReadFrames(output.index, [(e.frame.seq, e.place) for e in entries]))

    def _written(self, event: io.FramesWritten) -> None:
        log = self._outputs[event.output].log
        for seq, place in event.places:
            log.written(seq, place)
        self._spill_failure_told = self._spill_failure_told and self._pressure.disk_problem is not None
        self.pump(self._outputs[event.output])

    def _not_written(self, event: io.FramesNotWritten) -> None:
        for seq in event.seqs:
            self._outputs[event.output].log.not_written(seq)
        self._pressure.disk_problem = event.reason
        if not self._spill_failure_told:
            self._spill_failure_told = True
            self._out.append(io.Tell(control.FramesNotSpilled(self._process, event.reason)))

    def _spill(self) -> None:
        for output, entries in self._pressure.to_write():
            self._out.append(io.WriteFrames(output.index, [(e.frame.seq, e.body) for e in entries]))
        if places := [place for output in self._outputs for place in output.log.take_unused()]:
            self._out.append(io.FreeFrames(places))

    # ---- frames made again

    def _went_on(self, event: task.WentOn) -> None:
        for output, next_seq in zip(self._outputs, event.next_seqs, strict=True):
            assert output.again is not None
            output.again.go_on_at(next_seq)
            self.pump(output)

    def _make_again(self, output: OutputChannel) -> None:
        log = output.again
        assert log is not None
        missing = log.missing
        if not missing:
            return
        run, below = self._runs.get(output.index, (0, 0))
        room = log.cursor + 2 * self._limits.window
        if run != log.connections:
            assert self._own_log is not None
            own = self._store.of(self._own_log)
            self._hand(task.Regenerate(output.index, log.connections, missing.start, missing.stop, room, own))
        elif below < min(missing.stop, room - self._limits.window + 1):
            self._hand(task.RegenerateBelow(output.index, room))
        else:
            return
        self._runs[output.index] = (log.connections, room)

    def _regenerated(self, event: task.Regenerated) -> None:
        output = self._outputs[event.output]
        if output.again is not None and event.run == output.again.connections:
            for frame in event.frames:
                output.regenerated(frame, self._codec, self._checks)
            self.pump(output)

    def _hand(self, item: task.ToTask) -> None:
        self._out.append(io.Hand(item))

    # ---- weight

    def weigh(self) -> None:
        """After any change of the in-flight logs: move frames to disk, hold the task back or let it go, and ask for a
        checkpoint in time."""
        if self._pressure.writes:
            self._spill()
        verdict = self._pressure.weigh()
        if verdict.wants_checkpoint and not self._uncovered:
            self._uncovered = set(range(len(self._outputs)))
            self._out.append(io.Tell(control.RequestCheckpoint(self._process)))
        if verdict.may_produce != self.may_produce:
            self.may_produce = verdict.may_produce
            self._hand(task.MayProduce(verdict.may_produce))

    def passed(self, checkpoint: int) -> None:
        """The task has taken its snapshot for this checkpoint: what it still retains of before waits for completion."""
        self._pressure.barrier_passed = checkpoint
        self.weigh()

    def aborted(self, checkpoint: int) -> None:
        """Whoever waited for this checkpoint needs another."""
        if self._pressure.barrier_passed == checkpoint:
            self._pressure.barrier_passed = 0
        self._uncovered = set()
        self.weigh()

    def ask_again(self) -> None:
        """Nobody knows any more what was asked for, nor which checkpoint is under way."""
        self._pressure.barrier_passed = 0
        self._uncovered = set()
        self.weigh()

    def cover(self, output: OutputChannel, below: int) -> None:
        """The restart point of a receiver covers the frames below ``below``. There may be room on disk again."""
        if output.cover(below):
            self._uncovered.discard(output.index)
            self._pressure.disk_problem = None

    def complete(self, checkpoint: int) -> None:
        """The checkpoint is complete."""
        if self._pressure.barrier_passed <= checkpoint:
            self._pressure.barrier_passed = 0
