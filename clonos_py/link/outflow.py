"""The output of a link: sends frames in order, each with its delta, and decides where retained frames are stored.

Nothing blocks here: frames that are on disk or must be regenerated are requested ahead of their turn, while other
channels continue.
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
from clonos_py.model.ids import LogId
from clonos_py.process import contract as task
from clonos_py.process.contract import ChannelLimits

FramesMoved = (
    io.FramesWritten | io.FramesNotWritten | io.FramesRead | io.FramesNotRead | task.Resumed | task.Regenerated
)
FRAMES_MOVED = typing.get_args(FramesMoved)


class Outflow:
    """The outputs of one link."""

    def __init__(
        self,
        process: int,
        own_log: LogId | None,
        outputs: Sequence[OutputChannel],
        store: CausalStore,
        codec: FrameCodec,
        limits: ChannelLimits,
        pressure: Pressure,
        catching_up: CatchingUp,
    ) -> None:
        """``own_log``: that of the task; None if nothing is logged."""
        self._process, self._own_log, self._outputs, self._store = process, own_log, outputs, store
        self._checks = own_log is not None
        self._codec, self._limits, self._pressure = codec, limits, pressure
        self._catching_up = catching_up
        self._spill_failure_reported = False
        self._uncovered: set[int] = set()
        """Outputs that still hold frames from the time when a checkpoint was requested."""
        self._runs: dict[int, tuple[int, int]] = {}
        """By output: the current regeneration run, and the number below which it may make frames."""
        self.started = False
        """Whether the retained frames are those of the restart point. Before that, others may replace them."""
        self.may_produce = True
        self._frames_sent = 0
        self._data_bytes = 0
        self._delta_bytes = 0
        self._stamp_bytes = 0

    @property
    def counters(self) -> ProcessCounters:
        """Frames and bytes sent, frames that wait for their receivers, and bytes of retained frames."""
        return ProcessCounters(
            frames_sent=self._frames_sent,
            frames_queued=sum(output.cursor.unreceived for output in self._outputs),
            held_back=not self.may_produce,
            data_bytes=self._data_bytes,
            determinant_bytes=self._delta_bytes,
            stamp_bytes=self._stamp_bytes,
            in_flight_bytes=self._pressure.memory_bytes,
            spilled_bytes=self._pressure.spilled_bytes,
        )

    # ---- sending

    def serve(self, output: OutputChannel, event: io.Subscribed) -> list[io.Instruction]:
        """Serves an admitted receiver: opens the connection with a log-only frame, and sends what may be sent."""
        self.cover(output, event.hello.covered)
        header = output.subscribe(event.connection, event.hello.receiver, event.hello.next_seq, self._store)
        return [self._send(event.connection, header, None, 0), *self.pump(output), *self.check_pressure()]

    def logs_arrived(self) -> list[io.Instruction]:
        """Logs that the process lacked have arrived: tells the receivers to whom this may be news."""
        return [
            self._send(output.connection, header, None, 0)
            for output in self._outputs
            if output.connection is not None and (header := output.logs_arrived(self._store)) is not None
        ]

    def produced(self, event: task.Produced) -> list[io.Instruction]:
        """Retains the frames that the task cut, and sends what may be sent."""
        for index, frame in event.frames:
            self._outputs[index].retained(frame, self._codec, self._checks)
        instructions: list[io.Instruction] = []
        for index in dict.fromkeys(index for index, _ in event.frames):
            instructions += self.pump(self._outputs[index])
        return instructions

    def pump(self, output: OutputChannel) -> list[io.Instruction]:
        """Sends what may be sent, and requests the frames that come next."""
        instructions: list[io.Instruction] = []
        if output.connection is None:
            return instructions
        for frame in output.sendable(self._store):
            instructions.append(self._send(output.connection, frame.header, frame.body, frame.size_bytes))
            if frame.new:
                instructions += self._catching_up.report_effect()
        if output.cursor.regenerated is not None:
            instructions += self._request_regenerated(output, output.cursor.regenerated.run)
        if self._pressure.writes:
            instructions += self._read_ahead(output)
        return instructions

    def _send(self, connection: int, header: FrameHeader, body: object, size_bytes: int) -> io.SendFrame:
        self._frames_sent += 1
        self._delta_bytes += sum(len(segment.payload) + 16 for segment in header.delta)
        self._stamp_bytes += len(header.meta)
        self._data_bytes += size_bytes
        return io.SendFrame(connection, header, body)

    # ---- frames on disk

    def moved(self, event: FramesMoved) -> list[io.Instruction]:
        """Handles the outcome of a request about frames. Raises SpillError if frames cannot be read back."""
        match event:
            case io.FramesWritten():
                instructions = self._written(event)
            case io.FramesNotWritten():
                instructions = self._not_written(event)
            case io.FramesRead():
                instructions = self._read(event)
            case io.FramesNotRead(problem):
                raise SpillError(str(problem)) from problem
            case task.Resumed():
                instructions = self._resumed(event)
            case task.Regenerated():
                instructions = self._regenerated(event)
        return instructions + self.check_pressure()

    def _read_ahead(self, output: OutputChannel) -> list[io.Instruction]:
        entries = output.cursor.to_read(2 * self._limits.window)
        return [io.ReadFrames(output.index, [(e.frame.seq, e.place) for e in entries])] if entries else []

    def _read(self, event: io.FramesRead) -> list[io.Instruction]:
        output = self._outputs[event.output]
        for seq, body in event.bodies:
            output.frames.read(seq, body)
        return self.pump(output)

    def _written(self, event: io.FramesWritten) -> list[io.Instruction]:
        frames = self._outputs[event.output].frames
        for seq, place in event.places:
            frames.written(seq, place)
        self._spill_failure_reported = self._spill_failure_reported and self._pressure.disk_problem is not None
        return self.pump(self._outputs[event.output])

    def _not_written(self, event: io.FramesNotWritten) -> list[io.Instruction]:
        for seq in event.seqs:
            self._outputs[event.output].frames.not_written(seq)
        self._pressure.disk_problem = event.reason
        if self._spill_failure_reported:
            return []
        self._spill_failure_reported = True
        return [io.SendToCoordinator(control.FramesNotSpilled(self._process, event.reason))]

    def _spill(self) -> list[io.Instruction]:
        spilling: list[io.Instruction] = [
            io.WriteFrames(output.index, [(e.frame.seq, e.body) for e in entries])
            for output, entries in self._pressure.to_write()
        ]
        if places := [place for output in self._outputs for place in output.frames.take_unused()]:
            spilling.append(io.FreeFrames(places))
        return spilling

    # ---- regenerated frames

    def _resumed(self, event: task.Resumed) -> list[io.Instruction]:
        instructions: list[io.Instruction] = []
        for output, next_seq in zip(self._outputs, event.next_seqs, strict=True):
            output.frames.continue_at(next_seq)
            instructions += self.pump(output)
        return instructions

    def _request_regenerated(self, output: OutputChannel, run: int) -> list[io.Instruction]:
        """``run``: the present connection of the receiver."""
        missing = output.cursor.missing
        if not missing:
            return []
        requested, below = self._runs.get(output.index, (0, 0))
        room = output.cursor.at + 2 * self._limits.window
        request: task.Regenerate | task.RegenerateBelow
        if requested != run:
            assert self._own_log is not None
            own = self._store.of(self._own_log)
            request = task.Regenerate(output.index, run, missing.start, missing.stop, room, own)
        elif below < min(missing.stop, room - self._limits.window + 1):
            request = task.RegenerateBelow(output.index, room)
        else:
            return []
        self._runs[output.index] = (run, room)
        return [io.SendToTask(request)]

    def _regenerated(self, event: task.Regenerated) -> list[io.Instruction]:
        output = self._outputs[event.output]
        regenerated = output.cursor.regenerated
        if regenerated is None or event.run != regenerated.run:
            return []
        for frame in event.frames:
            output.regenerated(frame, self._codec, self._checks)
        return self.pump(output)

    # ---- weight

    def check_pressure(self) -> list[io.Instruction]:
        """Called after any change of the retained frames: spills some to disk, stops or resumes the task, and
        requests a checkpoint in time."""
        if not self.started:
            return []
        instructions = self._spill() if self._pressure.writes else []
        memory = self._pressure.measure()
        if memory.wants_checkpoint and not self._uncovered:
            self._uncovered = {o.index for o in self._outputs if o.frames.first < o.frames.next_seq}
            instructions.append(io.SendToCoordinator(control.RequestCheckpoint(self._process)))
        if memory.may_produce != self.may_produce:
            self.may_produce = memory.may_produce
            instructions.append(io.SendToTask(task.MayProduce(memory.may_produce)))
        return instructions

    def passed(self, checkpoint: int) -> list[io.Instruction]:
        """The task has taken its snapshot for this checkpoint. Frames retained from before wait for its completion."""
        self._pressure.barrier_passed = checkpoint
        return self.check_pressure()

    def aborted(self, checkpoint: int) -> list[io.Instruction]:
        """The checkpoint was aborted: a task that waited for it needs another."""
        if self._pressure.barrier_passed == checkpoint:
            self._pressure.barrier_passed = 0
        self._uncovered = set()
        return self.check_pressure()

    def repeat_requests(self) -> list[io.Instruction]:
        """The coordinator was lost, and with it perhaps a requested checkpoint: requests one again if needed."""
        self._pressure.barrier_passed = 0
        self._uncovered = set()
        return self.check_pressure()

    def cover(self, output: OutputChannel, below: int) -> None:
        """The restart point of a receiver covers the frames below ``below``. There may be disk space again."""
        if output.cover(below):
            self._uncovered.discard(output.index)
            self._pressure.disk_problem = None

    def complete(self, checkpoint: int) -> None:
        """The checkpoint is complete."""
        if self._pressure.barrier_passed <= checkpoint:
            self._pressure.barrier_passed = 0
