"""What the coordinator requires of a checkpoint protocol, beyond the aligned one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

import pytest

from clonos_py.job.events import ProcessDied, StartProcess
from clonos_py.job.protocols.aligned import CoordinatedCheckpoints
from clonos_py.job.protocols.registry import JOB_SIDES
from clonos_py.model.coordinator_events import CheckpointAborted, RolledBack, TaskLost
from clonos_py.model.errors import SettingError
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import Promote, Replay, Sever, Started, TriggerCheckpoint
from clonos_py.model.protocols import PROTOCOLS
from clonos_py.model.snapshots import TaskHandle
from clonos_py.task.checkpointing.registry import TASK_SIDES
from tests.unit.job.stage import MIDDLE, SECOND_US, SINK, SOURCE, Stage, chain, happened, of, receivers, reported, sent


class SinkGoesBack(CoordinatedCheckpoints):
    """The state of the sink fits only its own restart point."""

    def condemned(self, lost: Collection[TaskId]) -> set[TaskId]:
        return {SINK}


class NothingFits(CoordinatedCheckpoints):
    def fits(self, handles: Sequence[TaskHandle]) -> bool:
        return False


def staged(protocol: type[CoordinatedCheckpoints]) -> Stage:
    JOB_SIDES.register(protocol.__name__, protocol)
    stage = Stage(replace(chain(), protocol=protocol.__name__))
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
    assert RolledBack not in happened(stage.told)


def test_snapshots_that_do_not_fit_together_abort_the_checkpoint() -> None:
    stage = staged(NothingFits)
    assert sent(stage.wait(6 * SECOND_US), TriggerCheckpoint)
    instructions = stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    assert CheckpointAborted(1, "the snapshots do not fit together") in reported(instructions)
    assert RolledBack not in happened(instructions)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_that_settings_can_choose_has_a_job_side_and_a_task_side(name: str) -> None:
    assert callable(JOB_SIDES.of(name))
    assert callable(TASK_SIDES.of(name))


def test_an_unregistered_protocol_is_named_in_the_error() -> None:
    with pytest.raises(SettingError, match="there is no checkpoint protocol 'unheard-of': choose one of"):
        Stage(replace(chain(), protocol="unheard-of"))
