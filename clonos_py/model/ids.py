"""Identifiers of the parts of a job: tasks, channels, attempts."""

from __future__ import annotations

from typing import NamedTuple


class TaskId(NamedTuple):
    """One parallel instance of a vertex of the physical plan, written ``join[0]``."""

    vertex: str
    index: int  # type: ignore[assignment]

    def __str__(self) -> str:
        return f"{self.vertex}[{self.index}]"


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
