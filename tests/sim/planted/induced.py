"""Bugs of communication-induced checkpoints: what stamps contain, and what is kept of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from clonos_py.causal.determinants import Trigger
from clonos_py.channel.frames import Frame, FrameHeader
from clonos_py.link import sending
from clonos_py.link.sending import OutputChannel
from clonos_py.link.stamps import SentStamps
from clonos_py.protocols.induced.task import InducedSnapshots
from clonos_py.settings.protocols import INDUCED
from clonos_py.task.machine import TaskMachine
from clonos_py.task.outcome import Outcome
from tests.sim.planted.bug import Bugs

BUGS = Bugs()
induced = partial(BUGS.planted, protocol=INDUCED)


@induced("kill", "crash")
def vectors_are_not_saved_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InducedSnapshots, "state", lambda self: b"")


@induced("kill")
def a_replay_does_not_look_at_the_stamps_of_the_frames_it_takes(patch: pytest.MonkeyPatch) -> None:
    step = TaskMachine.step

    def blind(self: TaskMachine, now_us: int) -> Outcome:
        with pytest.MonkeyPatch.context() as meanwhile:
            if self.replaying:
                meanwhile.setattr(InducedSnapshots, "took", lambda self, frames: None)
            return step(self, now_us)

    patch.setattr(TaskMachine, "step", blind)


@induced("kill")
def forced_snapshots_are_no_events_of_the_log(patch: pytest.MonkeyPatch) -> None:
    """The vectors pass a snapshot that a replay does not contain."""
    before = InducedSnapshots.before

    def unlogged(self: InducedSnapshots, frames: list[Frame], epoch: int) -> Trigger | None:
        if (forced := before(self, frames, epoch)) is not None:
            self.taken(forced.checkpoint)
        return None

    patch.setattr(InducedSnapshots, "before", unlogged)


@induced("partition")
def stamps_on_a_new_connection_go_on_from_those_on_the_old(patch: pytest.MonkeyPatch) -> None:
    subscribe = OutputChannel.subscribe

    stamps: dict[OutputChannel, SentStamps] = {}

    def onwards(self: OutputChannel, *given: Any) -> FrameHeader:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(sending, "SentStamps", lambda tasks: stamps.setdefault(self, SentStamps(tasks)))
            return subscribe(self, *given)

    patch.setattr(OutputChannel, "subscribe", onwards)


@BUGS.planted("delay", protocol=INDUCED, cycles=True)
def frames_force_no_snapshot(patch: pytest.MonkeyPatch) -> None:
    """Snapshots on a cycle of frames are part of no recovery line."""
    patch.setattr(InducedSnapshots, "before", lambda self, frames, epoch: None)
