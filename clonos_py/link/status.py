"""The status of a process, which answers the status request of a new coordinator (D9, D11)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from clonos_py.link.receiving import InputChannel
from clonos_py.link.restoring import Restoring
from clonos_py.link.sending import NO_ATTEMPT, OutputChannel
from clonos_py.link.states import BEFORE_BEGIN
from clonos_py.model.ids import Attempt, LogId, TaskId
from clonos_py.model.messages import Failed, Replay, StatusReport
from clonos_py.model.segments import Incarnation
from clonos_py.process.contract import TaskState


class TaskStatus:
    """Holds the highest checkpoint number, the newest committed epoch and the failure; the rest is read from the other
    parts of the link."""

    def __init__(
        self, process: int, inputs: Sequence[InputChannel], outputs: Sequence[OutputChannel], restoring: Restoring
    ) -> None:
        self._process, self._inputs, self._outputs, self._restoring = process, inputs, outputs, restoring
        self._checkpoint = 0
        self.committed = 0
        self.failure: Failed | None = None

    def note_checkpoint(self, checkpoint: int) -> None:
        """Notes the number of a checkpoint, complete or not, that a message has named."""
        self._checkpoint = max(self._checkpoint, checkpoint)

    @property
    def frames_at_stake(self) -> int:
        """The number of frames sent since the restart point; of a task without outputs, of frames received."""
        if self._outputs:
            return sum(output.cursor.at - output.frames.first for output in self._outputs)
        return sum(channel.uncovered for channel in self._inputs)

    def report(
        self,
        state: TaskState,
        attempt: Attempt | None,
        round_: int,
        log: Replay | None,
        incarnations: Mapping[LogId, int],
    ) -> StatusReport:
        """``log``: the one that it was sent to replay, if any. ``incarnations``: of tasks whose logs it holds."""
        return StatusReport(
            process=self._process,
            attempt=attempt,
            restore=self._restoring.requested.checkpoint if self._restoring.requested else 0,
            begun=log is not None,
            replaying=log is not None and bool(log.log) and state in (*BEFORE_BEGIN, TaskState.REPLAYING),
            drained=state is TaskState.FINISHED,
            committed=self.committed,
            round=round_,
            checkpoint=self._checkpoint,
            peers=list(self._peers()),
            failure=self.failure,
            incarnation=log.incarnation if log is not None else Incarnation(),
            incarnations=dict(incarnations),
        )

    def _peers(self) -> Iterator[tuple[TaskId, Attempt]]:
        for channel in self._inputs:
            if channel.peer is not None:
                yield channel.sender, channel.peer.attempt
        for output in self._outputs:
            if output.attempt != NO_ATTEMPT:
                yield output.receiver, output.attempt
