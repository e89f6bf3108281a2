"""A task stands still behind the snapshot with which its job ends (``clonos stop``).

Without that, sources would read on until the checkpoint is complete. A causal sink would show these rows at once,
though the next run begins at the checkpoint: it would have to replay them, and could do so only with the same
parallelism.

If the checkpoint is aborted the task goes on, and so it does under a new coordinator, which takes another last
checkpoint if the user's request to stop is repeated. To stand still is no event of the log: it only takes time.
"""

from __future__ import annotations

from clonos_py.process.contract import AbortRequest, TriggerRequest


class LastCheckpoint:
    """Knows which checkpoint ends the job. ``possible``: False in a loop, whose head must take what returns to it
    before the other tasks of the loop can take their snapshots."""

    def __init__(self, possible: bool) -> None:
        self._possible = possible
        self._last = 0
        """The newest checkpoint that was announced as the last; 0 if none was."""
        self._aborted = 0
        """The newest checkpoint that was aborted."""
        self.stands_still = False
        """Whether the task stands still."""

    def triggered(self, request: TriggerRequest | AbortRequest) -> None:
        if isinstance(request, TriggerRequest):
            if request.purpose.ends_job:
                self.announce(request.checkpoint)
            return
        self._aborted = max(self._aborted, request.checkpoint)
        if self._last <= self._aborted:
            self.go_on()

    def announce(self, checkpoint: int) -> None:
        """The job ends with this checkpoint, as the coordinator or a barrier says."""
        if checkpoint > self._aborted:
            self._last = checkpoint

    def taken(self, checkpoint: int) -> bool:
        """The task takes the snapshot of a checkpoint. Returns whether it is the last."""
        last = checkpoint == self._last
        self.stands_still = last and self._possible
        return last

    def go_on(self) -> None:
        self._last, self.stands_still = 0, False
