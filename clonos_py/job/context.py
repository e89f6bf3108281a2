"""What the parts of the coordinator share: the plan, the policy, the processes and the clock."""

from __future__ import annotations

from dataclasses import dataclass, field

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import DismissProcess, JobPolicy, StartProcess
from clonos_py.job.fleet import Fleet, TaskProcess
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan


@dataclass
class CoordinatorContext:
    """One per coordinator. Its parts return their instructions."""

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
    interval_us: int = field(init=False)
    """The current checkpoint interval: that of the policy, unless the job finds its own (``interval_choice.py``)."""

    def __post_init__(self) -> None:
        self.interval_us = self.policy.checkpoint_interval_us

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

    def start_process(self, task: TaskId, reuse: int | None = None) -> StartProcess:
        """Adds a process to the fleet. ``reuse``: the process whose host process it starts in."""
        process = self.fleet.add(task, self.now_us, reuse is not None)
        return StartProcess(process.number, task, process.shares, reuse, self.plan.demand(task, process.shares))

    def dismiss(self, process: TaskProcess) -> DismissProcess:
        """Removes a process that has not failed from the fleet; others in its host process go on."""
        self.fleet.remove(process.number)
        return DismissProcess(process.number)
