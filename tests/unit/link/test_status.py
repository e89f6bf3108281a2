"""The status that a process sends to a new coordinator."""

from __future__ import annotations

from clonos_py.channel.frames import FrameHeader, FrameKind, PassThrough
from clonos_py.link import instructions as io
from clonos_py.link.machine import LinkMachine
from clonos_py.model import messages as control
from clonos_py.model.errors import UserCodeError
from clonos_py.model.messages import Restore, StatusReport
from clonos_py.process import contract as task
from clonos_py.process.contract import ChannelLimits, TaskState
from tests.machines import link_machine
from tests.unit.link.links import (
    FIRST,
    FROM_UP,
    PLAN,
    SECOND,
    connected,
    opening,
    promote,
    running,
    standby,
    subscribe,
    to_coordinator,
)
from tests.unit.task.plans import DOWN, MIDDLE, UP, barrier, data


def status(link: LinkMachine) -> StatusReport:
    (answer, *_) = to_coordinator(link.handle(control.StatusRequest()))
    assert isinstance(answer, StatusReport)
    return answer


def test_a_standby_reports_the_state_it_has_loaded() -> None:
    link = standby()
    assert status(link) == StatusReport(5)
    link.handle(control.Prepare(Restore(3)))
    assert status(link) == StatusReport(5, restore=3)


def test_a_promoted_process_without_a_log_has_not_begun() -> None:
    link = connected(SECOND)
    assert status(link) == StatusReport(5, SECOND, round=1, peers=[(UP, FIRST)])


def test_a_promoted_process_with_its_log_has_begun_although_its_state_is_not_loaded() -> None:
    """Another log would come too late: the task begins with this one."""
    link = standby()
    link.handle(promote(SECOND, Restore(3)))
    link.handle(control.Replay(1, [], [], []))
    assert status(link).begun


def test_a_task_reports_its_attempt_and_those_of_its_neighbours() -> None:
    link = running()
    link.handle(subscribe(receiver=SECOND))
    answer = status(link)
    assert (answer.attempt, answer.begun) == (FIRST, True)
    assert answer.peers == [(UP, FIRST), (DOWN, SECOND)]


def test_the_newest_attempt_of_a_neighbour_is_reported_before_it_subscribes() -> None:
    link = running()
    link.handle(subscribe())
    link.handle(control.Sever(2, [], [(DOWN, SECOND)], control.Complete(0)))
    assert (DOWN, SECOND) in status(link).peers


def test_the_newest_checkpoint_is_reported_from_any_message_that_names_it() -> None:
    link = running()
    link.handle(control.TriggerCheckpoint(2))
    assert status(link).checkpoint == 2
    link.handle(control.AbortCheckpoint(3))
    assert status(link).checkpoint == 3
    header = FrameHeader(0, FrameKind.BARRIER, 0, 0, False, 4, 0, 0, 0, (), [])
    link.handle(io.Arrived(FROM_UP, header, barrier(0, 4)))
    assert status(link).checkpoint == 4


def test_checkpoints_that_were_void_at_the_replay_are_reported() -> None:
    link = connected(SECOND)
    link.handle(control.Replay(1, [], [], aborted=[1, 2, 3]))
    assert status(link).checkpoint == 3


def test_a_finished_task_reports_that_it_has_drained() -> None:
    link = running()
    link.handle(task.StateChanged(TaskState.FINISHED))
    assert status(link).drained


def test_a_failure_is_reported_again_to_the_next_coordinator() -> None:
    link = running()
    failed = to_coordinator(link.fail(UserCodeError("division by zero")))
    assert [status(link).failure] == failed


def test_a_task_reports_what_it_has_committed() -> None:
    """The lost coordinator may be the only one that had its report."""
    link = running()
    link.handle(io.CommitDone(7))
    assert status(link).committed == 7


def test_a_checkpoint_requested_from_a_lost_coordinator_is_requested_again() -> None:
    link = link_machine(PLAN, MIDDLE, 5, PassThrough(), ChannelLimits(budget_bytes=100, reserve=10))
    (connect,) = [i for i in link.handle(promote()) if isinstance(i, io.Connect)]
    link.handle(io.Connected(0, FROM_UP, connect.hello))
    link.handle(opening())
    link.handle(control.Replay(1, [], [], []))
    link.handle(task.StateChanged(TaskState.RUNNING))
    wish = control.RequestCheckpoint(5)
    produced = task.Produced(None, [(0, data(0, *range(10)))])
    assert wish in to_coordinator(link.handle(produced))
    assert wish not in to_coordinator(link.handle(task.Produced(None, [(0, data(1, 1))])))
    assert wish in to_coordinator(link.handle(control.StatusRequest()))
