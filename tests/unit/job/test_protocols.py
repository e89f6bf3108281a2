"""What the coordinator asks of a checkpoint protocol, beyond what the aligned one needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import pytest

from clonos_py.job.events import ProcessDied
from clonos_py.job.protocols.aligned import CoordinatedCheckpoints
from clonos_py.job.protocols.registry import JOB_SIDES
from clonos_py.model.coordinator_events import CheckpointAborted, RolledBack
from clonos_py.model.errors import SettingError
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import HeldLogsReport, Promote, Sever, TriggerCheckpoint
from clonos_py.model.protocols import PROTOCOLS
from clonos_py.model.snapshots import TaskHandle
from clonos_py.task.checkpointing.registry import TASK_SIDES
from tests.unit.job.stage import MIDDLE, SECOND_US, SINK, SOURCE, Stage, chain, happened, receivers, reported, sent


class AllGoBack(CoordinatedCheckpoints):
    """As where no determinants are logged: the state of survivors does not fit any restart point."""

    def condemned(self, failed: Collection[TaskId], survivors: Mapping[TaskId, HeldLogsReport]) -> set[TaskId]:
        return set(survivors)


class NothingFits(CoordinatedCheckpoints):
    def fits(self, handles: Sequence[TaskHandle]) -> bool:
        return False


def staged(protocol: type[CoordinatedCheckpoints]) -> Stage:
    JOB_SIDES.register(protocol.__name__, protocol)
    stage = Stage(replace(chain(), protocol=protocol.__name__))
    stage.start_up()
    return stage


def test_condemned_survivors_roll_the_job_back() -> None:
    stage = staged(AllGoBack)
    instructions = stage.say(ProcessDied(stage.process(MIDDLE), "killed"))
    (rolled_back,) = [e for e in reported(stage.answer(sent(instructions, Sever))) if isinstance(e, RolledBack)]
    assert rolled_back.reason == "the state of sink[0], source[0] does not fit the restart point of middle[0]"
    assert receivers(stage.start_up(), Promote)


def test_snapshots_that_do_not_fit_give_the_checkpoint_up() -> None:
    stage = staged(NothingFits)
    assert sent(stage.wait(6 * SECOND_US), TriggerCheckpoint)
    instructions = stage.snapshot(SOURCE, MIDDLE, SINK, checkpoint=1)
    assert CheckpointAborted(1, "the snapshots do not fit together") in reported(instructions)
    assert RolledBack not in happened(instructions)


@pytest.mark.parametrize("name", PROTOCOLS)
def test_a_protocol_that_a_setting_may_choose_has_both_sides(name: str) -> None:
    assert callable(JOB_SIDES.of(name))
    assert callable(TASK_SIDES.of(name))


def test_a_protocol_that_is_not_registered_is_named() -> None:
    with pytest.raises(SettingError, match="there is no checkpoint protocol 'unheard-of': choose one of"):
        Stage(replace(chain(), protocol="unheard-of"))
