"""Durable snapshots of tasks that no manifest names yet (E5)."""

from __future__ import annotations

from collections.abc import Collection

from clonos_py.model.snapshots import TaskHandle


class GatheredSnapshots:
    """What the next manifest is made from. A snapshot is kept as long as the process that has taken it is its task."""

    def __init__(self, several: bool) -> None:
        """``several``: a later snapshot of a task does not replace an earlier one."""
        self._several = several
        self._found: list[tuple[int, TaskHandle]] = []
        """Each with the number of the process that has taken it; the newest last."""

    def add(self, process: int, handle: TaskHandle) -> None:
        """A snapshot of this process is durable."""
        if not self._several:
            self._found = [found for found in self._found if found[1].task != handle.task]
        self._found.append((process, handle))

    def drop_all_but_those_of(self, processes: Collection[int]) -> None:
        """Drops the snapshots of all other processes: the replacements of these do not start from them."""
        self._found = [found for found in self._found if found[0] in processes]

    @property
    def handles(self) -> list[TaskHandle]:
        """The newest last."""
        return [handle for _, handle in self._found]

    def clear(self) -> None:
        """A manifest names all of them."""
        self._found = []
