"""Checks from outside the snapshots from which tasks restart, and the stored frames (E3, E7, E9).

For snapshots that tasks take alone it records, when a task takes one, the frames that the task has taken and sent.
Manifests say which snapshots count. The checker computes the recovery line from its definition, not with the engine's
algorithm.

Each broken promise raises a ``Violation``:
- the snapshots of a coordinated checkpoint fit: no receiver has taken a frame that its sender is still to send, and the
  frames between the two are stored with the sender's snapshot;
- if tasks take snapshots alone, a manifest names only snapshots that a task has taken and no restart has undone;
- without logging, the snapshots from which tasks restart together fit: no receiver has taken a frame that its sender is
  still to send; and no newer snapshots of these tasks fit;
- the frames between a snapshot and any snapshot from which a receiver may restart are stored with the snapshot, and the
  sender's process retains them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest, StoredFrames, TaskHandle
from clonos_py.process.contract import TaskProgress
from clonos_py.process.progress import progress_of
from clonos_py.runtime.sim.violation import Violation, check
from clonos_py.runtime.world.processes import LocalProcess


class Passed(NamedTuple):
    """The progress of a task at a snapshot: the number of frames taken of each input and sent to each output."""

    taken: Sequence[int]
    sent: Sequence[int]


class ChannelEnds(NamedTuple):
    """A channel, by its two ends."""

    sender: TaskId
    output: int
    receiver: TaskId
    input: int


Snapshots = Mapping[TaskId, Mapping[int, Passed]]
"""By task and number of the snapshot."""


def newest_that_fit(snapshots: Snapshots, channels: Collection[ChannelEnds]) -> dict[TaskId, int]:
    """By task: the newest snapshot on the recovery line. A snapshot is removed if it has taken more frames than any
    remaining snapshot of the sender had sent: then it fits none. The newest remaining snapshots fit each other, because
    a task's newer snapshots have sent no less. Raises Violation if no snapshot of a task remains."""
    left = {task: dict(found) for task, found in snapshots.items()}
    complete = False
    while not complete:
        complete = True
        for ends in channels:
            receivers = left[ends.receiver]
            sent = max((passed.sent[ends.output] for passed in left[ends.sender].values()), default=-1)
            for number in [number for number, passed in receivers.items() if passed.taken[ends.input] > sent]:
                del receivers[number]
                complete = False
    for task, found in left.items():
        check(bool(found), f"no snapshot of {task} fits those of the others")
    return {task: max(found) for task, found in left.items()}


class LinePoints:
    """The snapshots from which the tasks of one job may restart, over all its runs."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self._alone = not plan.protocol.coordinated
        self._goes_back = self._alone and plan.rollback
        self._channels = [
            ChannelEnds(task, output, plan.receiver(channel), plan.inputs[plan.receiver(channel)].index(channel))
            for task, channels in plan.outputs.items()
            for output, channel in enumerate(channels)
        ]
        self._channels_from: dict[TaskId, list[ChannelEnds]] = {task: [] for task in plan.tasks}
        for ends in self._channels:
            self._channels_from[ends.sender].append(ends)
        starts = {task: Passed([0] * len(plan.inputs[task]), [0] * len(plan.outputs[task])) for task in plan.tasks}
        self._taken = {task: {0: start} for task, start in starts.items()}
        """By task and number: all snapshots from the restart point on that are durable or may become durable."""
        self._adopted = {task: {0: start} for task, start in starts.items()}
        """The subset that manifests have named. Number 0 is the start."""
        self._restores: dict[TaskId, int] = {}
        self.safe: dict[TaskId, int] = dict.fromkeys(plan.tasks, 0)
        """By task: the oldest snapshot from which it may restart."""

    # ---- snapshots

    def took(self, task: TaskId, number: int, progress: TaskProgress) -> None:
        """A task has taken a snapshot that will be made durable."""
        if self._alone:
            self._taken[task][number] = _passed(progress)

    def adopted(self, manifest: Manifest) -> None:
        """A new manifest is written: checks it, and moves the restart points."""
        if not self._alone:
            self._check_cut(manifest)
            self.safe.update((handle.task, handle.checkpoint) for handle in manifest.tasks)
            return
        new = [handle for handle in manifest.handles if self._is_new(handle)]
        for handle in new:
            passed = self._taken[handle.task].get(handle.checkpoint)
            if passed is None:
                raise Violation(f"a manifest names {_name(handle)}, which was undone or never taken")
            self._adopted[handle.task][handle.checkpoint] = passed
        if new:
            self._move_on()
        for handle in new:
            self._check_stored(handle)

    def _check_cut(self, manifest: Manifest) -> None:
        """Checks that the snapshots of a coordinated checkpoint fit. A receiver that has received no frame since its
        sender restarted without log has no number yet (-1)."""
        passed = {handle.task: _passed(progress_of(handle)) for handle in manifest.tasks}
        for handle in manifest.tasks:
            for ends in self._channels_from[handle.task]:
                taken, sent = passed[ends.receiver].taken[ends.input], passed[ends.sender].sent[ends.output]
                check(
                    taken < 0 or taken <= sent <= _first_missing(handle.frames.get(ends.output, ()), taken),
                    f"checkpoint {manifest.checkpoint}: {ends.receiver} has taken the frames of {ends.sender} below "
                    f"{taken}, which has sent those below {sent}",
                )

    def _is_new(self, handle: TaskHandle) -> bool:
        return handle.checkpoint > self.safe[handle.task] and handle.checkpoint not in self._adopted[handle.task]

    def _move_on(self) -> None:
        if self._goes_back:
            self.safe = newest_that_fit(self._adopted, self._channels)
        else:
            self.safe = {task: max(found) for task, found in self._adopted.items()}
        for task, oldest in self.safe.items():
            for found in (self._taken[task], self._adopted[task]):
                for number in [number for number in found if number < oldest]:
                    del found[number]

    # ---- restarts

    def promoted(self, task: TaskId, number: int) -> None:
        """A process is promoted, to restart from this snapshot."""
        self._restores[task] = number

    def restart(self, tasks: Iterable[TaskId]) -> dict[TaskId, int]:
        """Tasks restart together. Returns their snapshots, by task. Later snapshots of these tasks are undone."""
        restores = {task: self._restores[task] for task in tasks}
        if self._goes_back:
            self._check_fitting(restores)
        for task, number in restores.items() if self._alone else ():
            for found in (self._taken[task], self._adopted[task]):
                for undone in [later for later in found if later > number]:
                    del found[undone]
        return restores

    def _check_fitting(self, restores: Mapping[TaskId, int]) -> None:
        chosen = {}
        for task, number in restores.items():
            passed = self._adopted[task].get(number)
            if passed is None:
                raise Violation(f"{task} restarts from snapshot {number}, which is none that counts")
            chosen[task] = passed
        channels = [ends for ends in self._channels if ends.sender in restores and ends.receiver in restores]
        for ends in channels:
            taken, sent = chosen[ends.receiver].taken[ends.input], chosen[ends.sender].sent[ends.output]
            if taken > sent:
                raise Violation(
                    f"{ends.receiver} restarts from snapshot {restores[ends.receiver]} with frame {taken - 1} of "
                    f"{ends.sender}, which restarts from snapshot {restores[ends.sender]} and is to send {sent} next"
                )
        for task, newest in newest_that_fit({task: self._adopted[task] for task in restores}, channels).items():
            number = restores[task]
            check(number == newest, f"{task} restarts from snapshot {number}, the newest that fits is {newest}")

    # ---- frames between

    def _needed(self, ends: ChannelEnds) -> int:
        """The first frame that the receiver may request."""
        return self._adopted[ends.receiver][self.safe[ends.receiver]].taken[ends.input]

    def _check_stored(self, handle: TaskHandle) -> None:
        passed = self._adopted[handle.task].get(handle.checkpoint)
        if passed is None:
            return  # the recovery line is past this snapshot already
        for ends in self._channels_from[handle.task]:
            start, stop = self._needed(ends), passed.sent[ends.output]
            missing = _first_missing(handle.frames.get(ends.output, ()), start)
            if missing < stop:
                raise Violation(
                    f"{_name(handle)} lacks frame {missing} for {ends.receiver}, which may request [{start}, {stop})"
                )

    def check_retained(self, process: LocalProcess, connection: int) -> None:
        """Checks that the active process retains the frames of a connection that the receiver may request."""
        for output in process.link.outputs:
            if output.connection == connection:
                ends = self._channels_from[process.task][output.index]
                needed = self._needed(ends)
                if output.frames.first > needed:
                    raise Violation(
                        f"{process.task} retains frames for {ends.receiver} from {output.frames.first} on, which may "
                        f"request {needed}"
                    )


def _first_missing(stored: Iterable[StoredFrames], start: int) -> int:
    """The first frame from ``start`` on that is not stored."""
    for run in sorted(stored, key=lambda run: run.start):
        if run.start > start:
            break
        start = max(start, run.stop)
    return start


def _passed(progress: TaskProgress) -> Passed:
    return Passed(progress.covered, list(progress.outputs))


def _name(handle: TaskHandle) -> str:
    return f"snapshot {handle.checkpoint} of {handle.task}"
