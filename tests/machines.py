"""Machines with their side of the checkpoint protocol of their plan."""

from __future__ import annotations

from clonos_py.channel.frames import FrameCodec
from clonos_py.job.events import JobPolicy
from clonos_py.job.machine import JobMachine
from clonos_py.link.checkpointing import LinkSide
from clonos_py.link.machine import LinkMachine
from clonos_py.model.ids import TaskId
from clonos_py.model.plan import PhysicalPlan
from clonos_py.model.snapshots import Manifest
from clonos_py.process.contract import ChannelLimits
from clonos_py.protocols.known import protocol_of
from clonos_py.task.checkpointing import TaskSide
from clonos_py.task.context import OperatorEnvironment
from clonos_py.task.machine import TaskMachine

NO_LIMITS = ChannelLimits()


def job_machine(
    plan: PhysicalPlan,
    policy: JobPolicy,
    manifest: Manifest | None = None,
    generation: int = 1,
    code_digest: str = "",
) -> JobMachine:
    return JobMachine(plan, policy, protocol_of(plan).job, manifest, generation, code_digest)


def task_machine(
    plan: PhysicalPlan,
    task: TaskId,
    environment: OperatorEnvironment,
    linger_us: int = 10_000,
    limits: ChannelLimits = NO_LIMITS,
) -> TaskMachine:
    return TaskMachine(plan, task, environment, protocol_of(plan).task, linger_us, limits)


def link_machine(
    plan: PhysicalPlan,
    task: TaskId,
    process: int,
    codec: FrameCodec,
    limits: ChannelLimits = NO_LIMITS,
    retain: bool = True,
) -> LinkMachine:
    return LinkMachine(plan, task, process, codec, protocol_of(plan).link, limits, retain)


def sides_of(plan: PhysicalPlan) -> tuple[TaskSide, LinkSide]:
    protocol = protocol_of(plan)
    return protocol.task, protocol.link
