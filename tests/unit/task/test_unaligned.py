"""Unaligned barriers: when a snapshot is taken."""

from __future__ import annotations

from clonos_py.protocols.unaligned.task import UnalignedBarriers
from tests.unit.task.plans import MIDDLE, three
from tests.unit.task.test_inputs import filled, taken


def test_the_first_barrier_of_a_checkpoint_takes_the_snapshot_and_blocks_no_channel() -> None:
    inputs = filled(2, 1)
    protocol = UnalignedBarriers(inputs, three(), MIDDLE)
    assert protocol.barrier(0, 1, epoch=0)
    assert sorted(taken(inputs)) == [0, 0, 1]


def test_barriers_of_a_checkpoint_that_was_taken_or_aborted_are_ignored() -> None:
    protocol = UnalignedBarriers(filled(1, 1), three(), MIDDLE)
    assert not protocol.barrier(1, 1, epoch=1)
    protocol.abort(2)
    assert not protocol.barrier(0, 2, epoch=1)
    assert protocol.barrier(0, 3, epoch=1)
