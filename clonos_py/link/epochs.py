"""What a link holds of snapshots until their checkpoint is complete: progress, and prepared results (D16)."""

from __future__ import annotations

from dataclasses import replace

from clonos_py.model.snapshots import TaskSnapshot
from clonos_py.process.contract import SnapshotTaken, TaskProgress

Committables = dict[str, list[bytes]]
"""By sink: names of prepared results, oldest first."""


class Epochs:
    """Snapshots of this process that no completed checkpoint covers yet, aborted ones among them."""

    def __init__(self) -> None:
        self._progress: dict[int, TaskProgress] = {}
        self._prepared: dict[int, Committables] = {}

    @property
    def checkpoints(self) -> list[int]:
        """The checkpoints of which anything is held."""
        return sorted(self._progress.keys() | self._prepared.keys())

    def add(self, event: SnapshotTaken) -> TaskSnapshot:
        """Takes a snapshot. Returns it with all results that its completion has to commit."""
        snapshot = event.snapshot
        self._progress[snapshot.checkpoint] = event.progress
        if snapshot.committables:
            self._prepared[snapshot.checkpoint] = {name: list(c) for name, c in snapshot.committables.items()}
        return replace(snapshot, committables=self.uncommitted(snapshot.checkpoint))

    def restored(self, checkpoint: int, progress: TaskProgress, prepared: Committables) -> None:
        """The process starts from this snapshot, whose checkpoint is still to be completed."""
        self._progress[checkpoint] = progress
        if prepared:
            self._prepared[checkpoint] = {name: list(c) for name, c in prepared.items()}

    def prepared(self, checkpoint: int, committables: Committables) -> None:
        """A predecessor has prepared these results for a checkpoint that was not completed."""
        self._prepared[checkpoint] = {name: list(c) for name, c in committables.items()}

    @property
    def all_prepared(self) -> dict[int, Committables]:
        """By checkpoint that is not complete: the prepared results."""
        return self._prepared

    def uncommitted(self, checkpoint: int) -> Committables:
        """Prepared and uncommitted results up to ``checkpoint``, those of aborted checkpoints included."""
        merged: Committables = {}
        for number in sorted(n for n in self._prepared if n <= checkpoint):
            for name, named in self._prepared[number].items():
                merged.setdefault(name, []).extend(named)
        return merged

    def committed(self, checkpoint: int) -> None:
        self._prepared = {n: c for n, c in self._prepared.items() if n > checkpoint}

    def complete(self, checkpoint: int) -> TaskProgress | None:
        """Checkpoint ``checkpoint`` is complete. Returns the progress in its snapshot; None without a snapshot."""
        progress = self._progress.get(checkpoint)
        self._progress = {n: p for n, p in self._progress.items() if n > checkpoint}
        return progress
