"""The numbers of epochs and manifests: they only grow, also across coordinators, and none is used twice (D7)."""

from __future__ import annotations

from clonos_py.job.completed import CompletedCheckpoint


class EpochNumbers:
    """Gives the numbers of one coordinator, which begin behind the last completed checkpoint."""

    def __init__(self, completed: CompletedCheckpoint, unseen_max: int) -> None:
        """``unseen_max``: how many numbers a lost coordinator may have used that no running process has received."""
        self._completed, self._unseen_max = completed, unseen_max
        self.last = completed.number
        """The last number that is used."""

    def next(self) -> int:
        """A number that is not used yet."""
        self.last += 1
        return self.last

    def resume(self, newest: int) -> None:
        """Continues behind the numbers of a lost coordinator. ``newest``: the highest that any process reports."""
        self.last = max(newest, self._completed.number) + self._unseen_max

    def skip_to(self, number: int) -> None:
        """All numbers up to this one are used."""
        self.last = max(self.last, number)
