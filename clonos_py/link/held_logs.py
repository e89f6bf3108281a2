"""The logs that a process holds, its own and those of upstream tasks, and which of them may be incomplete (D6, D10).

A process that replaces a failed task holds no logs at first. Until it has caught up, it does not count as a holder of
the logs that its predecessor held. Its own log comes from the coordinator; upstream logs come with the first frame of
every connection. Each frame names the logs that its sender itself lacks. In a loop the log of each task depends on the
logs of the others. So a task of a loop gets all upstream logs from the coordinator, to which all survivors send what
they hold.

With full depth, snapshots and frames bring all determinants that they depend on. So only the log that the coordinator
sends can depend on logs that the process lacks: it lacks none before it has that log, nor once it has replayed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import FrameBatch, InputOrder
from clonos_py.causal.log import CausalStore
from clonos_py.channel.frames import FrameHeader, FrameKind
from clonos_py.link.receiving import InputChannel
from clonos_py.model.ids import Attempt, LogId, TaskId
from clonos_py.model.messages import HeldLogsReport, Replay, Sever
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.segments import Incarnation, LogSegment, Reach


def shared_logs(plan: PhysicalPlan, task: TaskId, receiver: TaskId) -> frozenset[LogId]:
    """The logs that ``task`` sends to ``receiver``: its own and upstream ones within the sharing depth, counted along
    the shortest path (D6)."""
    if not plan.gaps and plan.covered == 0:
        return frozenset()
    return frozenset(origin.log_id for origin in plan.origins[task] if plan.shares(origin, receiver))


class HeldLogs:
    """The logs of one link. ``store.incomplete`` is kept up to date for outgoing frames."""

    def __init__(self, plan: PhysicalPlan, task: TaskId, inputs: Sequence[InputChannel]) -> None:
        self.store = CausalStore(plan.logs)
        self._plan, self._task, self._inputs = plan, task, inputs
        self._own = task.log_id
        self._full_depth = plan.covered >= plan.depth
        self._incomplete: list[set[LogId]] = [set() for _ in inputs]
        self._received: list[set[LogId]] = [set() for _ in inputs]
        """By input: the logs of which anything has arrived on it since the restart point."""
        shared = [shared_logs(plan, channel.sender, task) for channel in inputs]
        paths = Counter(log for logs in shared for log in logs)
        self._several = [sorted(log for log in logs if paths[log] > 1) for logs in shared]
        self._acknowledged = [self._unacknowledged(index) for index in range(len(inputs))]
        self._replayed: Sequence[LogSegment] = ()
        """The log that the process replays or has replayed, until a checkpoint covers it."""
        self._named: set[int] | None = set()
        """The inputs of which that log names frames; None: it was not decoded yet, which takes time that a replacement
        does not have."""
        self._needed: Mapping[LogId, int] = {}
        self._has_own_log = True
        self.incarnation = Incarnation()
        """The incarnation of the task's own log."""

    def become(self, attempt: Attempt) -> None:
        """This process becomes ``attempt`` of its task. Unless it is the first, it may lack its predecessor's logs."""
        if attempt.counter > 1:
            self._has_own_log = False
            self._incomplete = [set(shared_logs(self._plan, channel.sender, self._task)) for channel in self._inputs]
            self._update_incomplete()

    def restore(self, logs: Sequence[LogSegment]) -> None:
        """Takes the determinants of upstream tasks that the restored state depends on (E8)."""
        for segment in logs:
            self.store.append(segment)
        held = {segment.log for segment in logs}
        for index, channel in enumerate(self._inputs):
            self._received[index] |= held & shared_logs(self._plan, channel.sender, self._task)

    def fed(self) -> None:
        """The restored state is that of a feed, with which the determinants came that it depends on."""
        for index, channel in enumerate(self._inputs):
            shared = shared_logs(self._plan, channel.sender, self._task)
            self._received[index] |= {log for log in shared if self.store.end(log) is not None}

    def to_store(self) -> list[LogSegment] | None:
        """The logs that a snapshot has to store; None if some of them may be incomplete."""
        if self.store.incomplete:
            return None
        return [s for log in self._plan.logs if log != self._own for s in self.store.of(log)]

    def replay(self, message: Replay) -> None:
        """Takes the logs that the coordinator has merged."""
        self._has_own_log, self.incarnation = True, message.incarnation
        self.store.extend(message.upstream)
        self.store.extend(message.log)
        self._replayed, self._named, self._needed = message.log, None, message.needs
        for incomplete in self._incomplete:
            incomplete.difference_update(message.complete)
        self._update_incomplete()
        if not message.log:
            self.replayed()

    def _named_inputs(self) -> set[int]:
        """The inputs of which the log that is replayed, or was since the last checkpoint, names frames."""
        if self._named is None:
            codec, log = LogCodec(), self._replayed if self._inputs else ()
            logged = (d for segment in log for d in codec.load(segment))
            self._named = {d.channel for d in logged if isinstance(d, InputOrder | FrameBatch)}
        return self._named

    def _is_upstream(self, log: LogId) -> bool:
        """Whether anything of a log has arrived, on any path, with the frames that the replayed log names."""
        origin = self._plan.logs[log]
        senders = {self._inputs[index].sender for index in self._named_inputs()}
        return origin in senders or not senders.isdisjoint(self._plan.hops[origin])

    def take(self, index: int, header: FrameHeader) -> None:
        """Takes the marks and the delta that arrived with a frame of input ``index``."""
        if header.kind is FrameKind.LOG_ONLY:
            self._acknowledged[index] = self._unacknowledged(index)
        for mark in header.marks:
            self.store.mark(mark)
        for segment in header.delta:
            self.store.append(segment)
            self._received[index].add(segment.log)
        if self._incomplete[index]:
            self._incomplete[index].intersection_update(header.incomplete)
            self._update_incomplete()

    def unacknowledged(self, index: int) -> list[Reach]:
        """The logs that others than the sender of an input have sent; only those that were not acknowledged yet."""
        known = self._acknowledged[index]
        found = [reach for log in self._several[index] if (reach := self.store.reach(log)) > known[log]]
        known.update((reach.log, reach) for reach in found)
        return found

    @property
    def restarted_without_log(self) -> int:
        """The checkpoint from which the task last restarted without its log; -1: it has not."""
        return self.incarnation.checkpoint if self.incarnation.number else -1

    def numbered(self, segment: LogSegment) -> LogSegment:
        """What the task has logged, with the number of its incarnation."""
        number = self.incarnation.number
        return msgspec.structs.replace(segment, incarnation=number) if number else segment

    def replayed(self) -> None:
        """The log is replayed: the frames that it names have arrived again, with the determinants they depend on. Below
        full depth, receivers may depend on logs that only the predecessor has held, until they arrive here, too."""
        self._needed = {}
        if self._full_depth:
            self._clear_incomplete()

    def complete(self) -> None:
        """A checkpoint is complete that this process has taken a snapshot for. Logs that it lacked before that do not
        matter any more."""
        self._drop_stable()
        self._replayed, self._named, self._needed = (), set(), {}
        self._clear_incomplete()

    def _clear_incomplete(self) -> None:
        if self.store.incomplete:
            self._incomplete = [set() for _ in self._inputs]
            self._update_incomplete()

    def _drop_stable(self) -> None:
        """Drops checksums of frames from before a sender's restart point: these are not rebuilt."""
        for channel in self._inputs:
            channel.drop_before(self.store.stable(channel.sender.log_id))

    def _unacknowledged(self, index: int) -> dict[LogId, Reach]:
        """On a new connection, the sender has no record of what its receiver holds."""
        return {log: Reach(log, 0, 0) for log in self._several[index]}

    def _update_incomplete(self) -> None:
        own = set() if self._has_own_log else {self._own}
        self.store.incomplete = tuple(sorted(own.union(*self._incomplete)))

    def answer(self, process: int, message: Sever) -> HeldLogsReport:
        """The report that the coordinator needs to recover the failed tasks."""
        self._drop_stable()
        plan, failed = self._plan, {task for task, _ in message.attempts}
        of_failed = {task.log_id for task in failed}
        upstream = [log for log, origin in plan.logs.items() if not failed.isdisjoint(plan.hops[origin])]
        acquired = self._task in failed and not self._has_own_log and self.store.end(self._own) is not None
        reached = {task for task in failed if self._task in plan.hops[task] or (acquired and task == self._task)}
        in_loop = any(plan.loop_of(task) is not None for task in failed)
        behind = [log for log in upstream if in_loop or not reached.isdisjoint(plan.hops[plan.logs[log]])]
        return HeldLogsReport(
            process,
            message.round,
            [segment for log in plan.logs if log in of_failed or log in behind for segment in self.store.of(log)],
            [c.expectation for c in self._inputs if c.sender in failed and not c.renumbers],
            depends=[channel.index for channel in self._inputs if self._has_received(channel)],
            logs_received={c.index: sorted(held) for c in self._inputs if (held := self._held_from(c.index))},
            replayed=sorted(self._named_inputs()),
            incomplete={index: sorted(incomplete) for index, incomplete in enumerate(self._incomplete) if incomplete},
            has_own_log=self._has_own_log,
            ends={log: end for log in upstream if log not in of_failed and (end := self.store.end(log)) is not None},
            whole=[log for log in behind if self._holds_all(log, acquired)],
            needs={log: end for log, end in self._needed.items() if self._is_upstream(log)},
            own=self._own if in_loop and self._own in behind and self._own not in of_failed else None,
            incarnations=self.store.incarnations,
        )

    def _holds_all(self, log: LogId, acquired: bool) -> bool:
        """Whether all of a log is held that the other held logs depend on. An output that was ``acquired`` has all that
        the task's log there depends on, though perhaps not all that the task had received. With full depth, a snapshot
        and each sender bring logs together with all that they depend on: only its own log can lack something."""
        if not self._plan.shares(self._plan.logs[log], self._task):
            return False
        if self._full_depth and not self._has_own_log:
            return acquired or log != self._own
        return acquired or log not in self.store.incomplete

    def _has_received(self, channel: InputChannel) -> bool:
        """A process that holds a log depends on it: if it is the only holder, the log is replayed for that reason."""
        return channel.has_received or channel.sender.log_id in self._held_from(channel.index)

    def _held_from(self, index: int) -> set[LogId]:
        """The held logs of which anything has arrived on an input, without those that may be incomplete there."""
        arrived = {self._inputs[index].sender.log_id, *self._received[index]}
        return {log for log in arrived - self._incomplete[index] if self.store.end(log) is not None}
