"""Checks, from the outside, that nothing grows without a bound, that nothing waits too long, and how far event time is.

Promises, each a ``Violation`` where it is broken:
- of a connection's frames, a receiver holds a window at most that its task has not taken;
- what a completed checkpoint covers is dropped: determinants, checksums, snapshots that were noted; frames as soon as
  the receiver has said so;
- what the coordinator keeps of checkpoints, pings and connections does not grow;
- a task's watermark is never beyond what the sources before it have given, and never at the end before they are;
- rows wait to be cut for the linger time at most, and timers fire in time, whatever becomes of the time of day.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from clonos_py.channel.frames import FrameKind
from clonos_py.job.machine import JobMachine
from clonos_py.link import instructions as io
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.protocols import ALIGNED, UNALIGNED
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.process.contract import TaskProgress, TaskState, Took
from clonos_py.runtime.sim.histories import HistoryLedger
from clonos_py.runtime.sim.steps import CountTimers
from clonos_py.runtime.sim.violation import Violation, check
from clonos_py.runtime.world.processes import LocalProcess

Partition = tuple[int, int]
"""The number of a source, and that of a partition of it."""
_PINGS_MAX = 8 * 5 + 1
"""Pings are forgotten after eight heartbeat timeouts, of at most five heartbeats each."""
_COVERED_US = 200_000
"""So long an acknowledgement may be on its way."""
_LATE_US = 20_000
"""So late a task of a generated run may be, unless its steps are slow."""
LOOK_EVERY = 16
"""So many actions lie between two looks at who waits for what."""


class Bounds:
    """Of all processes of one job. ``window``: as many frames may be on their way on a connection. ``partitions``: by
    source task, those that it reads."""

    def __init__(
        self,
        plan: PhysicalPlan,
        partitions: Mapping[TaskId, list[Partition]],
        ledger: HistoryLedger,
        window: int,
        linger_us: int,
    ) -> None:
        self._plan, self._ledger, self._window = plan, ledger, window
        self._coordinated = plan.protocol in (ALIGNED, UNALIGNED)
        self._before = {
            task: [p for source, own in partitions.items() if source == task or task in plan.hops[source] for p in own]
            for task in plan.tasks
        }
        self._opened_at: dict[tuple[int, int], int] = {}
        """By process and input: the number of the first frame of its connection, or of the next to be taken."""
        self._watermarks: dict[int, int] = {}
        self._waits: dict[tuple[int, tuple[str, tuple[int, int]]], int] = {}
        """By process and what waits there: since when, as far as was seen."""
        self._limits_us = {"rows": linger_us, "timers": CountTimers.PAUSE_US, "covered frames": _COVERED_US}

    def restarted(self) -> None:
        """All processes are new."""
        self._opened_at.clear()
        self._watermarks.clear()
        self._waits.clear()

    # ---- frames

    def handled(self, process: LocalProcess, event: object) -> None:
        """The link of ``process`` has handled ``event``."""
        match event:
            case io.Arrived(connection, header):
                channel = next((c for c in process.link.inputs if c.connection == connection), None)
                if channel is None:
                    return
                key = process.number, channel.index
                if header.kind is FrameKind.LOG_ONLY:
                    self._opened_at[key] = header.seq
                    return
                waiting = header.seq + 1 - self._opened_at[key]
                if waiting > self._window:
                    raise Violation(
                        f"{process.task} was sent {waiting} frames on {channel.channel} that it has not taken, the "
                        f"window is {self._window}"
                    )
            case Took(index, next_seq):
                key = process.number, index
                self._opened_at[key] = max(next_seq, self._opened_at.get(key, 0))

    # ---- what a checkpoint covers

    def dropped(self, process: LocalProcess, checkpoint: int, progress: TaskProgress) -> None:
        """``checkpoint`` is complete, and ``process`` knows it."""
        link, task = process.link, process.task
        for channel in link.inputs:
            held, barrier = channel.expectation.checksums, progress.inputs[channel.index].next_seq
            check(
                not held or held[0][0] >= barrier or not self._coordinated,
                f"{task} has the checksum of frame {held and held[0][0]} from {channel.channel}, {barrier} is enough",
            )
        journal = link.store.since(0, lambda number: True)
        kept = [s for number in range(len(self._plan.tasks)) for s in link.store.of(number)]
        numbers = range(len(self._plan.tasks)) if self._coordinated else [self._plan.tasks.index(task)]
        old = [s for s in (*journal, *kept) if s.epoch < checkpoint and s.task in numbers]
        check(not old, f"{task} holds determinants from before checkpoint {checkpoint}")
        check(len(journal) == len(kept), f"{task} holds {len(kept)} segments, its journal has {len(journal)}")
        noted = [number for number in link.uncovered if number <= checkpoint]
        check(not noted, f"{task} has notes of the snapshots {noted}, though checkpoint {checkpoint} is complete")
        check(not link.parked, f"{task} is the newest attempt and lets {link.parked} subscriptions wait for another")

    # ---- the coordinator

    def completed(self, job: JobMachine) -> None:
        """The coordinator has just reported a checkpoint complete."""
        kept = job.kept
        most = 0 if self._coordinated else 1  # snapshots taken alone: up to which number they were given up
        check(kept["aborted"] <= most, f"the coordinator keeps the numbers of {kept['aborted']} aborted checkpoints")
        check(kept["pings"] <= _PINGS_MAX, f"the coordinator keeps {kept['pings']} pings")
        check(
            not kept["lost_connections"] or not self._coordinated,
            f"the coordinator keeps {kept['lost_connections']} lost connections, though data flows everywhere",
        )

    # ---- event time

    def stepped(self, process: LocalProcess) -> None:
        """The task of ``process`` has done something."""
        watermark = process.machine.watermark
        if self._watermarks.get(process.number) == watermark:
            return
        self._watermarks[process.number] = watermark
        before, ledger = self._before[process.task], self._ledger
        if all(partition in ledger.finished for partition in before):
            return
        check(watermark != MAX_TIME, f"{process.task} is at the end of event time, and sources before it are not")
        highest = max((ledger.highest[p] for p in before if p in ledger.highest), default=MIN_TIME)
        check(
            watermark <= highest,
            f"{process.task} is at {watermark} of event time, no source before it has come beyond {highest}",
        )

    # ---- what waits

    def look(self, prompt: Iterable[LocalProcess], now_us: int) -> None:
        """Every ``LOOK_EVERY`` actions: nothing has waited for too long in the processes ``prompt``. A standby has no
        connection, and gives nothing."""
        before, self._waits = self._waits, {}
        prompt = [process for process in prompt if process.link.state is not TaskState.STANDBY]
        covered = {c.connection: c.covered for p in prompt for c in p.link.inputs if c.connection is not None}
        for process in prompt:
            for what in (*self._waiting(process), *self._retained(process, covered)):
                key = process.number, what
                since_us = self._waits[key] = before.get(key, now_us)
                limit_us = self._limits_us[what[0]]
                waited_us = now_us - since_us
                if waited_us > limit_us + _LATE_US:
                    raise Violation(f"{process.task} has {what[0]} that have waited for {waited_us / 1e3:g} ms")

    def _retained(self, process: LocalProcess, covered: Mapping[int, int]) -> Iterator[tuple[str, tuple[int, int]]]:
        """Frames that are retained for no receiver. ``covered``: by connection, what the receiver's restart point
        covers."""
        for output in process.link.outputs:
            if output.connection is None or not (below := covered.get(output.connection, 0)):
                continue
            lowest = output.again.lowest_checksum if output.again is not None else None
            if output.log.first < min(below, output.log.next_seq) or (lowest is not None and lowest < below):
                yield "covered frames", (output.index, output.log.first)

    def _waiting(self, process: LocalProcess) -> list[tuple[str, tuple[int, int]]]:
        machine = process.machine
        if process.link.state is not TaskState.RUNNING or machine.state is not TaskState.RUNNING:
            return []
        return [("timers", timer) for timer in machine.timers] + [("rows", frame) for frame in machine.uncut]
