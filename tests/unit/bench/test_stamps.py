"""The published figures of stamps, from the traffic that tests/unit/channel/test_stamps.py bounds."""

from __future__ import annotations

from clonos_py.bench.stamps import as_msgpack, traffic
from clonos_py.channel.stamps import HmnrStamp
from clonos_py.protocols.induced.hmnr import Hmnr


def test_the_overhead_of_stamps_falls_with_the_rows_of_a_frame() -> None:
    found = traffic(10, 20, 12)
    assert found.frames > 2_500
    assert 0 < found.travelled <= found.plain / 10
    assert 0 < found.forced < found.local
    assert found.overhead(1) > found.overhead(64) > found.overhead(4_096) > 1
    assert found.overhead(1, plain=True) > found.overhead(1)


def test_without_frames_no_checkpoint_is_forced() -> None:
    found = traffic(2, 0.01, 50)
    assert found.local > 30
    assert found.forced == 0


def test_the_plain_form_has_the_same_vectors() -> None:
    state = Hmnr(1, 3)
    state.snapshot()
    assert as_msgpack(state.stamp()) == as_msgpack(HmnrStamp(2, 0b101, 0b101, (0, 2, 0)))
    assert len(as_msgpack(state.stamp())) == 1 + 1 + (1 + 3) * 3
