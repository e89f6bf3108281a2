"""Aligned barriers: which channels wait, and when a snapshot is taken."""

from __future__ import annotations

from clonos_py.causal.determinants import Abort, Trigger
from clonos_py.process.contract import AbortRequest, TriggerRequest
from clonos_py.protocols.aligned.task import AlignedBarriers
from clonos_py.task.inputs import Inputs
from tests.unit.task.plans import MIDDLE, three
from tests.unit.task.test_inputs import filled, taken

EPOCH = 0


def aligned(*counts: int) -> tuple[Inputs, AlignedBarriers]:
    """Inputs where so many frames wait behind the barrier of each channel."""
    inputs = filled(*counts)
    return inputs, AlignedBarriers(inputs, three(), MIDDLE)


def test_a_channel_is_blocked_after_its_barrier_until_all_barriers_have_come() -> None:
    inputs, protocol = aligned(2, 1)
    assert not protocol.barrier(0, 1, EPOCH)
    assert taken(inputs) == [1]
    assert protocol.barrier(1, 1, EPOCH)
    assert taken(inputs) == [0, 0]


def test_an_aborted_alignment_unblocks_all_channels() -> None:
    inputs, protocol = aligned(2, 2)
    protocol.barrier(0, 1, EPOCH)
    protocol.abort(1)
    assert sorted(taken(inputs)) == [0, 0, 1, 1]
    assert not protocol.barrier(1, 1, EPOCH), "it is void"


def test_an_abort_of_another_checkpoint_unblocks_no_channel() -> None:
    inputs, protocol = aligned(2, 2)
    protocol.barrier(0, 2, EPOCH)
    protocol.abort(1)
    assert taken(inputs) == [1, 1]


def test_a_later_barrier_ends_the_earlier_alignment() -> None:
    inputs, protocol = aligned(1, 1)
    protocol.barrier(0, 1, EPOCH)
    assert not protocol.barrier(1, 2, EPOCH)
    assert taken(inputs) == [0], "channel 0 waits no more, channel 1 does now"
    assert protocol.barrier(0, 2, EPOCH)


def test_a_barrier_of_an_earlier_checkpoint_is_ignored() -> None:
    inputs, protocol = aligned(1, 1)
    protocol.barrier(0, 2, EPOCH)
    assert not protocol.barrier(1, 1, EPOCH)
    assert taken(inputs) == [1]


def test_a_barrier_of_the_current_epoch_is_ignored() -> None:
    inputs, protocol = aligned(1)
    assert not protocol.barrier(0, 3, epoch=3)
    assert taken(inputs) == [0]


def test_calls_become_events_once_and_only_while_they_have_an_effect() -> None:
    _, protocol = aligned(1)
    for request in (TriggerRequest(1), AbortRequest(2), TriggerRequest(3), TriggerRequest(4)):
        protocol.triggered(request)
    assert protocol.due(0, epoch=1) == Abort(2)
    protocol.abort(3)
    assert protocol.due(0, epoch=1) == Trigger(4)
    assert protocol.due(0, epoch=1) is None


def test_restored_state_contains_no_alignment() -> None:
    inputs, protocol = aligned(1, 1)
    protocol.barrier(0, 1, EPOCH)
    assert protocol.state() == b""
    protocol.restore(b"")
    assert sorted(taken(inputs)) == [0, 1]
