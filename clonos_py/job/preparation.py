"""Processes that start and load state ahead of their job's deployment, while the run goes on that it will follow.

    requested --Started--> up --a checkpoint is named--> loading --Prepared, NotPrepared--> settled
    any --it has died--> requested again, as another process
    any --too many have died, or one cannot run its task--> the preparation has failed

They are standbys of a coordinator that is yet to come. It gets them with its start and promotes them. Then each loads
the last checkpoint of the run before, and of that only what the newest one at the time of the preparation had not.
Until then nothing depends on them: where the preparation fails, they are ended.
"""

from __future__ import annotations

import msgspec

from clonos_py.job.completed import CompletedCheckpoint
from clonos_py.job.events import Instructions, JobEvent, JobPolicy, ProcessDied, Send, StartProcess
from clonos_py.job.fleet import Fleet, TaskProcess
from clonos_py.job.state_mapping import mapped
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Failed, NotPrepared, Prepare, Prepared, Started, ToCoordinator
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest

DEATHS_MAX = 2
"""How many processes may die during one preparation. After more the cause is probably what they load."""


def state_ahead(
    manifest: Manifest | None, plan: PhysicalPlan, policy: JobPolicy, code_digest: str = ""
) -> CompletedCheckpoint | None:
    """What the processes of a plan can load of a checkpoint that is not the last of its run; None if there is none.
    Rows in flight belong to that checkpoint alone and are left out. Raises SettingError if the plan could not resume
    from a checkpoint of this run."""
    if manifest is None:
        return None
    at_rest = msgspec.structs.replace(
        manifest, tasks=[msgspec.structs.replace(handle, frames={}) for handle in manifest.tasks]
    )
    found = mapped(at_rest, plan, policy.state_mapping, code_digest)
    return CompletedCheckpoint(plan, found, code_digest, policy.lineage)


class Preparation:
    """The processes of one plan. Its methods return instructions for the driver, as the coordinator's do."""

    def __init__(self, plan: PhysicalPlan) -> None:
        self._plan = plan
        self._fleet = Fleet()
        self._ahead: CompletedCheckpoint | None = None
        self._settled: set[int] = set()
        """The processes that have loaded the checkpoint that was named last, or cannot."""
        self._deaths = 0
        self.problem: str | None = None
        """Why the preparation has failed."""

    def start(self) -> Instructions:
        """Starts a process for each task, but for those with a demand: the run before may have reserved what they
        need."""
        return [self._requested(task) for task in self._plan.tasks if not self._plan.demand(task)]

    def load(self, ahead: CompletedCheckpoint) -> Instructions:
        """Has every process load this checkpoint, also those that are started later."""
        self._ahead, self._settled = ahead, set()
        return [i for process in self.up for i in self._prepare(process)]

    def handle(self, event: ToCoordinator | JobEvent) -> Instructions:
        """Processes a message of a process, or its death. Other messages are for a coordinator that runs the job."""
        process = self._fleet.get(getattr(event, "process", -1))
        if process is None:
            return []
        match event:
            case Started(address=address, host_process=host_process):
                process.address, process.host_process = address, host_process
                return self._prepare(process)
            case Prepared(number, checkpoint):
                process.prepared = checkpoint
                if checkpoint == self.checkpoint:
                    self._settled.add(number)
            case NotPrepared(number, checkpoint):
                if checkpoint == self.checkpoint:
                    self._settled.add(number)
            case ProcessDied(number, reason):
                return self._replace(process, reason)
            case Failed(message=message):
                self.problem = f"{process.task} cannot run: {message}"
            case _:
                pass
        return []

    def _requested(self, task: TaskId) -> StartProcess:
        return StartProcess(self._fleet.add(task, 0).number, task)

    def _prepare(self, process: TaskProcess) -> Instructions:
        if self._ahead is None:
            return []
        return [Send(process.number, Prepare(self._ahead.restart(process.task)))]

    def _replace(self, process: TaskProcess, reason: str) -> Instructions:
        self._fleet.remove(process.number)
        self._settled.discard(process.number)
        self._deaths += 1
        if self._deaths > DEATHS_MAX:
            self.problem = f"{self._deaths} processes for it have died, the last one, of {process.task}: {reason}"
            return []
        return [self._requested(process.task)]

    @property
    def checkpoint(self) -> int:
        """The checkpoint that processes load; 0 if there is none."""
        return 0 if self._ahead is None else self._ahead.number

    @property
    def up(self) -> list[TaskProcess]:
        """The processes that have started: standbys for a coordinator."""
        return [process for process in self._fleet.processes.values() if process.address is not None]

    @property
    def started(self) -> bool:
        """Whether all processes have."""
        return len(self.up) == len(self._fleet.processes)

    @property
    def settled(self) -> bool:
        """Whether all processes have started, and have loaded the checkpoint that was named last, or cannot."""
        waits = {process.number for process in self.up} - self._settled if self._ahead is not None else ()
        return self.started and not waits
