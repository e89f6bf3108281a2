"""On which node a process goes: not where another process of its task is, else where the fewest are. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from clonos_py.model.ids import TaskId

SUSPECT_S = 30.0
"""So long a node that nothing is heard of is avoided; by then Ray knows better."""


class Placement:
    """Remembers what it placed. A standby beside its task would die with the node that it is to survive; and where a
    process has just died, the whole node may be gone, until another process there is heard."""

    def __init__(self) -> None:
        self._placed: dict[int, tuple[TaskId, str]] = {}
        self._died_s: dict[str, float] = {}
        self._now_s = 0.0

    def place(self, number: int, task: TaskId, nodes: Sequence[str]) -> str:
        """The node for a process, one of ``nodes`` (not empty)."""

        def cost(node: str) -> tuple[bool, int, int]:
            there = [other for other, where in self._placed.values() if where == node]
            return self._suspect(node), there.count(task), len(there)

        node = min(nodes, key=cost)
        self._placed[number] = task, node
        return node

    def put(self, number: int, task: TaskId, node: str) -> None:
        """Where the process really is."""
        self._placed[number] = task, node

    def heard(self, number: int, now_s: float) -> None:
        """The process is alive, and so is its node."""
        self._now_s = now_s
        if number in self._placed:
            self._died_s.pop(self._placed[number][1], None)

    def remove(self, number: int, now_s: float) -> None:
        """The process is gone."""
        self._now_s = now_s
        if (placed := self._placed.pop(number, None)) is not None:
            self._died_s[placed[1]] = now_s

    def _suspect(self, node: str) -> bool:
        died_s = self._died_s.get(node)
        return died_s is not None and self._now_s - died_s < SUSPECT_S
