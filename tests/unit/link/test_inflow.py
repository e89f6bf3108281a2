"""The input of a link without its machine: what is handed to the task, and what is acknowledged to senders when."""

from __future__ import annotations

import pytest

from clonos_py.channel.frames import PassThrough
from clonos_py.link import instructions as io
from clonos_py.link.catching_up import CatchingUp
from clonos_py.link.following import Following
from clonos_py.link.held_logs import HeldLogs
from clonos_py.link.inflow import Inflow
from clonos_py.link.receiving import InputChannel
from clonos_py.link.restoring import RestoredFrames, Restoring
from clonos_py.model.messages import Peer
from clonos_py.process.contract import Deliver, FramesTaken, InputProgress, Renumber, TaskProgress
from tests.unit.link.links import FIRST, FROM_UP, INPUT, PLAN, SECOND, arrived, handed, of, opening
from tests.unit.task.plans import MIDDLE, UP

WINDOW = 4
"""Every frame that the task has taken is acknowledged at once."""


class Input:
    """The input of the middle task, on an open connection."""

    def __init__(self, reports: bool = False) -> None:
        self.channel = InputChannel(0, INPUT, UP, WINDOW)
        self.channel.follow(Peer(INPUT, "up:1", FIRST))
        self.logs = HeldLogs(PLAN, MIDDLE, [self.channel])
        following = Following(PLAN, MIDDLE, self.logs.store)
        frames = RestoredFrames(PLAN, PassThrough(), False)
        restoring = Restoring(5, MIDDLE, [self.channel], [], frames, following)
        self.inflow = Inflow([self.channel], self.logs, CatchingUp(5, 1), restoring, lambda channel: reports)
        self.channel.connection = FROM_UP
        self.inflow.arrived(opening())

    def connected(self, covered: int) -> list[io.Acknowledgement]:
        hello = io.Hello(PLAN.job, INPUT, FIRST, FIRST, self.channel.next_seq, covered)
        return said(self.inflow.connected(io.Connected(0, FROM_UP, hello)))


def said(instructions: list[io.Instruction]) -> list[io.Acknowledgement]:
    return [ack.acknowledgement for ack in of(instructions, io.SendAck)]


def progress(received: int) -> TaskProgress:
    return TaskProgress([InputProgress(received)], [0], [], [], False, 0, [], [], [], {})


@pytest.fixture
def given() -> Input:
    return Input()


def test_a_frame_is_handed_to_the_task_and_acknowledged_when_the_task_has_taken_it(given: Input) -> None:
    instructions = given.inflow.arrived(arrived(0))
    assert [type(item) for item in handed(instructions)] == [Deliver]
    assert said(instructions) == []
    (acknowledged,) = said(given.inflow.taken(FramesTaken(0, 1)))
    assert acknowledged.next_seq == 1


def test_nothing_is_acknowledged_without_a_connection(given: Input) -> None:
    given.inflow.arrived(arrived(0))
    given.channel.connection = None
    assert given.inflow.taken(FramesTaken(0, 1)) == []
    assert given.inflow.channel_on(FROM_UP) is None


def test_a_new_connection_is_acknowledged_if_the_restart_point_covers_more_than_its_subscription_says(
    given: Input,
) -> None:
    given.inflow.arrived(arrived(0))
    given.inflow.cover(progress(1))
    assert [ack.covered for ack in given.connected(covered=0)] == [1]
    assert given.connected(covered=1) == []


@pytest.mark.parametrize("reports", [True, False])
def test_only_senders_that_store_channel_state_get_the_position_of_a_snapshot(reports: bool) -> None:
    given = Input(reports)
    given.inflow.arrived(arrived(0))
    sent = said(given.inflow.report_snapshot(3, progress(1)))
    assert [ack.snapshot for ack in sent] == ([io.SnapshotPosition(3, 1)] if reports else [])


def test_a_snapshot_is_reported_again_on_a_new_connection() -> None:
    given = Input(reports=True)
    given.inflow.report_snapshot(3, progress(0))
    assert [ack.snapshot.checkpoint for ack in said(given.inflow.arrived(opening()))] == [3]


def test_frames_of_a_sender_without_its_log_are_void_and_come_again_under_other_numbers(given: Input) -> None:
    given.inflow.arrived(arrived(0))
    taken = FramesTaken(0, 1)
    given.channel.follow(Peer(INPUT, "up:2", SECOND, reset=True))
    assert handed(given.inflow.void([given.channel])) == [Renumber(0, -1, False)]
    assert given.inflow.has_other_numbers(taken)
    assert handed(given.inflow.arrived(opening(7))) == [Renumber(0, 7, False)]
    assert given.inflow.has_other_numbers(taken)
    assert not given.inflow.has_other_numbers(FramesTaken(0, 1, restarts=2))
