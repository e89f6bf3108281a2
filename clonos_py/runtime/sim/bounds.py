"""Checks from outside that memory is bounded, that rows and timers do not wait too long, and how far watermarks are.

Each broken promise raises a ``Violation``:
- a receiver holds at most one window of a connection's frames that its task has not taken;
- data that a completed checkpoint covers is dropped: determinants, checksums and notes of snapshots; frames as soon as
  the receiver has acknowledged it;
- the coordinator's records of checkpoints, pings and connections do not grow;
- a task's watermark is never beyond the rows of the sources that it follows, and never at the end before those are;
- once all sources before a task are silent and idle, its watermark is the highest event time of their rows;
- rows wait for the linger time at most before they are cut into a frame, and timers fire in time, even if the time of
  day is set.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import replace

from clonos_py.channel.frames import FrameKind
from clonos_py.job.machine import JobMachine
from clonos_py.link import instructions as io
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.process.contract import FramesTaken, TaskProgress, TaskState
from clonos_py.runtime.sim.histories import HistoryLedger
from clonos_py.runtime.sim.steps import CountTimers
from clonos_py.runtime.sim.violation import Violation, check
from clonos_py.runtime.world.processes import LocalProcess

Partition = tuple[int, int]
"""The number of a source, and the number of one of its partitions."""
_Waiting = tuple[str, tuple[int, int]]
"""What waits, and two numbers that tell it from others of its kind."""
_PINGS_MAX = 8 * 5 + 1
"""Pings are dropped after eight heartbeat timeouts, of at most five heartbeats each."""
_SILENT_US = 400_000
"""The longest time after which all tasks have the watermark of sources that are silent."""
_COVERED_US = 200_000
"""The longest time that an acknowledgement may be in transit."""
_LATE_US = 20_000
"""How late a task of a generated run may be, if its steps are not slow."""
_OF_THE_TASK = ("rows", "timers")
"""What only a step of the task can end."""
LOOK_EVERY = 16
"""The number of actions between two checks of waiting rows, timers and frames."""


class Bounds:
    """The checks for all processes of one job. ``window``: the number of frames that may be in transit on a connection.
    ``partitions``: the partitions that each source task reads. ``last_ids``: by partition, the id of its last row, and
    so its event time."""

    def __init__(
        self,
        plan: PhysicalPlan,
        partitions: Mapping[TaskId, list[Partition]],
        last_ids: Mapping[Partition, int],
        ledger: HistoryLedger,
        window: int,
        linger_us: int,
        slowness: Mapping[str, float],
    ) -> None:
        """``slowness``: the factors on the times of actions, by kind. A causal sink waits for the disk, and so do its
        windows; whatever a task is to do waits for its steps."""
        self._plan, self._ledger, self._window = plan, ledger, window
        self._partitions, self._last_ids = partitions, last_ids
        self._coordinated = plan.protocol.coordinated
        edges = [edge for edge in plan.edges if not edge.untimed]
        timed = replace(plan, edges=tuple(replace(edge, id=id_) for id_, edge in enumerate(edges)))
        self._before = {
            task: [p for origin in timed.origins[task] for p in partitions.get(origin, ())] for task in plan.tasks
        }
        """By task: the partitions whose rows count for its watermark."""
        self._opened_at: dict[tuple[int, int], int] = {}
        """By process and input: the number of the first frame of its connection, or of the next frame to take."""
        self._watermarks: dict[int, int] = {}
        self._waits: dict[int, dict[_Waiting, int]] = {}
        """By process and what waits: the time of the first look that found it waiting."""
        self._limits_us = {
            "rows": linger_us,
            "timers": CountTimers.PAUSE_US,
            "covered frames": _COVERED_US,
            "windows": round(_SILENT_US * max(1.0, slowness.get("disk", 1.0))),
        }
        fall_idle = {v.name for v in plan.vertices if v.source and v.source.event_time.idle_us is not None}
        self._late_us = round(_LATE_US * max(1.0, slowness.get("step", 1.0)))
        self._on_the_way = {
            task: way
            for task in plan.tasks
            if (way := plan.origins[task])
            and all(plan.loop_of(t) is None and (t not in partitions or t.vertex in fall_idle) for t in way)
        }
        """By task, if all sources before it may fall idle: the tasks on the way from them, and itself."""

    def restarted(self) -> None:
        """The job has restarted: all processes are new."""
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
                if not header.kind.numbered:
                    return
                waiting = header.seq + 1 - self._opened_at[key]
                if waiting > self._window:
                    raise Violation(
                        f"{process.task} was sent {waiting} frames on {channel.channel} that it has not taken, the "
                        f"window is {self._window}"
                    )
            case FramesTaken(index, next_seq):
                key = process.number, index
                self._opened_at[key] = max(next_seq, self._opened_at.get(key, 0))

    # ---- what a checkpoint covers

    def dropped(self, process: LocalProcess, checkpoint: int, progress: TaskProgress) -> None:
        """``checkpoint`` is complete, and ``process`` has handled that message."""
        link, task = process.link, process.task
        for channel in link.inputs:
            held, barrier = channel.expectation.checksums, progress.covered[channel.index]
            check(
                not held or held[0][0] >= barrier or not self._coordinated,
                f"{task} has the checksum of frame {held and held[0][0]} from {channel.channel}, {barrier} is enough",
            )
        journal = link.store.since(0, lambda log: True)
        kept = [s for log in self._plan.logs for s in link.store.of(log)]
        logs = self._plan.logs if self._coordinated else [task.log_id]
        old = [s for s in (*journal, *kept) if s.epoch < checkpoint and s.log in logs]
        check(not old, f"{task} holds determinants from before checkpoint {checkpoint}")
        check(len(journal) == len(kept), f"{task} holds {len(kept)} segments, its journal has {len(journal)}")
        noted = [number for number in link.uncovered if number <= checkpoint]
        check(not noted, f"{task} has notes of the snapshots {noted}, though checkpoint {checkpoint} is complete")
        check(not link.parked, f"{task} is the newest attempt and lets {link.parked} subscriptions wait for another")

    # ---- the coordinator

    def completed(self, job: JobMachine) -> None:
        """The coordinator has just reported a checkpoint complete."""
        sizes = job.sizes
        most = 0 if self._coordinated else 1  # alone: only the number up to which snapshots were given up
        check(sizes["aborted"] <= most, f"the coordinator keeps the numbers of {sizes['aborted']} aborted checkpoints")
        check(sizes["pings"] <= _PINGS_MAX, f"the coordinator keeps {sizes['pings']} pings")
        check(
            not sizes["lost_connections"] or not self._coordinated,
            f"the coordinator keeps {sizes['lost_connections']} lost connections, though data flows everywhere",
        )

    # ---- event time

    def stepped(self, process: LocalProcess) -> None:
        """The task of ``process`` has taken a step."""
        if process.number in self._waits:
            self._drop_ended_waits(process)
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

    def _drop_ended_waits(self, process: LocalProcess) -> None:
        """An input that turns idle leaves nothing to cut, and when it turns active and idle again the next look may
        find the same frame pending: that is another wait."""
        still = self._waiting(process)
        waits = self._waits[process.number]
        self._waits[process.number] = {
            what: since_us for what, since_us in waits.items() if what[0] not in _OF_THE_TASK or what in still
        }

    def look(self, prompt: Iterable[LocalProcess], now_us: int) -> None:
        """Checks, every ``LOOK_EVERY`` actions, that nothing has waited too long in the processes ``prompt``. Standbys
        are left out: they have no connections and emit nothing. So are tasks that stand still behind the last
        checkpoint of a stopped job."""
        before, self._waits = self._waits, {}
        prompt = [
            process
            for process in prompt
            if process.link.state is not TaskState.STANDBY and not process.machine.stands_still
        ]
        covered = {c.connection: c.covered for p in prompt for c in p.link.inputs if c.connection is not None}
        silent = self._silent(prompt)
        for process in prompt:
            earlier = before.get(process.number, {})
            for what in (*self._waiting(process), *self._retained(process, covered), *self._open(process, silent)):
                since_us = earlier.get(what, now_us)
                self._waits.setdefault(process.number, {})[what] = since_us
                limit_us = self._limits_us[what[0]]
                waited_us = now_us - since_us
                if waited_us > limit_us + self._late_us:
                    raise Violation(f"{process.task} has {what[0]} that have waited for {waited_us / 1e3:g} ms")

    def _retained(self, process: LocalProcess, covered: Mapping[int, int]) -> Iterator[_Waiting]:
        """Frames that no receiver needs any more and that are still retained. ``covered``: by connection, the frame
        below which the receiver's restart point covers all frames."""
        for output in process.link.outputs:
            if output.connection is None or not (below := covered.get(output.connection, 0)):
                continue
            lowest = output.cursor.regenerated.lowest_checksum if output.cursor.regenerated is not None else None
            if output.frames.first < min(below, output.frames.next_seq) or (lowest is not None and lowest < below):
                yield "covered frames", (output.index, output.frames.first)

    def _silent(self, prompt: Iterable[LocalProcess]) -> set[TaskId]:
        """The tasks that run, are connected with those before them, are not held back by those behind them, and expect
        no rows of their own: of sources, those that have read all and do not wait for slower ones, as the coordinator
        says. None of them if a task has two processes."""
        running = [p for p in prompt if _runs(p)]
        sending = {output.connection for p in running for output in p.link.outputs}
        silent = {
            p.task
            for p in running
            if self._all_read(p) and _connected(p, sending) and not (p.machine.held_back or p.machine.is_ahead)
        }
        return silent if len({p.task for p in running}) == len(running) else set()

    def _all_read(self, process: LocalProcess) -> bool:
        if not (own := self._partitions.get(process.task)):
            return True
        reached = process.machine.progress.partitions
        return all(reached.get(n, (MIN_TIME, False))[0] == self._last_ids[source, n] for source, n in own)

    def _open(self, process: LocalProcess, silent: set[TaskId]) -> Iterator[_Waiting]:
        """The windows that are open though all rows before their end have come, and no others are expected."""
        way = self._on_the_way.get(process.task)
        if way is None or not silent.issuperset(way):
            return
        highest = max((self._last_ids[p] for p in self._before[process.task]), default=MIN_TIME)
        if process.machine.watermark < highest:
            yield "windows", (process.machine.watermark, highest)

    def _waiting(self, process: LocalProcess) -> list[_Waiting]:
        machine = process.machine
        if not _runs(process):
            return []
        return [("timers", timer) for timer in machine.timers] + [("rows", frame) for frame in machine.uncut]


def _connected(process: LocalProcess, sending: Container[int | None]) -> bool:
    """Whether all of its inputs have a connection, which is one of those on which processes send."""
    connections = [channel.connection for channel in process.link.inputs]
    return all(connection is not None and connection in sending for connection in connections)


def _runs(process: LocalProcess) -> bool:
    return process.link.state is TaskState.RUNNING and process.machine.state is TaskState.RUNNING
