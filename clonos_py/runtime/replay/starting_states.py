"""From where the tasks of changed code start: from the snapshots of the recorded ones (F3).

State belongs to the operator with its name, and must mean the same there. Operators that the record does not have start
empty. Tasks also have the progress of the recorded ones: watermarks, timers and the size of frames.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from clonos_py.channel.frames import Frame
from clonos_py.checkpoint.store import SnapshotStore
from clonos_py.job.state_mapping import SINK, definitions_of, kinds_of, operators_of
from clonos_py.model.errors import RecordError
from clonos_py.model.ids import ChannelId, TaskId
from clonos_py.model.plan import PhysicalPlan, Vertex
from clonos_py.model.snapshots import Manifest, OperatorHandle
from clonos_py.model.state import OperatorState
from clonos_py.model.state_definitions import differences
from clonos_py.model.times import MIN_TIME
from clonos_py.process.contract import ORDER_TABLE, InputProgress, RestoreState, SnapshotTaken, TaskProgress
from clonos_py.process.progress import decoded
from clonos_py.runtime.replay.correspondence import Correspondence, recorded_vertex
from clonos_py.runtime.replay.interval import RecordedTask

_FROM_THE_BEGINNING = "begin at the beginning of the job (--checkpoint 0)"


class _Known(NamedTuple):
    """What the record has of an operator. ``timers``: when they fire, and the time that was left."""

    watermark: int
    received: int
    timers: list[tuple[int, int]]


class StartingStates:
    """From where the tasks of the changed job start: from the snapshots of the recorded ones."""

    def __init__(
        self,
        plans: tuple[PhysicalPlan, PhysicalPlan],
        tasks: Mapping[TaskId, RecordedTask],
        first: Manifest | None,
        store: SnapshotStore,
        dropped: Collection[str] = (),
    ) -> None:
        """``plans``: of the recorded and of the changed job. ``first``: the checkpoint at which the interval begins;
        None: the beginning of the job. Raises RecordError if state means something else in the changed job, or if
        an operator of ``dropped`` is in neither."""
        self._recorded_plan, self._plan = plans
        self._tasks, self._first, self._store, self._dropped = tasks, first, store, frozenset(dropped)
        for name in sorted(self._dropped - {name for each in plans for name in operators_of(each)}):
            had = ", ".join(operators_of(self._recorded_plan))
            raise RecordError(f"--drop-state {name}: neither the recorded nor the changed job has it: there was {had}")
        self._like = Correspondence(*plans)
        self._same_shape = _shape(self._recorded_plan) == _shape(self._plan)
        self.empty: list[str] = []
        """The operators with state that the recorded job does not have, and that start in the middle of the job."""
        if first is not None:
            self._check(first)
            known = operators_of(self._recorded_plan)
            self.empty = [
                name for name in kinds_of(self._plan) if name not in known and kinds_of(self._plan)[name] != SINK
            ]

    @property
    def _kinds(self) -> dict[str, str]:
        """By name: the kind of each operator of the record with state, without sinks."""
        return {name: kind for name, kind in kinds_of(self._recorded_plan).items() if kind != SINK}

    def _check(self, manifest: Manifest) -> None:
        number, now = manifest.checkpoint, kinds_of(self._plan)
        stored: dict[str, Counter[str]] = {}
        for task in self._tasks.values():
            for name, handles in task.start.operators.items():
                for handle in handles:
                    if ORDER_TABLE in handle.tables:
                        raise RecordError(
                            f"checkpoint {number} has the state of {name!r} in parts, from which only the recorded "
                            f"code can start: {_FROM_THE_BEGINNING}"
                        )
                    rows = {table: sum(chunk.rows for chunk in chunks) for table, chunks in handle.tables.items()}
                    stored.setdefault(name, Counter()).update(rows)
        for name in self._kinds:
            if any(stored.get(name, {}).values()) and name not in now and name not in self._dropped:
                raise RecordError(
                    f"checkpoint {number} has state of {name!r}, which the changed job does not have: "
                    f"{self._remedies(name)}"
                )
        changed = definitions_of(self._plan)
        for name, definition in manifest.definitions.items():
            if name not in changed or name in self._dropped or name not in self._kinds:
                continue
            if found := list(differences(definition, changed[name], stored.get(name, {}))):
                raise RecordError(
                    f"checkpoint {number} has state of {name!r} under another definition ({'; '.join(found)}): "
                    f"{self._remedies(name)}"
                )
        if self._same_shape:
            return
        if not manifest.coordinated:
            raise RecordError(
                f"the snapshots of protocol {manifest.protocol} fit together only in a job with the same operators, "
                f"and the changed job has others: {_FROM_THE_BEGINNING}"
            )
        if any(part.rows for task in self._tasks.values() for parts in task.start.frames.values() for part in parts):
            raise RecordError(
                f"checkpoint {number} has rows in flight between tasks, and the changed job has other tasks: "
                f"{_FROM_THE_BEGINNING}"
            )

    def _remedies(self, name: str) -> str:
        return f"{_FROM_THE_BEGINNING}, or add --drop-state {name} to start without it"

    def of_tasks(self) -> dict[TaskId, RestoreState | None]:
        """By task of the changed job: its state; None: it starts empty."""
        if self._first is None:
            return dict.fromkeys(self._plan.tasks)
        return {task: self._of(task) for task in self._plan.tasks}

    def _of(self, task: TaskId) -> RestoreState | None:
        vertex = self._plan.by_name[task.vertex]
        if self._same_shape:
            start = self._tasks[task].start
            if not start.checkpoint:
                return None
            progress = decoded(start.progress) if start.progress is not None else None
            states = {name: [self._store.read(h) for h in handles] for name, handles in start.operators.items()}
            return RestoreState(start.checkpoint, self._kept(vertex, states), progress, closed=start.closed)
        assert self._first is not None
        states = {}
        for name in (*(o.name for o in vertex.operators), *([vertex.source.name] if vertex.source else ())):
            parts = [h for found in self._tasks.values() for h in found.start.operators.get(name, ())]
            if parts:
                states[name] = [self._store.read(handle) for handle in _distinct(parts)]
        closed = next(iter(self._tasks.values())).start.closed
        progress = self._progress(task)
        return RestoreState(self._first.checkpoint, self._kept(vertex, states), progress, closed=closed)

    def _progress(self, task: TaskId) -> TaskProgress | None:
        """The progress of a task with other operators than the recorded one: what is known of each operator and channel
        by its name. None if nothing is."""
        leader = self._like.leader_of(task)
        start = self._tasks[leader].start if leader is not None else None
        if start is None or start.progress is None:
            return None
        led, vertex = decoded(start.progress), self._plan.by_name[task.vertex]
        if led.ended >= 0:
            return None
        operators = [self._of_operator(operator.name, task.index, led) for operator in vertex.operators]
        timers = sorted((at, n, left) for n, known in enumerate(operators) for at, left in known.timers)
        edges = [edge.id for edge in self._plan.edges if edge.source == task.vertex]
        return TaskProgress(
            inputs=[self._input(task, number) for number in range(len(self._plan.inputs[task]))],
            outputs=[0] * len(self._plan.outputs[task]),
            round_robin=[0] * len(edges),
            edge_watermarks=[MIN_TIME] * len(edges),
            idle=led.idle,
            log_offset=0,
            watermarks=[led.watermarks[0], *(known.watermark for known in operators)],
            received=[known.received for known in operators],
            timers=[(at, number) for at, number, _ in timers],
            timers_left_us=[left for _, _, left in timers],
            partitions=led.partitions,
            frame_rows=[self._frame_rows(channel, led) for channel in self._plan.outputs[task]],
        )

    def _of_operator(self, name: str, index: int, led: TaskProgress) -> _Known:
        """What is known of an operator. A new one passes on what its task has reached."""
        vertex = recorded_vertex(self._recorded_plan, name)
        recorded = self._tasks.get(TaskId(vertex.name, index)) if vertex is not None else None
        if vertex is None or recorded is None or recorded.start.progress is None:
            return _Known(led.watermarks[0], led.watermarks[0], [])
        progress = decoded(recorded.start.progress)
        number = [operator.name for operator in vertex.operators].index(name)
        timers = zip(progress.timers, progress.timers_left_us, strict=True)
        own = [(at, left) for (at, operator), left in timers if operator == number]
        return _Known(progress.watermarks[number + 1], progress.received[number], own)

    def _input(self, task: TaskId, number: int) -> InputProgress:
        place = self._like.recorded_input(task, number)
        progress = self._tasks[place[0]].start.progress if place is not None else None
        if place is None or progress is None:
            return InputProgress()
        return msgspec.structs.replace(decoded(progress).inputs[place[1]], next_seq=0)

    def _frame_rows(self, channel: ChannelId, led: TaskProgress) -> int:
        """The size of frames on an output channel: as on the one that it corresponds to."""
        receiver = self._plan.receiver(channel)
        place = self._like.recorded_input(receiver, self._plan.inputs[receiver].index(channel))
        if place is None or not led.frame_rows:
            return self._plan.edges[channel.edge].frame_rows
        own = self._recorded_plan.inputs[place[0]][place[1]]
        return led.frame_rows[self._recorded_plan.outputs[self._recorded_plan.sender(own)].index(own)]

    def _kept(
        self, vertex: Vertex, states: Mapping[str, Sequence[OperatorState]]
    ) -> dict[str, Sequence[OperatorState]]:
        sinks = {operator.name for operator in vertex.operators if operator.sink}
        return {name: parts for name, parts in states.items() if name not in sinks and name not in self._dropped}


@dataclass(frozen=True)
class Carried:
    """What the changed job hands on to the next run of the job, which began with checkpoint ``checkpoint``. ``frames``:
    those that were in flight, by input channel."""

    plan: PhysicalPlan
    checkpoint: int
    snapshots: Mapping[TaskId, SnapshotTaken]
    frames: Mapping[tuple[TaskId, int], Sequence[Frame]]

    def states(self, plan: PhysicalPlan, tasks: Mapping[TaskId, RecordedTask]) -> dict[TaskId, RestoreState | None]:
        """By task of the next run: its state. ``tasks``: the recorded ones. As there, tasks keep their progress only if
        they are the same. Raises RecordError if other tasks would get frames that were in flight."""
        starts = [recorded.start for recorded in tasks.values()]
        closed = next(iter(starts)).closed
        if _shape(self.plan) == _shape(plan) and all(start.progress is not None for start in starts):
            return {
                task: RestoreState(self.checkpoint, _each(taken.snapshot.operators), taken.progress, closed=closed)
                for task, taken in self.snapshots.items()
            }
        if any(frame.rows is not None for frames in self.frames.values() for frame in frames):
            raise RecordError(
                f"rows are in flight at checkpoint {self.checkpoint}, where the job went on with other tasks: compare "
                "the runs before and after it one at a time"
            )
        parts: dict[str, list[OperatorState]] = {}
        for taken in self.snapshots.values():
            for name, state in taken.snapshot.operators.items():
                parts.setdefault(name, []).append(state)
        found = {task: _of(plan.by_name[task.vertex], parts) for task in plan.tasks}
        return {task: RestoreState(self.checkpoint, states, None, closed=closed) for task, states in found.items()}


def _each(states: Mapping[str, OperatorState]) -> dict[str, Sequence[OperatorState]]:
    return {name: [state] for name, state in states.items()}


def _of(vertex: Vertex, parts: Mapping[str, Sequence[OperatorState]]) -> dict[str, Sequence[OperatorState]]:
    """Those of the operators of a vertex, without sinks."""
    names = [operator.name for operator in vertex.operators if not operator.sink]
    names += [vertex.source.name] if vertex.source is not None else []
    return {name: parts[name] for name in names if name in parts}


def _distinct(parts: Sequence[OperatorHandle]) -> list[OperatorHandle]:
    """Each once: at a new parallelism every task gets the snapshots of all former ones."""
    found = {id(part): part for part in parts}
    return list(found.values())


def _shape(found: PhysicalPlan) -> tuple[object, ...]:
    """What must be equal so that tasks can use each other's progress."""
    return list(operators_of(found).items()), {v.name: v.parallelism for v in found.vertices}
