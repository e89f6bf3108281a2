"""A coordinator on a stage: the test plays the processes and the storage, and examines the messages to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from clonos_py.job.checkpointing import JobSide
from clonos_py.job.events import JobInstruction, JobPolicy, ReportEvent, Send, StartProcess
from clonos_py.job.machine import JobMachine
from clonos_py.job.states import JobState
from clonos_py.model.coordinator_events import CoordinatorEvent
from clonos_py.model.ids import Attempt, LogId, TaskId
from clonos_py.model.messages import (
    Committed,
    Drained,
    HeldLogsReport,
    Promote,
    Sever,
    Snapshotted,
    Started,
)
from clonos_py.model.operators import EventTime, Operator, Source
from clonos_py.model.plan import Edge, OperatorPlan, Partitioning, PhysicalPlan, SourcePlan, Vertex
from clonos_py.model.snapshots import Manifest, TaskHandle
from clonos_py.protocols.known import protocol_of
from clonos_py.settings.protocols import ALIGNED
from tests.witness import NUMBERS

M = TypeVar("M")

SOURCE, MIDDLE, SINK = TaskId("source", 0), TaskId("middle", 0), TaskId("sink", 0)
SECOND_US = 1_000_000


def chain(sharing_depth: int = -1) -> PhysicalPlan:
    """source -> middle -> sink, one task and one standby each."""
    source = SourcePlan("source", Source, (NUMBERS,), EventTime((None,)))
    vertices = (
        Vertex("source", 1, source, (), ()),
        Vertex("middle", 1, None, (OperatorPlan("middle", "map", Operator, (NUMBERS,)),), ()),
        Vertex("sink", 1, None, (OperatorPlan("sink", "sink", Operator, (), sink=True),), ()),
    )
    edges = (
        Edge(0, "source", -1, 0, "middle", 0, 0, Partitioning.FORWARD, (), NUMBERS),
        Edge(1, "middle", 0, 0, "sink", 0, 0, Partitioning.FORWARD, (), NUMBERS),
    )
    return PhysicalPlan("stage", vertices, edges, sharing_depth=sharing_depth, protocol=ALIGNED)


class Stage:
    """``instructions`` holds all instructions so far; ``say`` returns those caused by one event."""

    def __init__(
        self,
        plan: PhysicalPlan | None = None,
        policy: JobPolicy | None = None,
        manifest: Manifest | None = None,
        code_digest: str = "",
        generation: int = 1,
        roster: Mapping[int, TaskId] | None = None,
        checkpointing: JobSide | None = None,
    ) -> None:
        """With a ``roster`` the coordinator takes the place of a lost one. ``checkpointing``: instead of that of the
        plan's protocol."""
        plan = plan or chain()
        side = checkpointing or protocol_of(plan).job
        self.machine = JobMachine(plan, policy or JobPolicy(), side, manifest, generation, code_digest)
        self.now_us = 0
        self.instructions: list[JobInstruction] = []
        self.attempts: dict[TaskId, tuple[int, Attempt]] = {}
        self._up: set[int] = set()
        self._roster = dict(roster or {})
        self._note(self.machine.start(0) if roster is None else self.machine.take_over(roster, 0))

    def _note(self, instructions: list[JobInstruction]) -> list[JobInstruction]:
        self.instructions += instructions
        tasks = {**self._roster, **{i.process: i.task for i in self.instructions if isinstance(i, StartProcess)}}
        for process, promote in sent(instructions, Promote):
            self.attempts[tasks[process]] = (process, promote.attempt)
        return instructions

    def say(self, event: Any) -> list[JobInstruction]:
        return self._note(self.machine.handle(event, self.now_us))

    def wait(self, duration_us: int) -> list[JobInstruction]:
        """Time passes; the coordinator's tick is called whenever it is due, and at the end."""
        since, end_us = len(self.instructions), self.now_us + duration_us
        while self.machine.wake_us < end_us and self.machine.state is not JobState.ENDED:
            self.now_us = max(self.now_us + 1, self.machine.wake_us)
            self._note(self.machine.tick(self.now_us))
        return self.instructions[since:] + self.stand_still(max(0, end_us - self.now_us))

    def stand_still(self, duration_us: int) -> list[JobInstruction]:
        """Time passes, and the coordinator runs only after it."""
        self.now_us += duration_us
        return self._note(self.machine.tick(self.now_us))

    def start_up(self) -> list[JobInstruction]:
        """All requested processes that have not started yet start."""
        since = len(self.instructions)
        for instruction in [i for i in self.instructions if isinstance(i, StartProcess) and i.process not in self._up]:
            self._up.add(instruction.process)
            self.say(Started(instruction.process, f"host:{instruction.process}"))
        return self.instructions[since:]

    def process(self, task: TaskId) -> int:
        """The process that is the task."""
        return self.attempts[task][0]

    def standby(self, task: TaskId) -> int:
        """The process started last for a task: it stands by, once the job is deployed."""
        return [i.process for i in self.instructions if isinstance(i, StartProcess) and i.task == task][-1]

    def answer(
        self,
        severs: Sequence[tuple[int, Sever]],
        depends: Sequence[int] = (),
        incarnations: Mapping[LogId, int] | None = None,
    ) -> list[JobInstruction]:
        """Survivors report that they hold no logs, have received from these inputs, and know these incarnations."""
        since = len(self.instructions)
        for process, sever in severs:
            report = HeldLogsReport(
                process, sever.round, [], [], depends=list(depends), incarnations=dict(incarnations or {})
            )
            self.say(report)
        return self.instructions[since:]

    def snapshot(self, *tasks: TaskId, checkpoint: int) -> list[JobInstruction]:
        since = len(self.instructions)
        for task in tasks:
            self.say(Snapshotted(self.process(task), TaskHandle(task, checkpoint, {}, b"", {})))
        return self.instructions[since:]

    def drain(self) -> list[JobInstruction]:
        since = len(self.instructions)
        for task in (SOURCE, MIDDLE, SINK):
            self.say(Drained(self.process(task)))
        return self.instructions[since:]

    def commit(self, checkpoint: int) -> list[JobInstruction]:
        return self.say(Committed(self.process(SINK), checkpoint))


def deployed(plan: PhysicalPlan | None = None, policy: JobPolicy | None = None) -> Stage:
    stage = Stage(plan, policy)
    stage.start_up()
    return stage


def sent(instructions: Sequence[JobInstruction], kind: type[M]) -> list[tuple[int, M]]:
    """Messages of a kind with their receivers."""
    return [(i.process, i.message) for i in instructions if isinstance(i, Send) and isinstance(i.message, kind)]


def receivers(instructions: Sequence[JobInstruction], kind: type[Any]) -> set[int]:
    return {process for process, _ in sent(instructions, kind)}


def of(instructions: Sequence[JobInstruction], kind: type[M]) -> list[M]:
    return [i for i in instructions if isinstance(i, kind)]


def reported(instructions: Sequence[JobInstruction]) -> list[CoordinatorEvent]:
    return [i.event for i in of(instructions, ReportEvent)]


def happened(instructions: Sequence[JobInstruction]) -> list[type[CoordinatorEvent]]:
    return [type(event) for event in reported(instructions)]
