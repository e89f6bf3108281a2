"""The link of a task between two others, the events it gets, and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from clonos_py.causal.codec import encode
from clonos_py.causal.determinants import InputOrder
from clonos_py.channel.frames import FrameHeader, FrameKind, PassThrough
from clonos_py.link import instructions as io
from clonos_py.link.machine import LinkMachine
from clonos_py.model import messages as control
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.messages import Peer, Restore
from clonos_py.model.segments import LogSegment, Reach
from clonos_py.process import contract as task
from clonos_py.process.contract import ChannelLimits, TaskState
from tests.machines import link_machine
from tests.unit.task.plans import MIDDLE, UP, data, three

K = TypeVar("K")

PLAN = three()
INPUT, OUTPUT = PLAN.inputs[MIDDLE][0], PLAN.outputs[MIDDLE][0]
FIRST, SECOND, THIRD = Attempt(1, 1), Attempt(1, 2), Attempt(1, 3)
OWN_LOG = LogSegment(MIDDLE.log_id, 0, 0, 0, 1, encode([InputOrder(0, 1)]))
UP_LOG = LogSegment(UP.log_id, 0, 0, 0, 1, encode([InputOrder(0, 1)]))
FROM_UP, TO_DOWN = 10, 20
"""Connections."""


def of(instructions: list[io.Instruction], kind: type[K]) -> list[K]:
    return [i for i in instructions if isinstance(i, kind)]


def to_coordinator(instructions: list[io.Instruction]) -> list[Any]:
    return [i.message for i in of(instructions, io.SendToCoordinator)]


def handed(instructions: list[io.Instruction]) -> list[Any]:
    return [i.item for i in of(instructions, io.SendToTask)]


def sending(adaptive: bool) -> LinkMachine:
    """The link of a source whose frames go to a Python function, or not."""
    link = link_machine(three(adaptive=adaptive), UP, 5, PassThrough())
    link.handle(control.Promote(1, FIRST, Restore(0), []))
    link.handle(control.Replay(1, [], [], []))
    link.handle(task.StateChanged(TaskState.RUNNING))
    link.handle(io.Subscribed(TO_DOWN, io.Hello(PLAN.job, INPUT, FIRST, FIRST, 0)))
    return link


def standby(which: TaskId = MIDDLE, limits: ChannelLimits = ChannelLimits()) -> LinkMachine:  # noqa: B008 - frozen
    return link_machine(PLAN, which, 5, PassThrough(), limits)


def promote(attempt: Attempt = FIRST, restore: Restore = Restore(0)) -> control.Promote:  # noqa: B008 - frozen
    return control.Promote(1, attempt, restore, [Peer(INPUT, "up:1", FIRST)], "line-0")


def opening(seq: int = 0, delta: tuple[LogSegment, ...] = ()) -> io.Arrived:
    header = FrameHeader(seq, FrameKind.LOG_ONLY, 0, 0, False, 0, 0, 0, 0, (), list(delta))
    return io.Arrived(FROM_UP, header, data(seq))


def arrived(seq: int, *delta: LogSegment, checksum: int = 0) -> io.Arrived:
    header = FrameHeader(seq, FrameKind.DATA, 0, 0, False, 0, 1, 0, checksum, (), list(delta))
    return io.Arrived(FROM_UP, header, data(seq, seq))


def hello(sender: Attempt = FIRST, receiver: Attempt = FIRST, next_seq: int = 0, covered: int = 0) -> io.Hello:
    return io.Hello(PLAN.job, OUTPUT, receiver, sender, next_seq, covered)


def acknowledged(
    next_seq: int, held: Sequence[Reach] = (), rows_requested: int = 0, covered: int = 0, rows_at_once: int = 0
) -> io.Acknowledged:
    return io.Acknowledged(
        TO_DOWN,
        io.Acknowledgement(next_seq, list(held), rows_requested, rows_at_once, covered, io.SnapshotPosition(0, 0)),
    )


def subscribe(
    sender: Attempt = FIRST, receiver: Attempt = FIRST, connection: int = TO_DOWN, next_seq: int = 0, covered: int = 0
) -> io.Subscribed:
    return io.Subscribed(connection, hello(sender, receiver, next_seq, covered))


def connected(attempt: Attempt = FIRST, limits: ChannelLimits = ChannelLimits()) -> LinkMachine:  # noqa: B008 - frozen
    """A link that is promoted and connected, and waits for its log."""
    link = standby(limits=limits)
    (connect,) = of(link.handle(promote(attempt)), io.Connect)
    link.handle(io.Connected(0, FROM_UP, connect.hello))
    link.handle(opening())
    assert link.state is TaskState.FETCHING_DETERMINANTS
    return link


def running(attempt: Attempt = FIRST, limits: ChannelLimits = ChannelLimits()) -> LinkMachine:  # noqa: B008 - frozen
    link = connected(attempt, limits)
    link.handle(control.Replay(1, [], [], []))
    link.handle(task.StateChanged(TaskState.RUNNING))
    assert link.state is TaskState.RUNNING
    return link


def produced(*seqs: int, log: LogSegment | None = None) -> task.Produced:
    return task.Produced(log, [(0, data(seq, seq)) for seq in seqs])
