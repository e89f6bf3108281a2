"""Bugs of growth without a bound, of operators ahead of event time, and of waits that are too long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from clonos_py.channel.frames import FrameKind
from clonos_py.channel.regenerated import RegeneratedFrames
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.takeover import Takeover
from clonos_py.job.unreachable import Unreachable
from clonos_py.link import instructions as io
from clonos_py.link.epochs import Epochs
from clonos_py.link.machine import LinkMachine
from clonos_py.link.receiving import InputChannel
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.task.inputs import Inputs
from clonos_py.task.lingering import Lingering
from clonos_py.task.machine import TaskMachine
from clonos_py.task.partition_times import PartitionTimes
from clonos_py.task.timers import Timers
from tests.sim.planted.bug import Bugs
from tests.sim.planted.recovery import rehandled

BUGS = Bugs()

# ---- growth


@BUGS.planted()
def frames_are_acknowledged_before_they_are_taken(patch: pytest.MonkeyPatch) -> None:
    def hasty(self: LinkMachine, event: io.Arrived) -> list[io.Instruction]:
        instructions = LinkMachine._on_arrived(self, event)
        for channel in self.inputs:
            if channel.connection == event.connection and event.header.kind is not FrameKind.LOG_ONLY:
                instructions += self._inflow.acknowledge(channel, channel.next_seq)
        return instructions

    rehandled(patch, io.Arrived, hasty)


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
    patch.setattr(Epochs, "complete", lambda self, checkpoint: self._progress.get(checkpoint))


@BUGS.planted()
def lost_connections_are_never_forgotten(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Unreachable, "progress", lambda self: self._replaced.clear())


# ---- event time


@BUGS.planted()
def a_finished_partition_is_at_the_end_of_time_beside_an_idle_one(patch: pytest.MonkeyPatch) -> None:
    def watermark(self: PartitionTimes, awake: Sequence[int], finished: Sequence[int]) -> int:
        return min(map(self.of, awake), default=MAX_TIME if finished else MIN_TIME)

    patch.setattr(PartitionTimes, "watermark", watermark)


@BUGS.planted()
def an_input_that_has_ended_is_at_the_end_of_time_beside_an_idle_one(patch: pytest.MonkeyPatch) -> None:
    def watermark(self: Inputs) -> int:
        awake = [c.progress.watermark for c in self._channels if not c.progress.ended and not c.progress.idle]
        return min(awake, default=MAX_TIME if any(c.progress.ended for c in self._channels) else MIN_TIME)

    patch.setattr(Inputs, "watermark", property(watermark))


# ---- waiting


@BUGS.planted("clock")
def rows_linger_by_the_time_of_day(patch: pytest.MonkeyPatch) -> None:
    """The end of the wait is a time of day, which may be set back meanwhile."""
    create = TaskMachine.__init__

    def with_environment(self: TaskMachine, plan: Any, task: Any, environment: Any, *more: Any) -> None:
        create(self, plan, task, environment, *more)
        vars(self._lingering)["environment"] = environment

    def until_us(self: Lingering) -> int | None:
        at_us = vars(self).get("at_us")
        return None if at_us is None else at_us - vars(self)["environment"].ahead_us

    def wait(self: Lingering, until_us: int | None) -> None:
        vars(self)["at_us"] = None if until_us is None else until_us + vars(self)["environment"].ahead_us

    patch.setattr(TaskMachine, "__init__", with_environment)
    patch.setattr(Lingering, "until_us", property(until_us, wait), raising=False)


@BUGS.planted("clock")
def timers_have_no_limit(patch: pytest.MonkeyPatch) -> None:
    """They fire by the time of day only."""

    def wake_us(self: Timers, now_us: int) -> int | None:
        return now_us + self._timers[0][0] - self._time_of_day() if self._timers else None

    def due(self: Timers, now_us: int) -> tuple[int, int] | None:
        return next((timer for timer in self._timers if timer[0] <= self._time_of_day()), None)

    patch.setattr(Timers, "wake_us", wake_us)
    patch.setattr(Timers, "due", due)


@BUGS.planted("clock", "kill")
def snapshots_take_what_is_left_for_timers_from_the_time_of_day(patch: pytest.MonkeyPatch) -> None:
    """A task may have another time of day than its predecessor, which set the timers."""

    def left_us(self: Timers) -> list[int]:
        return [at_us - self._time_of_day() for at_us, _ in self.all]

    patch.setattr(Timers, "left_us", property(left_us))


@BUGS.planted("disk")
def a_manifest_that_hangs_is_waited_for_without_an_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CoordinatedCheckpoints, "limit_us", MAX_TIME)


@BUGS.planted("coordinator", "partition", "zombie")
def a_coordinator_takes_its_standstill_for_the_silence_of_others(patch: pytest.MonkeyPatch) -> None:
    def advance_clock(self: CoordinatorContext, clock_us: int, due_us: int) -> None:
        self.now_us = max(self.now_us, clock_us)

    patch.setattr(CoordinatorContext, "advance_clock", advance_clock)


@BUGS.planted("coordinator", "zombie")
def the_time_of_the_takeover_counts_as_silence(patch: pytest.MonkeyPatch) -> None:
    settle = Takeover.settle

    def since_they_answered(self: Takeover, rounds: Any) -> Any:
        heard = {number: process.last_seen_us for number, process in self._context.fleet.processes.items()}
        try:
            return settle(self, rounds)
        finally:
            for process in self._context.fleet.processes.values():
                process.last_seen_us = heard.get(process.number, process.last_seen_us)

    patch.setattr(Takeover, "settle", since_they_answered)
