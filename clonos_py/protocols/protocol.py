"""A checkpoint protocol as one value: its properties, and its sides in coordinator, tasks and links (D7)."""

from __future__ import annotations

from dataclasses import dataclass

from clonos_py.job.checkpointing import JobSide
from clonos_py.link.checkpointing import LinkCheckpointing, LinkSide
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.task.checkpointing import TaskCheckpointing, TaskSide


@dataclass(frozen=True)
class CheckpointProtocol:
    """A checkpoint protocol. The runtime gives each machine its side."""

    properties: ProtocolProperties
    job: JobSide
    task: TaskSide = TaskCheckpointing
    link: LinkSide = LinkCheckpointing

    @property
    def name(self) -> str:
        return self.properties.name
