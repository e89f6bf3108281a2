"""Bugs of communication-induced checkpoints: what stamps contain, and what is kept of them."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from clonos_py.causal.determinants import Trigger
from clonos_py.causal.log import CausalStore
from clonos_py.channel.frames import Frame
from clonos_py.link.sending import OutputChannel
from clonos_py.model.ids import Attempt
from clonos_py.protocols.induced.task import InducedSnapshots
from clonos_py.settings.protocols import INDUCED
from clonos_py.task.machine import TaskMachine
from tests.sim.planted.bug import Bugs

BUGS = Bugs()
induced = partial(BUGS.planted, protocol=INDUCED)


@induced("kill", "crash")
def vectors_are_not_saved_in_snapshots(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(InducedSnapshots, "state", lambda self: b"")


@induced("kill")
def a_replay_does_not_look_at_the_stamps_of_the_frames_it_takes(patch: pytest.MonkeyPatch) -> None:
    replay_event = TaskMachine._replay_event

    def blind(self: TaskMachine, now_us: int) -> bool:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(self._checkpointing, "took", lambda frames: None)
            return replay_event(self, now_us)

    patch.setattr(TaskMachine, "_replay_event", blind)


@induced("kill")
def forced_snapshots_are_no_events_of_the_log(patch: pytest.MonkeyPatch) -> None:
    """The vectors pass a snapshot that a replay does not contain."""
    before = InducedSnapshots.before

    def unlogged(self: InducedSnapshots, frames: list[Frame], epoch: int) -> Trigger | None:
        if before(self, frames, epoch) is not None:
            self._hmnr.snapshot()
        return None

    patch.setattr(InducedSnapshots, "before", unlogged)


@induced("partition")
def stamps_on_a_new_connection_go_on_from_those_on_the_old(patch: pytest.MonkeyPatch) -> None:
    subscribe = OutputChannel.subscribe

    def onwards(self: OutputChannel, connection: int, attempt: Attempt, next_seq: int, store: CausalStore) -> Any:
        before = self._stamps
        header = subscribe(self, connection, attempt, next_seq, store)
        self._stamps = before or self._stamps
        return header

    patch.setattr(OutputChannel, "subscribe", onwards)


@BUGS.planted("delay", protocol=INDUCED, cycles=True)
def frames_force_no_snapshot(patch: pytest.MonkeyPatch) -> None:
    """Snapshots on a cycle of frames are part of no recovery line."""
    patch.setattr(InducedSnapshots, "before", lambda self, frames, epoch: None)
