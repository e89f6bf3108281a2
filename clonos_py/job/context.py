"""What the parts of the coordinator share: the plan, the policy, the processes, and the instructions of one step."""

from __future__ import annotations

from dataclasses import dataclass, field

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import (
    DismissProcess,
    JobInstruction,
    JobPolicy,
    KillProcess,
    ReportEvent,
    Send,
    StartProcess,
)
from clonos_py.job.fleet import Fleet, TaskProcess
from clonos_py.model.coordinator_events import CoordinatorEvent
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import ToProcess
from clonos_py.model.plan import PhysicalPlan


@dataclass
class CoordinatorContext:
    """One per coordinator. ``out`` collects the instructions of the current event in order; ``take`` returns them."""

    plan: PhysicalPlan
    policy: JobPolicy
    completed: CompletedCheckpoint
    generation: int
    fleet: Fleet = field(default_factory=Fleet)
    now_us: int = 0
    """The driver's clock minus the coordinator's own standstills (stopped, suspended, without a processor). So the
    coordinator does not take its own standstill for the silence of processes."""
    absent_us: int = 0
    """The sum of all standstills so far."""
    out: list[JobInstruction] = field(default_factory=list)

    @property
    def clock_us(self) -> int:
        """The driver's clock, for durations in reports."""
        return self.now_us + self.absent_us

    def begin(self, clock_us: int) -> None:
        """The first reading of the driver's clock."""
        self.now_us = clock_us

    def advance_clock(self, clock_us: int, due_us: int) -> None:
        """The driver calls at ``clock_us`` and should have called by ``due_us`` (both on the driver's clock). A call
        that is later by more than a heartbeat interval means that the coordinator stood still."""
        late_us = clock_us - max(due_us, self.clock_us) - self.policy.heartbeat_us
        self.absent_us += max(0, late_us)
        self.now_us = max(self.now_us, clock_us - self.absent_us)

    def take(self) -> list[JobInstruction]:
        instructions, self.out = self.out, []
        return instructions

    def send(self, process: TaskProcess, message: ToProcess) -> None:
        self.out.append(Send(process.number, message))

    def report(self, event: CoordinatorEvent) -> None:
        self.out.append(ReportEvent(event))

    def start_process(self, task: TaskId, reuse: int | None = None) -> None:
        """``reuse``: the process whose host process the new one starts in."""
        process = self.fleet.add(task, self.now_us, reuse is not None)
        self.out.append(StartProcess(process.number, task, process.shares, reuse))

    def dismiss(self, process: TaskProcess) -> None:
        """Stops a process that has not failed; others in its host process go on."""
        self.fleet.remove(process.number)
        self.out.append(DismissProcess(process.number))

    def kill_process(self, number: int) -> None:
        self.out.append(KillProcess(number))
