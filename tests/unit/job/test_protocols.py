"""What the coordinator requires of a checkpoint protocol, beyond the aligned one."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from clonos_py.job.checkpointing import JobSide
from clonos_py.job.events import ProcessDied, StartProcess
from clonos_py.model.coordinator_events import CheckpointAborted, RolledBack, TaskLost
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Promote, Replay, Sever, Started, TriggerCheckpoint
from clonos_py.protocols.known import KNOWN
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.settings.protocols import PROTOCOLS
from tests.unit.job.stage import MIDDLE, SECOND_US, SINK, SOURCE, Stage, happened, of, receivers, reported, sent


class SinkGoesBack(CoordinatedCheckpoints):
    """The state of the sink fits only its own restart point."""

    def condemned(self, lost: Collection[TaskId]) -> set[TaskId]:
        return {SINK}


def staged(side: JobSide) -> Stage:
    stage = Stage(checkpointing=side)
    stage.start_up()
    return stage


def test_condemned_survivors_restart_in_their_processes_together_with_the_failed_tasks() -> None:
    stage = staged(SinkGoesBack)
    source, sink = stage.process(SOURCE), stage.process(SINK)
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    _, lost = [event for event in reported(instructions) if isinstance(event, TaskLost)]
    assert (lost.task, lost.reason) == (SINK, "its state does not fit the restart point of middle[0]")
    (wish,) = [wish for wish in of(instructions, StartProcess) if wish.reuse is not None]
    assert (wish.task, wish.reuse) == (SINK, sink)
    assert sent(instructions, Promote) == []
    begun = stage.say(Started(wish.process, "somewhere"))
    assert receivers(begun, Promote) == {stage.process(MIDDLE), wish.process}
    assert receivers(begun, Sever) == {source}
    replays = stage.answer(sent(begun, Sever))
    assert receivers(replays, Replay) == {stage.process(MIDDLE), wish.process}
    assert RolledBack not in happened(stage.instructions)


def test_snapshots_that_do_not_fit_together_abort_the_checkpoint() -> None:
    stage = staged(partial(CoordinatedCheckpoints, fits=lambda plan, handles: False))
    assert sent(stage.wait(6 * SECOND_US), TriggerCheckpoint)
    instructions = stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    assert CheckpointAborted(1, "the snapshots do not fit together") in reported(instructions)
    assert RolledBack not in happened(instructions)


def test_each_protocol_that_settings_can_choose_is_known() -> None:
    assert {name: protocol.properties for name, protocol in KNOWN.items()} == {p.name: p for p in PROTOCOLS}
