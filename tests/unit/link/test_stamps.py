"""Stamps of communication-induced checkpoints between two links: small on a connection, whole for tasks."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from clonos_py.channel.frames import FrameHeader, PassThrough
from clonos_py.channel.stamps import HmnrStamp
from clonos_py.link import instructions as io
from clonos_py.link.machine import LinkMachine
from clonos_py.link.stamps import SentStamps
from clonos_py.model import messages as control
from clonos_py.model.errors import CodecError
from clonos_py.process import contract as task
from clonos_py.process.contract import Deliver, TaskState
from clonos_py.settings.protocols import INDUCED
from tests.machines import link_machine
from tests.unit.link.links import FROM_UP, PLAN, TO_DOWN, arrived, handed, of, opening, promote, subscribe
from tests.unit.task.plans import MIDDLE, data

TASKS = len(PLAN.tasks)
FIRST, LATER = HmnrStamp(1, 0, 0, (1, 1, 0)), HmnrStamp(3, 5, 0, (3, 2, 0))


def running() -> LinkMachine:
    link = link_machine(replace(PLAN, protocol=INDUCED), MIDDLE, 5, PassThrough())
    (connect,) = of(link.handle(promote()), io.Connect)
    link.handle(io.Connected(0, FROM_UP, connect.hello))
    link.handle(opening())
    link.handle(control.Replay(1, [], [], []))
    link.handle(task.StateChanged(TaskState.RUNNING))
    return link


def stamped(*stamps: HmnrStamp | None) -> task.Produced:
    frames = [(0, replace(data(seq, seq), stamp=s.encode() if s else b"")) for seq, s in enumerate(stamps)]
    return task.Produced(None, frames)


def sent(instructions: list[io.Instruction]) -> list[bytes]:
    return [wish.header.meta for wish in of(instructions, io.SendFrame)]


def travelled(*stamps: HmnrStamp | None) -> list[bytes]:
    writer = SentStamps(TASKS)
    return [writer.write(stamp.encode() if stamp else b"") for stamp in stamps]


def test_a_connection_carries_a_whole_stamp_first_and_then_differences() -> None:
    link = running()
    link.handle(subscribe())
    given = sent(link.handle(stamped(FIRST, FIRST, LATER)))
    assert given == travelled(FIRST, FIRST, LATER)
    assert given[0] == b"\x01" + FIRST.encode()
    assert given[1] == b""
    assert len(given[2]) < len(given[0])


def test_a_new_connection_begins_with_a_whole_stamp() -> None:
    link = running()
    link.handle(subscribe())
    link.handle(stamped(FIRST, LATER))
    link.handle(io.Lost(TO_DOWN))
    again = sent(link.handle(subscribe(connection=TO_DOWN + 1)))
    assert again == [b"", *travelled(FIRST, LATER)], "the log-only frame carries none"


def test_the_task_gets_whole_stamps() -> None:
    link = running()
    items: list[object] = []
    for seq, data_ in enumerate(travelled(FIRST, FIRST, LATER)):
        event = arrived(seq)
        items += handed(link.handle(msgspec.structs.replace(event, header=with_stamp(event, data_))))
    found = [item.frame.stamp for item in items if isinstance(item, Deliver)]
    assert found == [stamp.encode() for stamp in (FIRST, FIRST, LATER)]


def with_stamp(event: io.Arrived, data_: bytes) -> FrameHeader:
    return msgspec.structs.replace(event.header, meta=data_)


def test_frames_of_another_protocol_have_no_stamp() -> None:
    assert travelled(None, None, FIRST) == [b"", b"", b"\x01" + FIRST.encode()]


def test_a_stamp_that_cannot_be_read_is_an_error() -> None:
    link, event = running(), arrived(0)
    with pytest.raises(CodecError, match="are no stamp"):
        link.handle(msgspec.structs.replace(event, header=with_stamp(event, b"\x01\xff")))
