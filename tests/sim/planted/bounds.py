"""Bugs of growth without a bound, of operators ahead of event time, and of waits that are too long."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from clonos_py.channel.frames import FrameKind
from clonos_py.channel.regenerated import RegeneratedFrames
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.takeover import Takeover
from clonos_py.job.unreachable import Unreachable
from clonos_py.link import instructions as io
from clonos_py.link.epochs import Epochs
from clonos_py.link.inflow import Inflow
from clonos_py.link.receiving import InputChannel
from clonos_py.model.snapshots import TaskSnapshot
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.process.contract import SnapshotTaken, TaskProgress
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.runtime.sim.harsh_environment import HarshEnvironment
from clonos_py.task import machine
from clonos_py.task.idleness import Idleness
from clonos_py.task.inputs import Inputs
from clonos_py.task.lingering import Lingering
from clonos_py.task.machine import TaskMachine
from clonos_py.task.outputs import Outputs
from clonos_py.task.partition_times import PartitionTimes
from clonos_py.task.timers import Timers
from tests.sim.planted.bug import Bugs
from tests.sim.planted.seams import made_with

BUGS = Bugs()
FOREVER_US = 1 << 60

# ---- growth


@BUGS.planted()
def frames_are_acknowledged_before_they_are_taken(patch: pytest.MonkeyPatch) -> None:
    arrived = Inflow.arrived

    def hasty(self: Inflow, event: io.Arrived) -> list[io.Instruction]:
        instructions, channel = arrived(self, event), self.channel_on(event.connection)
        if channel is None or event.header.kind is FrameKind.LOG_ONLY:
            return instructions
        return [*instructions, *self.acknowledge(channel, channel.next_seq)]

    patch.setattr(Inflow, "arrived", hasty)


@BUGS.planted()
def checksums_of_inputs_are_never_dropped(patch: pytest.MonkeyPatch) -> None:
    def keeping(self: InputChannel, epoch: int) -> None:
        """Nothing is dropped."""

    patch.setattr(InputChannel, "drop_before", keeping)


@BUGS.planted()
def checksums_of_frames_that_can_be_made_again_are_never_dropped(patch: pytest.MonkeyPatch) -> None:
    drop_below = RegeneratedFrames.drop_below
    patch.setattr(RegeneratedFrames, "drop_below", lambda self, at, covered: drop_below(self, at, 0))


@BUGS.planted()
def notes_of_snapshots_are_never_dropped(patch: pytest.MonkeyPatch) -> None:
    add, complete = Epochs.add, Epochs.complete
    notes: dict[Epochs, dict[int, TaskProgress]] = {}

    def noted(self: Epochs, event: SnapshotTaken) -> TaskSnapshot:
        notes.setdefault(self, {})[event.snapshot.checkpoint] = event.progress
        return add(self, event)

    def keeping(self: Epochs, checkpoint: int) -> TaskProgress | None:
        found = complete(self, checkpoint)
        for number, progress in notes.get(self, {}).items():
            self.restored(number, progress, {})
        return found

    patch.setattr(Epochs, "add", noted)
    patch.setattr(Epochs, "complete", keeping)


@BUGS.planted()
def lost_connections_are_never_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unreachable, "progress", lambda self: None)


# ---- event time


@BUGS.planted()
def partitions_none_of_which_is_active_are_at_the_end_of_time(patch: pytest.MonkeyPatch) -> None:
    def watermark(self: PartitionTimes, active: Sequence[int]) -> int:
        return min(map(self.of, active), default=MAX_TIME if self.all else MIN_TIME)

    patch.setattr(PartitionTimes, "watermark", watermark)


@BUGS.planted()
def an_input_that_has_ended_is_at_the_end_of_time_beside_an_idle_one(patch: pytest.MonkeyPatch) -> None:
    def watermark(self: Inputs) -> int:
        awake = [channel.watermark for channel in self.progress if not channel.ended and not channel.idle]
        return min(awake, default=MAX_TIME if any(channel.ended for channel in self.progress) else MIN_TIME)

    patch.setattr(Inputs, "watermark", property(watermark))


@BUGS.planted(silent=True)
def event_time_waits_for_the_input_that_fell_idle_last(patch: pytest.MonkeyPatch) -> None:
    """Once all are idle, only inputs that have ended count."""

    def watermark(self: Inputs) -> int:
        known = self.progress
        counting = [c for c in known if not c.ended and not c.idle]
        if all(channel.ended for channel in known):
            return MAX_TIME
        if counting:
            return min(channel.watermark for channel in counting)
        return max((channel.watermark for channel in known if channel.ended), default=MIN_TIME)

    patch.setattr(Inputs, "watermark", property(watermark))


@BUGS.planted(silent=True)
def event_time_waits_for_the_partition_that_fell_idle_last(patch: pytest.MonkeyPatch) -> None:
    watermark = PartitionTimes.watermark
    patch.setattr(PartitionTimes, "watermark", lambda self, active: watermark(self, active) if active else MIN_TIME)


@BUGS.planted(silent=True)
def partitions_are_never_idle(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Idleness, "due", lambda self, active, now_us: None)
    patch.setattr(Idleness, "next_us", lambda self, active: None)


# ---- waiting


class LingeringByTimeOfDay(Lingering):
    """Keeps the end of the wait as a time of day."""

    def __init__(self, environment: HarshEnvironment, outputs: Outputs, linger_us: int, cuts_early: bool) -> None:
        self.environment = environment
        super().__init__(outputs, linger_us, cuts_early)

    @property
    def until_us(self) -> int | None:
        return None if self.at_us is None else self.at_us - self.environment.ahead_us

    @until_us.setter
    def until_us(self, until_us: int | None) -> None:
        self.at_us = None if until_us is None else until_us + self.environment.ahead_us


@BUGS.planted("clock")
def rows_linger_by_the_time_of_day(patch: pytest.MonkeyPatch) -> None:
    """The end of the wait is a time of day, which may be set back meanwhile."""
    create = TaskMachine.__init__

    def with_environment(self: TaskMachine, plan: Any, task: Any, environment: Any, *more: Any) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(machine, "Lingering", partial(LingeringByTimeOfDay, environment))
            create(self, plan, task, environment, *more)

    patch.setattr(TaskMachine, "__init__", with_environment)


@BUGS.planted("clock")
def timers_have_no_limit(patch: pytest.MonkeyPatch) -> None:
    """They fire by the time of day only."""

    set_, restore = Timers.set, Timers.restore

    def unlimited(self: Timers, operator: int, at_us: int, last_answered_us: int | None = None) -> None:
        set_(self, operator, at_us, at_us - FOREVER_US)

    patch.setattr(Timers, "set", unlimited)
    patch.setattr(Timers, "restore", lambda self, timers, left_us: restore(self, timers, [FOREVER_US] * len(timers)))


@BUGS.planted("clock", "kill")
def snapshots_take_what_is_left_for_timers_from_the_time_of_day(patch: pytest.MonkeyPatch) -> None:
    """A task may have another time of day than its predecessor, which set the timers."""

    made = made_with(patch, Timers)

    def left_us(self: Timers) -> list[int]:
        return [at_us - made[self]["time_of_day"]() for at_us, _ in self.all]

    patch.setattr(Timers, "left_us", property(left_us))


@BUGS.planted("disk", endless=True)
def a_manifest_that_hangs_is_waited_for_without_an_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CoordinatedCheckpoints, "limit_us", MAX_TIME)


@BUGS.planted("coordinator", "partition", "zombie")
def a_coordinator_takes_its_standstill_for_the_silence_of_others(patch: pytest.MonkeyPatch) -> None:
    def advance_clock(self: CoordinatorContext, clock_us: int, due_us: int) -> None:
        self.now_us = max(self.now_us, clock_us)

    patch.setattr(CoordinatorContext, "advance_clock", advance_clock)


@BUGS.planted("coordinator", "zombie")
def the_time_of_the_takeover_counts_as_silence(patch: pytest.MonkeyPatch) -> None:
    settle, made = Takeover.settle, made_with(patch, Takeover)

    def since_they_answered(self: Takeover, rounds: Any) -> Any:
        fleet = made[self]["context"].fleet
        heard = {number: process.last_seen_us for number, process in fleet.processes.items()}
        try:
            return settle(self, rounds)
        finally:
            for process in fleet.processes.values():
                process.last_seen_us = heard.get(process.number, process.last_seen_us)

    patch.setattr(Takeover, "settle", since_they_answered)
