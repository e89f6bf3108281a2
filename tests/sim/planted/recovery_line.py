"""Bugs of going back to the recovery line: which tasks go back, how far, what is kept and committed till then."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from clonos_py.checkpoint import line
from clonos_py.checkpoint.line import Positions
from clonos_py.job import completed
from clonos_py.job.events import Instructions, WriteManifest
from clonos_py.job.reopening import ended_vertices
from clonos_py.link import instructions as io
from clonos_py.link.epochs import Epochs
from clonos_py.link.machine import LINK_EVENTS, LinkMachine
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Complete, Restore
from clonos_py.model.snapshots import Manifest
from clonos_py.model.states import Ignored
from clonos_py.process.contract import TaskState
from clonos_py.protocols.parts import recovery_line
from clonos_py.protocols.parts.independent import IndependentCheckpoints
from clonos_py.protocols.parts.recovery_line import RecoveryLine
from clonos_py.protocols.parts.restart_points import NamedSnapshots
from clonos_py.settings.protocols import UNCOORDINATED
from tests.sim.planted.bug import Bugs
from tests.sim.planted.seams import Handle, rehandled
from tests.sim.planted.unaligned import stored_frames_are_not_restored
from tests.sim.planted.uncoordinated import frames_are_stored_from_where_their_receivers_are

BUGS = Bugs()
alone = partial(BUGS.planted, "kill", "crash", protocol=UNCOORDINATED, depth=0)


@alone()
def sinks_commit_what_the_line_has_not_passed(patch: pytest.MonkeyPatch) -> None:
    def newest(self: RecoveryLine, task: TaskId) -> int:
        return self.completed.epoch(task)

    patch.setattr(RecoveryLine, "safe_epoch", newest)


@alone()
def a_replacement_commits_what_the_line_has_not_passed(patch: pytest.MonkeyPatch) -> None:
    def newest(self: RecoveryLine, task: TaskId, newest: Restore) -> Restore:
        found = restart(self, task, newest)
        if found.fallback is None:
            return found
        fallback = msgspec.structs.replace(found.fallback, committables=found.committables)
        return msgspec.structs.replace(found, fallback=fallback)

    restart = RecoveryLine.restart
    patch.setattr(RecoveryLine, "restart", newest)


@alone()
def a_replacement_forgets_what_is_still_to_be_committed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Epochs, "restored", lambda self, checkpoint, progress, prepared: None)


@BUGS.planted(anywhere=True, endless=True)
def a_checkpoint_that_completes_while_a_replacement_starts_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    for state in (TaskState.CONNECTING, TaskState.FETCHING_DETERMINANTS):
        patch.setitem(LINK_EVENTS.row(state), Complete, Ignored("planted"))


@alone()
def senders_drop_frames_that_lie_behind_the_line(patch: pytest.MonkeyPatch) -> None:
    """Their receivers report that their newest snapshots cover the frames."""
    message = IndependentCheckpoints.complete_message

    def newest(self: IndependentCheckpoints, task: TaskId) -> Complete:
        found = message(self, task)
        has_sink = any(operator.sink for operator in self.context.plan.by_name[task.vertex].operators)
        return found if has_sink else msgspec.structs.replace(found, checkpoint=self.completed.epoch(task))

    patch.setattr(IndependentCheckpoints, "complete_message", newest)


@alone()
def tasks_behind_a_failed_one_go_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecoveryLine, "condemned", lambda self, lost: set())


@alone()
def tasks_go_back_to_their_newest_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RecoveryLine, "fall_back", lambda self, failed, last: ([], None))


@alone()
def only_the_newest_snapshot_of_a_receiver_is_looked_at(patch: pytest.MonkeyPatch) -> None:
    """Its earlier snapshots are assumed to fit."""

    def one_step(histories: Mapping[TaskId, Sequence[Positions]], channels: Any) -> dict[TaskId, int]:
        found = line.recovery_line(histories, channels)
        return {task: max(index, len(histories[task]) - 2) for task, index in found.items()}

    patch.setattr(recovery_line, "recovery_line", one_step)


@alone()
def snapshots_ahead_of_the_line_count_again_for_the_next_coordinator(patch: pytest.MonkeyPatch) -> None:
    """No manifest is written before tasks go back."""
    fall_back = IndependentCheckpoints.fall_back

    def unwritten(self: IndependentCheckpoints, failed: Collection[TaskId]) -> Instructions:
        instructions = fall_back(self, failed)
        if self.pending:
            self.written()
        return [instruction for instruction in instructions if not isinstance(instruction, WriteManifest)]

    patch.setattr(IndependentCheckpoints, "fall_back", unwritten)


@alone()
def tasks_go_back_farther_than_they_have_to(patch: pytest.MonkeyPatch) -> None:
    """To the oldest snapshots that are kept of them. These fit, too, and nothing is lost but work."""
    fall_back = RecoveryLine.fall_back

    def oldest(self: RecoveryLine, failed: Collection[TaskId], last: int) -> tuple[Instructions, NamedSnapshots | None]:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(recovery_line, "recovery_line", lambda histories, channels: dict.fromkeys(histories, 0))
            return fall_back(self, failed, last)

    patch.setattr(RecoveryLine, "fall_back", oldest)


@alone()
def a_sink_that_has_ended_commits_all_that_it_has_prepared(patch: pytest.MonkeyPatch) -> None:
    """Its rows are the last, but those before it may still go back."""
    uncommitted, committed = Epochs.uncommitted, Epochs.committed

    def everything(handle: Handle, link: LinkMachine, message: Complete) -> list[io.Instruction]:
        newest = max([message.checkpoint, *link.uncovered])
        with pytest.MonkeyPatch.context() as meanwhile:
            if link.state is TaskState.FINISHED:
                meanwhile.setattr(Epochs, "uncommitted", lambda self, checkpoint: uncommitted(self, newest))
                meanwhile.setattr(Epochs, "committed", lambda self, checkpoint: committed(self, newest))
            return handle(link, message)

    rehandled(patch, Complete, everything)


@alone()
def frames_behind_the_line_are_left_out_of_snapshots(patch: pytest.MonkeyPatch) -> None:
    """Frames that their receivers have not taken are stored."""
    frames_are_stored_from_where_their_receivers_are(patch)


@alone()
def frames_that_are_stored_are_not_retained_after_a_restart(patch: pytest.MonkeyPatch) -> None:
    stored_frames_are_not_restored(patch)


@BUGS.planted(anywhere=True)
def operators_that_may_go_back_count_as_ended(patch: pytest.MonkeyPatch) -> None:
    """In a run that resumes: one of their tasks goes back to before the end, and gets its rows again."""

    def of_newest(manifest: Manifest, ended: Collection[TaskId]) -> set[str]:
        return ended_vertices(msgspec.structs.replace(manifest, earlier=[]), ended)

    patch.setattr(completed, "ended_vertices", of_newest)
