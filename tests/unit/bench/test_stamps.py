"""The simulation of what stamps cost: its frames are those of the protocol, its figures those that are published."""

from __future__ import annotations

from clonos_py.bench.stamps import StampSimulation, plain
from clonos_py.channel.stamps import HmnrStamp
from clonos_py.task.checkpointing.hmnr import Hmnr


def test_stamps_are_a_tenth_of_plain_vectors_at_most() -> None:
    found = StampSimulation(10, 3, seconds=12, frames_per_s=20, interval_s=5).run()
    assert found.tasks == 30
    assert found.frames > 25_000
    assert 0 < found.stamp_bytes <= found.plain_bytes / 10
    assert 0 < found.forced < found.snapshots
    assert found.overhead(1) > found.overhead(64) > found.overhead(4_096) > 1
    assert found.overhead(1, plain=True) > found.overhead(1)


def test_without_frames_between_snapshots_nothing_is_forced() -> None:
    found = StampSimulation(2, 2, seconds=50, frames_per_s=0.01, interval_s=5).run()
    assert found.snapshots > 30
    assert found.forced == 0


def test_the_plain_form_holds_the_same_vectors() -> None:
    state = Hmnr(1, 3)
    state.snapshot()
    assert plain(state.stamp()) == plain(HmnrStamp(2, 0b101, 0b101, (0, 2, 0)))
    assert len(plain(state.stamp())) == 1 + 1 + (1 + 3) * 3
