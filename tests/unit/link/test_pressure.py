"""Which frames go to disk, when a task may produce, and when the limit is exceeded, by the size of the in-flight
logs."""

from __future__ import annotations

from dataclasses import replace
from itertools import takewhile

import pytest

from clonos_py.causal.log import CausalStore
from clonos_py.channel.frames import Frame, FrameKind, PassThrough
from clonos_py.channel.retained import RetainedFrame
from clonos_py.link import instructions as io
from clonos_py.link.catching_up import CatchingUp
from clonos_py.link.causal_outputs import CausalOutputs
from clonos_py.link.outflow import Outflow
from clonos_py.link.pressure import Pressure
from clonos_py.link.receiving import InputChannel
from clonos_py.link.sending import OutputChannel, SendWindow, window_of
from clonos_py.model.errors import CapacityError
from clonos_py.model.ids import Attempt
from clonos_py.model.retention import Spill
from clonos_py.process.contract import ChannelLimits
from tests.unit.task.plans import DOWN, MIDDLE, three

CHANNEL = three().outputs[MIDDLE][0]
NOTHING_SHOWN = CausalOutputs(three(), MIDDLE, CausalStore(), PassThrough())


def output() -> OutputChannel:
    return OutputChannel(0, CHANNEL, DOWN, frozenset())


def cut(channel: OutputChannel, *sizes: int, epoch: int = 0) -> None:
    for size in sizes:
        channel.frames.append(RetainedFrame(Frame(channel.frames.next_seq, FrameKind.DATA, epoch), 1, "body", size, 0))


def pressure(
    channel: OutputChannel, policy: Spill = Spill.IN_MEMORY, source: bool = True, spill_bytes: int = 40
) -> Pressure:
    return Pressure(
        [channel], ChannelLimits(2, 100, policy=policy, spill_bytes=spill_bytes), source, False, NOTHING_SHOWN
    )


def writing(weighed: Pressure) -> list[int]:
    return [entry.frame.seq for _, entries in weighed.to_write() for entry in entries]


def test_in_memory_no_frame_is_written() -> None:
    channel = output()
    weighed = pressure(channel)
    cut(channel, 90)
    assert not weighed.writes
    assert writing(weighed) == []


def test_spill_buffer_writes_every_frame_as_it_is_cut() -> None:
    channel = output()
    weighed = pressure(channel, Spill.BUFFER)
    cut(channel, 1)
    assert writing(weighed) == [0]
    cut(channel, 1, 1)
    assert writing(weighed) == [1, 2]


def test_spill_epoch_writes_an_epoch_when_the_next_one_begins() -> None:
    channel = output()
    weighed = pressure(channel, Spill.EPOCH)
    cut(channel, 1, 1)
    assert writing(weighed) == []
    cut(channel, 1, epoch=1)
    assert writing(weighed) == [0, 1]


@pytest.mark.parametrize("policy", [Spill.THRESHOLD, Spill.REGENERATE])
def test_spill_threshold_writes_the_oldest_frames_until_there_is_room(policy: Spill) -> None:
    channel = output()
    weighed = pressure(channel, policy)
    cut(channel, 10, 10, 10, 10)
    assert writing(weighed) == []
    cut(channel, 10)
    assert writing(weighed) == [0, 1], "of 50 bytes as many as leave no more than 30"
    assert writing(weighed) == []


def test_an_output_that_regenerates_frames_writes_none() -> None:
    channel = OutputChannel(0, CHANNEL, DOWN, frozenset(), regenerates=True)
    assert not Pressure([channel], ChannelLimits(policy=Spill.REGENERATE), True, True, NOTHING_SHOWN).writes


def test_a_checkpoint_is_requested_half_way_to_the_budget() -> None:
    channel = output()
    weighed, spilling = pressure(channel), pressure(channel, Spill.THRESHOLD)
    cut(channel, 51)
    assert weighed.measure().wants_checkpoint
    assert not spilling.measure().wants_checkpoint
    cut(channel, 20)
    assert spilling.measure().wants_checkpoint


def test_a_full_disk_requests_a_checkpoint_and_stops_writing() -> None:
    channel = output()
    weighed = pressure(channel, Spill.BUFFER)
    cut(channel, 1)
    weighed.disk_problem = "the disk is full"
    assert weighed.measure().wants_checkpoint
    assert writing(weighed) == []
    weighed.disk_problem = None
    assert writing(weighed) == [0]


def test_a_source_stops_reading_at_the_budget() -> None:
    channel = output()
    weighed = pressure(channel)
    cut(channel, 99)
    assert weighed.measure().may_produce
    cut(channel, 1)
    assert not weighed.measure().may_produce


def test_a_task_with_inputs_exceeds_the_budget_until_the_barrier_has_passed() -> None:
    channel = output()
    weighed = pressure(channel, source=False)
    cut(channel, 120)
    assert weighed.measure().may_produce, "the barrier that would free its memory is behind other frames"
    weighed.barrier_passed = 1
    assert not weighed.measure().may_produce


def test_a_step_that_produces_more_than_the_budget_waits_for_the_disk() -> None:
    channel = output()
    weighed = pressure(channel, Spill.BUFFER, source=False)
    cut(channel, 400)
    assert writing(weighed) == [0]
    assert not weighed.measure().may_produce
    channel.frames.written(0, "a place")
    assert weighed.measure().may_produce


def test_a_step_that_produces_more_than_the_budget_with_a_full_disk_is_an_error() -> None:
    channel = output()
    weighed = pressure(channel, Spill.BUFFER, source=False)
    cut(channel, 400)
    assert writing(weighed) == [0]
    channel.frames.not_written(0)
    weighed.disk_problem = "the disk is full"
    with pytest.raises(CapacityError, match="as the disk is full: free space there"):
        weighed.measure()


@pytest.mark.parametrize("window", range(1, 65))
def test_frames_that_are_merged_fit_into_the_narrowest_window(window: int) -> None:
    """Beside frames that were taken one by one and are not acknowledged yet."""
    limits, edge = ChannelLimits(window), replace(three().edges[CHANNEL.edge], adaptive=True, merge_rows=8)
    receiver, fewest = InputChannel(0, CHANNEL, MIDDLE, window), window_of(edge, limits).fewest
    receiver.next_seq = fewest
    unacknowledged = list(takewhile(lambda taken: receiver.acknowledge(taken) is None, range(1, fewest)))
    assert fewest - len(unacknowledged) >= limits.frames_merged


def test_receivers_that_are_behind_hold_the_task_back() -> None:
    channel = OutputChannel(0, CHANNEL, DOWN, frozenset(), window=SendWindow(2, 2))
    weighed = pressure(channel)
    channel.subscribe(1, Attempt(1, 1), 0, CausalStore())
    cut(channel, 1, 1, 1)
    assert weighed.measure().may_produce
    cut(channel, 1)
    assert not weighed.measure().may_produce


def test_when_the_reserve_is_spent_the_error_names_the_cause_and_the_remedy() -> None:
    channel = output()
    weighed = pressure(channel, source=False)
    cut(channel, 150)
    weighed.measure()
    cut(channel, 1)
    with pytest.raises(CapacityError, match="checkpoint more often, raise the budget, or choose a spill policy"):
        weighed.measure()
    spilling = pressure(channel, Spill.BUFFER)
    spilling.disk_problem = "the disk for retained frames, /tmp/x, is full"
    with pytest.raises(CapacityError, match=r"reserve is spent, as the disk .* is full: free space there"):
        spilling.measure()


def test_frames_on_a_feedback_channel_hold_no_task_back_but_count_towards_the_budget() -> None:
    channel = OutputChannel(0, CHANNEL, DOWN, frozenset(), feedback=True)
    channel.cursor.connect(0)
    cut(channel, *[10] * 8)
    assert channel.cursor.unreceived == 8
    assert pressure(channel, source=False).measure().may_produce
    assert pressure(channel, Spill.THRESHOLD).writes
    assert writing(pressure(channel, Spill.THRESHOLD)), "the oldest go to disk"
    cut(channel, 30)
    assert pressure(channel).measure().wants_checkpoint
    assert not pressure(channel, source=True).measure().may_produce, "the budget is spent"


def test_a_channel_without_traffic_does_not_suppress_requests_for_checkpoints() -> None:
    busy, quiet = outputs = [output(), output()]
    limits = ChannelLimits(2, 100, policy=Spill.IN_MEMORY)
    pressure = Pressure(outputs, limits, True, False, NOTHING_SHOWN)
    outflow = Outflow(1, None, outputs, CausalStore(), PassThrough(), limits, pressure, CatchingUp(1, 0))
    outflow.started = True

    def asks() -> bool:
        return any(isinstance(instruction, io.SendToCoordinator) for instruction in outflow.check_pressure())

    cut(busy, *[10] * 7)
    assert asks()
    outflow.cover(busy, 7)
    outflow.cover(quiet, 0)
    cut(busy, *[10] * 9)
    assert asks()
