"""Checks the invariants of a run at every step, from outside: it does not rely on the machines' own view.

Each broken promise raises a ``Violation``:
- always-no-orphans (Clonos, equations 1 to 3): the receiver of a frame holds the logs that the frame depends on, as
  the sharing depth demands, and is sent no others; after a failure the logs found reach as far as survivors depend;
- the frames of a channel are received in order, without gaps and duplicates, across all failures;
- a replacement restarts from the last completed checkpoint, and its task has exactly the progress of that checkpoint;
- a frame that is cut again carries the same stamp of the checkpoint protocol (E10);
- no checkpoint of a protocol with stamps is useless (E10);
- tasks restart from the recovery line, with all frames that they need (``lines``), and never from a snapshot older than
  a commit (``commits``);
- data that a completed checkpoint covers is dropped;
- no coordinated checkpoint has a number that a replayed log names: the log would have two barriers of it;
- rollbacks happen when D10 calls for them, and only then. Where availability is preferred, they never happen: tasks
  restart without log when D10 calls for it, or while no checkpoint covers the frames that such a restart sent again;
- in a rollback job every failure is followed by a rollback (E2), in which all tasks begin; a machine that another has
  replaced in its process does nothing more (E9);
- a job makes progress: if for a long time no frame is taken and nothing is decided, it is stuck.

Dependence is tracked as happened-before: with every frame the checker records, invisibly to the machines, the logs and
offsets that the frame depends on; see ``orphans``.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from clonos_py.channel.frames import FrameKind
from clonos_py.job.events import JobInstruction, ReportEvent, Send, StartProcess
from clonos_py.job.state_mapping import same_shape
from clonos_py.link import instructions as io
from clonos_py.model import messages
from clonos_py.model.coordinator_events import (
    CheckpointCompleted,
    CoordinatorEvent,
    CoordinatorReplaced,
    RestartedWithoutLog,
    RolledBack,
    TaskLost,
)
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest
from clonos_py.process.contract import (
    FeedPointTaken,
    FramesTaken,
    Produced,
    RestoreState,
    SnapshotTaken,
    TaskProgress,
    TaskState,
)
from clonos_py.process.progress import progress_of
from clonos_py.runtime.sim.bounds import Bounds
from clonos_py.runtime.sim.commits import Commits
from clonos_py.runtime.sim.lines import LinePoints
from clonos_py.runtime.sim.orphans import Extent, Survivor, called_for, may_hold, must_hold, orphan
from clonos_py.runtime.sim.useless import SnapshotHistory
from clonos_py.runtime.sim.violation import Violation, check
from clonos_py.runtime.world.processes import LocalProcess

_RECOVERING = (TaskState.CONNECTING, TaskState.FETCHING_DETERMINANTS, TaskState.REPLAYING)
STUCK_US = 10_000_000
"""Longer than any wait in a generated run."""


class _FeedPoint(NamedTuple):
    """A feed point of a task: its epoch, before which what sinks have prepared is not undone, the task's progress
    there, and the dependencies of its state."""

    epoch: int
    progress: TaskProgress
    extent: Extent


class Dependencies:
    """The dependencies of one process. Extents are never changed, only replaced, because frames share them."""

    def __init__(self, inputs: int) -> None:
        self.received: Extent = {}
        """The dependencies of all frames that its link has received: a survivor of a failure depends on these."""
        self.used: Extent = {}
        """The dependencies of the frames that its task has taken, and its own log: its new frames depend on these."""
        self.waiting: list[deque[tuple[int, Extent]]] = [deque() for _ in range(inputs)]
        self.next_seq: list[int | None] = [None] * inputs


def joined(one: Extent, other: Extent) -> Extent:
    more = {task: offset for task, offset in other.items() if offset > one.get(task, 0)}
    return {**one, **more} if more else one


def _without(numbers: Collection[int], extent: Extent) -> Extent:
    return {task: offset for task, offset in extent.items() if task not in numbers}


class InvariantChecker:
    """Checks the runs of one job, one after the other. ``latest`` reads the last manifest from storage."""

    def __init__(
        self, plan: PhysicalPlan, latest: Callable[[], Manifest | None], bounds: Bounds, availability: bool = False
    ) -> None:
        """``bounds``: checked also when a checkpoint completes."""
        self._availability, self._bounds = availability, bounds
        self._restarted_at = -1
        """The last completed checkpoint at the last restart without log; -1 if there was none."""
        self._plan, self._causal, self._latest = plan, plan.sharing_depth != 0, latest
        self._once, self._alone = self._causal or plan.rollback, not plan.protocol.coordinated
        self._must_hold, self._may_hold = must_hold(plan), may_hold(plan)
        self._dependencies: dict[int, Dependencies] = {}
        self._in_transit: dict[tuple[int, int], tuple[TaskId, Extent]] = {}
        """By connection and sequence number: the sender of the frame, and its dependencies."""
        self._owner: dict[TaskId, int] = {}
        """By task: the process that was promoted last."""
        self._producer: dict[TaskId, int] = {}
        """By task: the process that was last sent a log to replay. Until receivers have closed their connections with
        it, which is before its successor is sent the log, the frames that it cuts count."""
        self._started: dict[int, TaskId] = {}
        """The task of each process that a coordinator has requested."""
        self._to_begin: set[int] = set()
        """The processes that the coordinator has decided to begin."""
        self._has_begun: set[int] = set()
        """The processes that have received the message to begin."""
        self._chosen: dict[TaskId, int] = {}
        """By task: the process that the coordinator has last promoted."""
        self._reused_by: dict[int, int] = {}
        """By process: the process that replaces it in its host process."""
        self._history: dict[TaskId, list[tuple[int, Extent]]] = {task: [] for task in plan.tasks}
        """By task: the dependencies of its log, as (offset, extent)."""
        self._cut: dict[TaskId, dict[tuple[int, int], Extent]] = {task: {} for task in plan.tasks}
        """By task: the dependencies of its frames, by output index and sequence number."""
        self._stamps: dict[TaskId, dict[tuple[int, int], bytes]] = {task: {} for task in plan.tasks}
        """By task: the stamps of its frames, by output index and sequence number."""
        self._taken, self._points = SnapshotHistory(plan), LinePoints(plan)
        self.commits = Commits(self._points)
        """Checks the commits of the sinks' ledger."""
        self._stable = dict.fromkeys(plan.logs, 0)
        self._progress: dict[TaskId, TaskProgress] = {}
        self._epochs: dict[TaskId, int] = {}
        """By task: the number of the snapshot that is its restart point."""
        self._snapshot_extents: dict[tuple[TaskId, int], Extent] = {}
        """By task and snapshot: the dependencies of its state."""
        self._feed_points: dict[tuple[TaskId, int], _FeedPoint] = {}
        """By task and offset in its log."""
        self._starts_at: dict[int, _FeedPoint] = {}
        """By process: the feed point at which it starts."""
        self.starts_at_feed_points = 0
        self._checkpoint = 0
        self._named = 0
        """The newest checkpoint that a log names which tasks have replayed since all began."""
        self._failed: set[TaskId] = set()
        self._now_us = self._moved_us = 0
        self.rollbacks = 0
        self.restarts_without_log = 0

    def follow(self, former: InvariantChecker, checkpoint: int) -> None:
        """The job goes on at another parallelism, from this checkpoint of the runs that ``former`` has checked."""
        self.rollbacks, self.restarts_without_log = former.rollbacks, former.restarts_without_log
        self.starts_at_feed_points = former.starts_at_feed_points
        self.commits.follow(former.commits, checkpoint)

    # ---- progress

    def tick(self, now_us: int) -> None:
        self._now_us = now_us
        if now_us - self._moved_us > STUCK_US:
            check(not self._moved_us, f"nothing has happened for {(now_us - self._moved_us) / 1e6:g} s")
            self._moved_us = now_us

    def finished(self) -> None:
        """The job has ended: checks for useless snapshots. Jobs that roll back are left out, because a rollback may
        undo snapshots that another one needs for its recovery line."""
        if self._plan.protocol.stamps and self._causal and self._plan.loops:
            useless = self._taken.useless()
            check(not useless, "; ".join(useless))

    # ---- processes

    def _of(self, process: LocalProcess) -> Dependencies:
        known = self._dependencies.get(process.number)
        if known is None:
            known = self._dependencies[process.number] = Dependencies(len(process.link.inputs))
        return known

    def produced(self, process: LocalProcess, event: Produced) -> None:
        """The link of ``process`` is about to handle this event, and may then send its frames. A replaying task logs
        nothing: the frames that it rebuilds have the dependencies of its predecessor's frames."""
        if self._producer.get(process.task) != process.number:
            return
        known, cut, stamps = self._of(process), self._cut[process.task], self._stamps[process.task]
        if event.log is not None:
            own = {event.log.log: event.log.stop}
            known.used, known.received = joined(known.used, own), joined(known.received, own)
            self._history[process.task].append((event.log.stop, known.used))
        for index, frame in event.frames:
            if event.log is not None or (index, frame.seq) not in cut:
                cut[index, frame.seq] = known.used
                stamps[index, frame.seq] = frame.stamp
            check(
                frame.stamp == stamps[index, frame.seq] or not self._causal,
                f"{process.task} cuts frame {frame.seq} of output {index} again with another stamp",
            )

    def handled(self, process: LocalProcess, event: object) -> None:
        """The link of ``process`` has handled ``event``."""
        match event:
            case io.Arrived():
                self._arrived(process, event)
            case SnapshotTaken(snapshot=snapshot, progress=progress, persist=persist) if self._counts(process):
                self._taken.took(process.task, snapshot.checkpoint, progress)
                if persist:
                    self._points.took(process.task, snapshot.checkpoint, progress)
                    self._snapshot_extents[process.task, snapshot.checkpoint] = self._of(process).used
            case FeedPointTaken(progress=progress, position=position):
                point = _FeedPoint(position.epoch, progress, self._of(process).used)
                self._feed_points[process.task, position.offset] = point
            case FramesTaken(index, next_seq):
                self._moved_us = self._now_us
                self._frames_taken(self._of(process), index, next_seq)
            case messages.Promote(restore=restore) if self._counts(process):
                self._owner[process.task] = process.number
                last = self._epochs.get(process.task, self._checkpoint)
                check(
                    restore.checkpoint == last,
                    f"{process.task} restarts from checkpoint {restore.checkpoint}, the last one is {last}",
                )
                self._restore_dependencies(process, restore.checkpoint)
                self._starts_at_feed_point(process)
                fed = self._starts_at.get(process.number)
                self._taken.restarts(process.task, restore.checkpoint if fed is None else fed.epoch)
                self._renumbered(process)
            case messages.Sever():
                self._renumbered(process)
            case messages.Replay():
                self._begins(process, event)
            case messages.Complete(checkpoint):
                self._dropped(process, checkpoint)
            case io.Acknowledged(connection) if self._alone and self._owner.get(process.task) == process.number:
                self._points.check_retained(process, connection)
            case _:
                pass

    def _counts(self, process: LocalProcess) -> bool:
        """Whether a process has neither failed nor been replaced: a zombie may receive its promotion late."""
        chosen = self._chosen.get(process.task) == process.number and process.number not in self._reused_by
        return process.link.state is not TaskState.FAILED and chosen

    def restored(self, process: LocalProcess, item: RestoreState) -> None:
        """The task of ``process`` has loaded a snapshot: checks its progress."""
        if item.progress is None or process.link.state is TaskState.FAILED:
            return
        expected, found = item.progress.begun, process.machine.progress
        differing = [name for name in expected.__struct_fields__ if getattr(expected, name) != getattr(found, name)]
        check(not differing, f"{process.task} was restored from checkpoint {item.checkpoint} without its {differing}")

    def _restore_dependencies(self, process: LocalProcess, epoch: int) -> None:
        """Gives a task that restarts the dependencies of its snapshot, except on its own log. Stable determinants are
        no dependencies any more."""
        extent = _without([process.task.log_id], self._snapshot_extents.get((process.task, epoch), {}))
        known = self._of(process)
        known.used, known.received = joined(known.used, extent), joined(known.received, extent)

    def _starts_at_feed_point(self, process: LocalProcess) -> None:
        """A task that starts at a feed point depends on what its predecessor depended on there, also on its own log."""
        if (position := process.link.feed_position) is None:
            self._starts_at.pop(process.number, None)
            return
        self.starts_at_feed_points += 1
        point = self._starts_at[process.number] = self._feed_points[process.task, position.offset]
        known = self._of(process)
        known.used, known.received = joined(known.used, point.extent), joined(known.received, point.extent)

    def _renumbered(self, process: LocalProcess) -> None:
        """Drops the expected numbers of channels that are numbered again: a sender that restarts without log begins at
        its receivers' restart points."""
        for channel in process.link.inputs:
            if channel.renumbers:
                self._of(process).next_seq[channel.index] = None

    def sent(self, process: LocalProcess, instruction: io.SendFrame) -> None:
        """``process`` sends a frame: records its dependencies."""
        if instruction.header.kind.numbered:
            output = next((o for o in process.link.outputs if o.connection == instruction.connection), None)
            if output is None:
                seq = instruction.header.seq
                raise Violation(f"{process.task} sends frame {seq} on a connection that no output has any more")
            extent = self._cut[process.task].get((output.index, instruction.header.seq), {})
            self._in_transit[instruction.connection, instruction.header.seq] = process.task, extent

    def _arrived(self, process: LocalProcess, event: io.Arrived) -> None:
        """Checks a frame that has arrived. Frames to a failed process do not count: a zombie may still read frames from
        before a rollback."""
        link, header = process.link, event.header
        channel = next((c for c in link.inputs if c.connection == event.connection), None)
        if channel is None or link.state is TaskState.FAILED:
            return
        known, task = self._of(process), process.task
        for segment in header.delta:
            if segment.log not in self._may_hold[task]:
                sent = self._plan.logs[segment.log]
                raise Violation(f"{task} is sent the log of {sent}, which it may not depend on")
        if header.kind is FrameKind.LOG_ONLY:
            self._opened(known, process, channel.index, header.seq)
        if not header.kind.numbered:
            return
        expected = known.next_seq[channel.index]
        exempt = expected is None and self._owner.get(task) != process.number
        if header.seq != expected and not exempt and self._once:
            raise Violation(f"{task} received frame {header.seq} on {channel.channel}, {expected} is next")
        known.next_seq[channel.index] = header.seq + 1
        _, extent = self._in_transit.pop((event.connection, header.seq), (task, {}))
        known.waiting[channel.index].append((header.seq, extent))
        known.received = joined(known.received, extent)
        if self._causal and self._owner.get(task) == process.number:
            self._check_held(process, extent)

    def _opened(self, known: Dependencies, process: LocalProcess, index: int, seq: int) -> None:
        """Checks where a connection begins: the first one at the restart point, later ones where the last one broke
        off. Zombies are left out, and so are processes that are to go back: their tasks' restart points are not
        theirs."""
        expected = known.next_seq[index]
        stays = self._owner.get(process.task) == process.number and process.number not in self._reused_by
        if expected is None and stays:
            progress = self._progress.get(process.task)
            if process.number in self._starts_at:
                progress = self._starts_at[process.number].progress
            expected = progress.covered[index] if progress else 0
            expected = expected if expected >= 0 else None
        check(
            seq == expected or expected is None or not self._once,
            f"{process.task} is offered frames of input {index} from {seq}, {expected} is next",
        )
        known.next_seq[index] = seq

    def _check_held(self, process: LocalProcess, extent: Extent) -> None:
        """Checks equation 1: the determinants that a frame depends on are stable, or held if the sharing depth demands
        it. Zombies are not checked: they may receive frames of other zombies, on which no task depends."""
        must, store = self._must_hold[process.task], process.link.store
        for log, offset in extent.items():
            if log in must and offset > self._stable[log]:
                held = store.end(log) or 0
                if held < offset:
                    raise Violation(
                        f"{process.task} depends on the log of {self._plan.logs[log]} up to {offset} and holds it "
                        f"only up to {held}"
                    )

    def _frames_taken(self, known: Dependencies, index: int, next_seq: int) -> None:
        waiting = known.waiting[index]
        while waiting and waiting[0][0] < next_seq:
            known.used = joined(known.used, waiting.popleft()[1])

    # ---- recovery

    def _begins(self, process: LocalProcess, message: messages.Replay) -> None:
        """A process begins. If it replays a log, it depends on all that the log depends on."""
        self._has_begun.add(process.number)
        if message.log and self._owner.get(process.task) == process.number:
            known = self._of(process)
            known.received = joined(known.received, self._implied(process.task, message.log[-1].stop))

    def _implied(self, task: TaskId, offset: int) -> Extent:
        history = self._history[task]
        at = bisect_right(history, offset, key=lambda entry: entry[0])
        return {**(history[at - 1][1] if at else {}), task.log_id: offset}

    def decided(self, instructions: Sequence[JobInstruction], processes: Mapping[int, LocalProcess]) -> None:
        """Checks instructions of the coordinator before they are carried out."""
        replays: dict[TaskId, messages.Replay] = {}
        for instruction in instructions:
            match instruction:
                case StartProcess(number, task, reuse=reuse):
                    self._start_requested(number, task, reuse)
                case Send(number, messages.Promote(restore=restore)):
                    self._chosen[self._started[number]] = number
                    self._points.promoted(self._started[number], restore.checkpoint)
                case Send(number, messages.Replay() as message):
                    self._check_begins(number)
                    replays[self._started[number]] = message
                    self._producer[self._started[number]] = number
                    self._named = max(self._named, *(segment.epoch for segment in message.log), 0)
                case Send(_, messages.TriggerCheckpoint(checkpoint)) if not self._alone:
                    check(checkpoint > self._named, f"checkpoint {checkpoint} is triggered, a log names {self._named}")
                case ReportEvent(event):
                    self._moved_us = self._now_us
                    self._reported(event, processes)
                case _:
                    pass
        for task, message in replays.items() if self._availability else ():
            if message.incarnation.number and message.incarnation.round == message.round:
                self._drop_dependencies_on(task)
        if replays and self._causal:
            self._check_logs(replays, processes)
        if replays and self._plan.rollback:
            if self._alone:
                self._check_all_behind_went_back(replays)
            else:
                self._check_all_went_back(replays)
        if replays:
            restarts = self._points.restart(replays)
            starts = self._starts_at
            fed = {task: starts[number].epoch for task, number in self._chosen.items() if number in starts}
            self.commits.restart({task: max(number, fed.get(task, 0)) for task, number in restarts.items()})
        self._failed -= replays.keys()

    def _start_requested(self, number: int, task: TaskId, reuse: int | None) -> None:
        """Records a requested process. Another coordinator, or another run, may reuse the number of a process that is
        gone."""
        self._started[number] = task
        self._dependencies.pop(number, None)
        self._to_begin.discard(number)
        self._has_begun.discard(number)
        self._reused_by.pop(number, None)
        if reuse is not None:
            self._reused_by[reuse] = number

    def _check_begins(self, number: int) -> None:
        check(
            number not in self._to_begin, f"process {number} is {self._started[number]} already, and is to begin again"
        )
        self._to_begin.add(number)

    def _check_all_went_back(self, replays: Collection[TaskId]) -> None:
        check(not self._failed, f"{self._failed_names} failed, and no rollback followed")
        spared = sorted(set(self._plan.tasks).difference(replays))
        check(not spared, f"the job rolled back without {', '.join(map(str, spared))}")

    def _check_all_behind_went_back(self, replays: Collection[TaskId]) -> None:
        """Checks that all tasks downstream of a failed task went back: they may have taken its frames. Failed tasks
        that do not begin now are left out: if the coordinator that promoted them was lost, they have sent nothing."""
        behind = {task for origin in self._failed.intersection(replays) for task in self._plan.hops[origin]}
        spared = sorted(behind.difference(replays))
        check(not spared, f"{', '.join(map(str, replays))} went back without {', '.join(map(str, spared))}")

    def works(self, process: LocalProcess, processes: Mapping[int, LocalProcess]) -> None:
        """A machine of ``process`` has acted. Raises Violation if another process has replaced it."""
        after = self._reused_by.get(process.number)
        if after in processes:
            raise Violation(
                f"process {process.number}, {process.task}, still works, but process {after} has replaced it"
            )

    def _reported(self, event: CoordinatorEvent, processes: Mapping[int, LocalProcess]) -> None:
        match event:
            case TaskLost(task):
                self._failed.add(task)
            case CheckpointCompleted():
                self._completed()
            case CoordinatorReplaced():
                self._completed()
                self._to_begin &= self._has_begun  # messages of the lost coordinator that have not arrived are void
            case RolledBack(reason=reason):
                self._rolled_back(reason, processes)
            case RestartedWithoutLog(reason=reason):
                self._restarted_without_log(reason, processes)
            case _:
                pass

    def _check_logs(self, replays: Mapping[TaskId, messages.Replay], processes: Mapping[int, LocalProcess]) -> None:
        """Checks that after a round no task depends on a lost part of a log: neither survivors nor replayed logs."""
        ends = {t: m.log[-1].stop if m.log else self._stable[t.log_id] for t, m in replays.items()}
        reach = {task.log_id: end for task, end in ends.items()}
        replaying = [self._replayer(task, end) for task, end in ends.items()]
        for number, process in sorted(processes.items()):
            if process.task in ends and self._chosen.get(process.task) == number and number in self._starts_at:
                extent = self._starts_at[number].extent
                if not self._plan.logged(process.task):
                    extent = _without([process.task.log_id], extent)
                replaying.append(Survivor(process.task, extent, {}, ()))
        lost = orphan(self._plan, reach, self._stable, [*self._survivors(processes, ends), *replaying])
        check(lost is None, f"no rollback, but {lost and lost[0]} depends on a log of {lost and lost[1]} that is lost")
        for task, end in ends.items():
            history = self._history[task]
            del history[bisect_right(history, end, key=lambda entry: entry[0]) :]
            void = [key for key, extent in self._cut[task].items() if extent.get(task.log_id, 0) > end]
            for key in void:  # no survivor has received these frames, and others may be cut in their place
                del self._cut[task][key], self._stamps[task][key]
            if not self._plan.logged(task):
                self._cut[task].clear()  # only its own loop has received these frames, and it does not cut them again

    def _replayer(self, task: TaskId, end: int) -> Survivor:
        """A replacement that replays its log up to ``end``."""
        implied = {log: offset for log, offset in self._implied(task, end).items() if log != task.log_id}
        return Survivor(task, implied, {}, ())

    def _survivors(self, processes: Mapping[int, LocalProcess], failed: Mapping[TaskId, int]) -> list[Survivor]:
        found = []
        for number, process in sorted(processes.items()):
            incarnations = self._owner.get(process.task) == number and process.link.state is not TaskState.FAILED
            if incarnations and process.task not in failed:
                holds = {log: process.link.store.end(log) or 0 for log in self._plan.logs}
                received_from = {
                    c.sender for c in process.link.inputs if c.expectation.checksums or holds[c.sender.log_id]
                }
                found.append(Survivor(process.task, self._of(process).received, holds, received_from))
        return found

    def _rolled_back(self, reason: str, processes: Mapping[int, LocalProcess]) -> None:
        """Checks that a rollback was needed. The coordinator also counts the answers of processes that have died since;
        the checker does not have these answers."""
        self.rollbacks += 1
        check(not self._availability, f"rolled back, though the job prefers availability: {reason}")
        needed = self._unsettled if self._plan.rollback else self._called_for(processes)
        check(needed, f"unnecessary rollback after the failure of {self._failed_names}: {reason}")
        self.restarted()

    @property
    def _unsettled(self) -> bool:
        """Whether a task has failed, or has not begun because the coordinator that promoted it was lost."""
        begun = [task for task, number in self._owner.items() if number in self._has_begun]
        return bool(self._failed) or len(begun) < len(self._plan.tasks)

    def _called_for(self, processes: Mapping[int, LocalProcess]) -> bool:
        """Whether a rollback is justified. Below full depth it also is while a task downstream of a failed one replays:
        such a task may lack logs that its own log depends on."""
        unnoticed = any(owner not in processes and task not in self._failed for task, owner in self._owner.items())
        unsure = self._plan.covered < self._plan.depth and any(
            process.link.state in _RECOVERING and any(process.task in self._plan.hops[task] for task in self._failed)
            for process in processes.values()
            if self._owner.get(process.task) == process.number
        )
        known = self._survivors(processes, {})
        replaying = [self._replayer(task, self._held(task, known)) for task in self._failed]
        return unnoticed or unsure or called_for(self._plan, self._failed, self._stable, [*known, *replaying])

    def _held(self, task: TaskId, survivors: Sequence[Survivor]) -> int:
        """The offset up to which survivors hold the log of a task."""
        return max((survivor.holds.get(task.log_id, 0) for survivor in survivors), default=0)

    @property
    def _failed_names(self) -> str:
        return ", ".join(map(str, sorted(self._failed))) or "no task"

    def _restarted_without_log(self, reason: str, processes: Mapping[int, LocalProcess]) -> None:
        """Checks that a restart without log was needed."""
        self.restarts_without_log += 1
        needed = self._restarted_at == self._checkpoint or self._called_for(processes)
        check(needed, f"unnecessary restart without log after the failure of {self._failed_names}: {reason}")
        self._restarted_at = self._checkpoint

    def _drop_dependencies_on(self, task: TaskId) -> None:
        """A task restarts without its log: the former log is void, and no task depends on it any more. The task sends
        its frames again, so downstream tasks do not depend on the dependencies of the former frames either."""
        through = {origin.log_id for origin in self._plan.origins[task]}
        after = self._plan.hops[task]

        def left(owner: TaskId, extent: Extent) -> Extent:
            return _without(through if owner in after else {task.log_id}, extent)

        self._history[task].clear()
        self._cut[task].clear()
        self._stamps[task].clear()
        for process, known in self._dependencies.items():
            without = partial(left, self._started[process])
            known.received, known.used = without(known.received), without(known.used)
            for index, waiting in enumerate(known.waiting):
                known.waiting[index] = deque((seq, without(extent)) for seq, extent in waiting)
        self._in_transit = {key: (sender, left(sender, extent)) for key, (sender, extent) in self._in_transit.items()}
        for other in after:
            self._history[other] = [(offset, left(other, extent)) for offset, extent in self._history[other]]
            self._cut[other] = {key: left(other, extent) for key, extent in self._cut[other].items()}

    # ---- checkpoints

    def _completed(self) -> None:
        """A manifest is written: updates restart points and stable offsets. Tasks that go on from one of other tasks
        begin new logs."""
        manifest = self._latest()
        self._checkpoint = manifest.checkpoint if manifest else 0
        if manifest is not None and not same_shape(manifest, self._plan):
            self._epochs = dict.fromkeys(self._plan.tasks, manifest.checkpoint)
            return
        if manifest is not None:
            self._points.adopted(manifest)
        for handle in manifest.tasks if manifest else ():
            progress = progress_of(handle)
            self._progress[handle.task] = progress
            self._epochs[handle.task] = handle.checkpoint
            self._stable[handle.task.log_id] = progress.log_offset

    def _dropped(self, process: LocalProcess, checkpoint: int) -> None:
        """Checks that a process has dropped the data from before the barrier of a completed checkpoint."""
        link = process.link
        last = self._epochs.get(process.task, self._checkpoint)
        if checkpoint != last or link.state not in (TaskState.RUNNING, TaskState.FINISHED):
            return
        if process.task not in self._progress:
            return  # the checkpoint is of other tasks, and this one has not been in any yet
        self._bounds.dropped(process, checkpoint, self._progress[process.task])

    def restarted(self) -> None:
        """All tasks begin again at the last checkpoint, without dependencies."""
        self._completed()
        self._dependencies.clear()
        self._in_transit.clear()
        self._owner.clear()
        self._producer.clear()
        self._failed.clear()
        self._restarted_at, self._named = -1, 0
        for task in self._plan.tasks:
            self._history[task].clear()
            self._cut[task].clear()
            self._stamps[task].clear()
