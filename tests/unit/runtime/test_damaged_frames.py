"""Frames of an authenticated peer, damaged anywhere: refused with a reason, or valid; other connections continue."""

from __future__ import annotations

import logging
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest

from clonos_py.channel.frames import Frame, FrameHeader, FrameKind
from clonos_py.link.instructions import Arrived, Connect, Connected, Hello, LinkEvent, Lost
from clonos_py.model.ids import Attempt, ChannelId, LogId
from clonos_py.model.segments import LogSegment
from clonos_py.runtime.ray.channels import Channels
from clonos_py.runtime.ray.wire_codec import WireCodec, encode_header
from clonos_py.runtime.transport.endpoint import Endpoint
from clonos_py.runtime.transport.events import Accepted
from clonos_py.runtime.transport.outbound import Outbound
from clonos_py.runtime.transport.wire import Preamble, WireKind, announce
from tests.unit.runtime.network import LOCALHOST, SECRET
from tests.unit.task.plans import DOWN, rows, three
from tests.waiting import attempts

CODEC = WireCodec()
HELLO = Hello("small", ChannelId(1, 0, 0), Attempt(1, 1), Attempt(1, 1), 0)
T = TypeVar("T", bound=LinkEvent)


class Receiver:
    """The channels of a task with two inputs: of a peer that sends damaged frames, and of one that does not."""

    def __init__(self, folder: Path, remote: bool) -> None:
        here, there = Endpoint(SECRET, "here", LOCALHOST, folder), "elsewhere" if remote else "here"
        self.channels = Channels(here, three((1, 2, 1), frame_rows=1_000), DOWN)
        self._peers = [Endpoint(SECRET, there, LOCALHOST, folder) for _ in range(2)]
        self._accepted = [0, 0]
        self.seen: list[LinkEvent] = []
        self.connections = [self.connect(0), self.connect(1)]

    def connect(self, number: int) -> int:
        """Connects an input, for the first time or again."""
        self.channels.connect(Connect(number, self._peers[number].address, HELLO))
        opened = len(self.of(Connected))
        self._until(lambda: len(self.of(Connected)) > opened)
        return self.of(Connected)[-1].connection

    def send_damaged(self, wire: bytes) -> None:
        """Sends bytes without the checks of the sender."""
        self._peers[0]._connections[self._accepted[0]].sock.sendall(wire)

    def still_receives(self, key: int) -> bool:
        """Whether a frame of the other input still arrives."""
        body = CODEC.encode(rows(key))
        header = FrameHeader(key, FrameKind.DATA, 0, 0, False, 0, 1, 0, CODEC.checksum(body, False), (), [])
        self._peers[1].send(self._accepted[1], encode_header(header), [body])
        self._until(lambda: any(event.header.seq == key for event in self.arrived(1)))
        return True

    def settle(self) -> None:
        """Polls until the damaged bytes have arrived, are refused, or wait for more."""
        for _ in range(3):
            self._turn()

    def arrived(self, number: int) -> list[Arrived]:
        return [event for event in self.of(Arrived) if event.connection == self.connections[number]]

    def lost(self) -> bool:
        """Whether the connection of the damaged frames was closed."""
        return any(event.connection == self.connections[0] for event in self.of(Lost))

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.seen if isinstance(event, kind)]

    def again(self) -> None:
        """A new connection for damaged frames."""
        self.connections[0] = self.connect(0)

    def close(self) -> None:
        for endpoint in self._peers:
            endpoint.close()
        self.channels.close()

    def _until(self, done: object) -> None:
        assert callable(done)
        for _ in attempts(lambda: self.seen, every_s=0):
            if done():
                break
            self._turn()

    def _turn(self) -> None:
        for number, peer in enumerate(self._peers):
            for event in peer.poll(0):
                if isinstance(event, Accepted):
                    self._accepted[number] = event.connection
        self.seen += self.channels.poll(0.001)


@contextmanager
def a_receiver(remote: bool) -> Iterator[Receiver]:
    with TemporaryDirectory(prefix="clonos-") as folder:
        receiver = Receiver(Path(folder), remote)
        yield receiver
        receiver.close()


def on_the_wire(header: FrameHeader, body: bytes) -> bytes:
    outbound = Outbound()
    outbound.add(WireKind.DATA, encode_header(header), [memoryview(body)])
    return b"".join(outbound.pieces())


def a_frame() -> tuple[FrameHeader, bytes]:
    body = CODEC.encode(rows(*range(30)))
    delta = [LogSegment(LogId(0), 0, 0, 0, 5, b"determinants")]
    header = FrameHeader(7, FrameKind.DATA, 3, 1_000, False, 0, 30, 0, CODEC.checksum(body, False), (), delta)
    return header, body.to_pybytes()


def is_valid(frame: Frame) -> bool:
    assert frame.rows is not None
    frame.rows.validate(full=True)
    return frame.rows.num_rows == 30 and len(frame.rows.to_pylist()) == 30


@pytest.mark.parametrize("remote", [False, True])
def test_a_flipped_bit_in_a_frame_closes_its_connection_or_leaves_a_valid_batch(
    remote: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Between nodes a checksum covers the body, too, so that every bit counts."""
    header, body = a_frame()
    wire = on_the_wire(header, body)
    refused = 0
    with a_receiver(remote) as receiver, caplog.at_level(logging.WARNING):
        for position in range(0, len(wire), 2):
            damaged = bytearray(wire)
            damaged[position] ^= 1 << random.Random(position).randrange(8)
            before = len(receiver.of(Arrived))
            receiver.send_damaged(bytes(damaged))
            receiver._until(lambda before=before: receiver.lost() or len(receiver.of(Arrived)) > before)
            if receiver.lost():
                refused += 1
                assert caplog.records
                caplog.clear()
                receiver.again()
            else:
                assert not remote
                assert position >= len(wire) - len(body)
                arrived = receiver.arrived(0)[-1]
                assert arrived.header == header
                assert is_valid(arrived.frame)
            assert position % 20 or receiver.still_receives(1_000 + position)
    assert refused >= (len(wire) - len(body)) // 2


@pytest.mark.parametrize("remote", [False, True])
def test_frames_with_random_damage_do_not_affect_other_connections(remote: bool) -> None:
    """Cuts, repetitions, changed stretches, other bodies under a proper header."""
    header, body = a_frame()
    with a_receiver(remote) as receiver:
        for seed in range(150):
            chance = random.Random(seed)
            inner = bytearray(body)
            for _ in range(chance.randrange(4)):
                start = chance.randrange(len(inner))
                inner[start : start + 8] = chance.randbytes(chance.choice([8, 8, 8, 3]))
            checksum = CODEC.checksum(memoryview(inner), False) if chance.random() < 0.7 else header.checksum  # type: ignore[arg-type]
            wire = on_the_wire(
                FrameHeader(7, FrameKind.DATA, 3, 1_000, False, 0, 30, 0, checksum, (), []), bytes(inner)
            )
            receiver.send_damaged(wire[: chance.choice([len(wire), len(wire), chance.randrange(len(wire))])])
            receiver.settle()
            assert all(is_valid(arrived.frame) for arrived in receiver.arrived(0))
            receiver.again()
            assert seed % 10 or receiver.still_receives(1_000 + seed)


def test_false_lengths_do_not_affect_other_connections() -> None:
    with a_receiver(True) as receiver:
        for header_bytes, body_bytes in [(1 << 30, 0), (10, 1 << 30), (1 << 30, 1 << 30), (0, (1 << 64) - 1)]:
            receiver.send_damaged(announce(Preamble(WireKind.DATA, header_bytes, body_bytes, 0)) + b"begin")
            receiver.settle()
            assert receiver.still_receives(header_bytes % 999 + body_bytes % 9_999)
            assert receiver.lost() == (body_bytes > 1 << 30)
            receiver.again()
