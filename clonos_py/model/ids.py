"""Identifiers of the parts of a job: tasks, channels, attempts."""

from __future__ import annotations

from typing import NamedTuple, NewType

import xxhash

DEFAULT_NAMESPACE = "clonos"
"""The namespace of jobs on a Ray cluster, unless another one is set."""

LogId = NewType("LogId", int)
"""Names the log of a task in all plans that have the task, whatever other vertices and tasks they have. 32 bits."""


class TaskId(NamedTuple):
    """One parallel instance of a vertex of the physical plan, written ``join[0]``."""

    vertex: str
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.vertex}[{self.index}]"

    @property
    def log_id(self) -> LogId:
        """The digest of the vertex plus the index: no two tasks of a vertex have the same."""
        return LogId((xxhash.xxh32_intdigest(self.vertex.encode()) + self.index) % (1 << 32))


class ChannelId(NamedTuple):
    """One FIFO connection: instance ``source`` of an edge's upstream vertex to ``target`` of its downstream."""

    edge: int
    source: int
    target: int

    def __str__(self) -> str:
        return f"edge {self.edge}: [{self.source}] -> [{self.target}]"


class Attempt(NamedTuple):
    """One process in the role of a task (D11). Later attempts compare greater; messages of older ones are dropped."""

    generation: int
    counter: int

    def __str__(self) -> str:
        return f"{self.generation}.{self.counter}"


FIRST_ATTEMPT = Attempt(1, 1)
"""That of each task of a job that has not run before."""
