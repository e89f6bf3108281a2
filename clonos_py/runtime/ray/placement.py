"""On which node a process goes: not where another process of its task is, else where the fewest are. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from clonos_py.model.ids import TaskId


class Placement:
    """Remembers what it placed. A standby beside its task would die with the node that it is to survive."""

    def __init__(self) -> None:
        self._placed: dict[int, tuple[TaskId, str]] = {}

    def place(self, number: int, task: TaskId, nodes: Sequence[str]) -> str:
        """The node for a process, one of ``nodes`` (not empty)."""

        def cost(node: str) -> tuple[int, int]:
            there = [other for other, where in self._placed.values() if where == node]
            return there.count(task), len(there)

        node = min(nodes, key=cost)
        self._placed[number] = task, node
        return node

    def remove(self, number: int) -> None:
        """The process is gone."""
        self._placed.pop(number, None)
