"""Frames out of a stream of bytes, however the stream is divided."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.model.errors import CodecError
from clonos_py.runtime.transport.inbound import STAGING_BYTES, STAGING_BYTES_UNPROVEN, Inbound
from clonos_py.runtime.transport.outbound import Outbound
from clonos_py.runtime.transport.wire import PREAMBLE_BYTES, Limits, Preamble, WireKind, announce

FRAMES = st.lists(st.tuples(st.binary(max_size=300), st.lists(st.binary(max_size=3000), max_size=3)), max_size=8)
LIMITS = Limits(1 << 20, 1 << 20)


def written(frames: list[tuple[bytes, list[bytes]]], chunks: list[int]) -> bytes:
    """The bytes of an Outbound when each call sends as much as the next of ``chunks`` allows."""
    outbound = Outbound()
    for header, bodies in frames:
        outbound.add(WireKind.DATA, header, [memoryview(body) for body in bodies])
    wire = b""
    while pieces := outbound.pieces():
        sent = b"".join(pieces)[: chunks[len(wire) % len(chunks)]]
        outbound.advance(len(sent))
        wire += sent
    assert outbound.unsent_bytes == 0
    return wire


def read(inbound: Inbound, wire: bytes, chunks: list[int]) -> list[tuple[bytes, bytes]]:
    found, position = [], 0
    while position < len(wire):
        rest = memoryview(wire)[position : position + chunks[position % len(chunks)]]
        taken = 0
        for target in inbound.targets():
            piece = rest[taken : taken + len(target)]
            target[: len(piece)] = piece
            taken += len(piece)
        inbound.advance(taken)
        position += taken
        while frame := inbound.next_frame():
            found.append((frame.header, bytes(frame.body) if frame.body else b""))
    return found


@given(FRAMES, st.lists(st.integers(1, 5000), min_size=1), st.lists(st.integers(1, 5000), min_size=1))
def test_frames_survive_any_division_of_the_stream(
    frames: list[tuple[bytes, list[bytes]]], sent: list[int], received: list[int]
) -> None:
    wire = written(frames, sent)
    assert read(Inbound(LIMITS), wire, received) == [(header, b"".join(bodies)) for header, bodies in frames]


@pytest.mark.parametrize("size", [0, 1, STAGING_BYTES - 1, STAGING_BYTES, STAGING_BYTES + 1, 3 * STAGING_BYTES])
def test_bodies_around_the_size_of_the_staging_buffer_arrive_whole(size: int) -> None:
    frames = [(b"header", [bytes([number]) * size]) for number in range(4)]
    wire = written(frames, [1 << 30])
    assert read(Inbound(LIMITS), wire, [100_000]) == [(header, bodies[0]) for header, bodies in frames]


@given(st.binary(min_size=PREAMBLE_BYTES), st.lists(st.integers(1, 500), min_size=1))
def test_any_other_bytes_are_refused(noise: bytes, chunks: list[int]) -> None:
    if not noise.startswith(b"clns"):
        with pytest.raises(CodecError):
            read(Inbound(LIMITS), noise, chunks)


def test_a_flipped_bit_in_the_preamble_or_header_of_a_frame_is_refused() -> None:
    """With a wrong length, the receiver would wait for bytes that never come; a wrong header would be accepted."""
    for header in (b"header", b"h" * 2 * STAGING_BYTES):
        wire = written([(header, [b"body" * 100])], [1 << 30])
        for position in [*range(PREAMBLE_BYTES), PREAMBLE_BYTES, PREAMBLE_BYTES + len(header) - 1]:
            for bit in range(8):
                damaged = bytearray(wire)
                damaged[position] ^= 1 << bit
                with pytest.raises(CodecError):
                    read(Inbound(LIMITS), bytes(damaged), [1 << 30])


@given(FRAMES, st.lists(st.integers(1, 5000), min_size=1), st.integers(0, 8))
def test_frames_survive_the_change_to_a_larger_buffer(
    frames: list[tuple[bytes, list[bytes]]], received: list[int], before: int
) -> None:
    inbound = Inbound(LIMITS, STAGING_BYTES_UNPROVEN)
    wire = written(frames, [1 << 30])
    first = written(frames[:before], [1 << 30])
    found = read(inbound, first, received)
    inbound.trust(LIMITS)
    found += read(inbound, wire[len(first) :], received)
    assert found == [(header, b"".join(bodies)) for header, bodies in frames]


@pytest.mark.parametrize(("header_bytes", "body_bytes"), [((1 << 30) - 1, 0), (10, 1 << 30)])
def test_a_false_length_takes_no_memory(header_bytes: int, body_bytes: int) -> None:
    def resident_bytes() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    before = resident_bytes()
    inbound = Inbound(Limits())
    assert read(inbound, announce(Preamble(WireKind.DATA, header_bytes, body_bytes, 0)) + b"begin", [1 << 30]) == []
    assert resident_bytes() - before < 64 << 20


def test_a_length_that_exceeds_memory_is_refused() -> None:
    limits = Limits(1 << 30, 1 << 62)
    with pytest.raises(CodecError, match="no memory for a frame of 10 \\+ 4611686018427387904 bytes"):
        read(Inbound(limits), announce(Preamble(WireKind.DATA, 10, 1 << 62, 0)), [1 << 30])
