"""Bugs of the feed of standbys: what a feed point lacks, and where a standby starts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec
import pytest

from clonos_py.causal.gate import Gate
from clonos_py.causal.log import CausalStore
from clonos_py.channel.frames import Frame
from clonos_py.link import instructions as io
from clonos_py.link.causal_outputs import CausalOutputs
from clonos_py.link.connections import Connections
from clonos_py.link.following import FeedState, Following
from clonos_py.link.held_logs import HeldLogs
from clonos_py.link.receiving import InputChannel
from clonos_py.link.restoring import Restoring
from clonos_py.link.standby_feed import StandbyFeed
from clonos_py.model.ids import Attempt
from clonos_py.model.messages import Restore
from clonos_py.model.operators import Sink
from clonos_py.model.state import OperatorState
from clonos_py.process.contract import RestoreState
from clonos_py.protocols.aligned.task import AlignedBarriers
from clonos_py.task import chain
from clonos_py.task.chain import Chain
from clonos_py.task.checkpointing import TaskCheckpointing
from clonos_py.task.context import TaskContext
from clonos_py.task.sink_rows import SinkRows
from clonos_py.task.snapshotting import Snapshotting
from tests.sim.planted.bug import Bugs

BUGS = Bugs()
fed = partial(BUGS.planted, fed=True)


@fed("kill", "standby")
def frames_are_left_out_of_the_feed(patch: pytest.MonkeyPatch) -> None:
    def cut(self: StandbyFeed, frames: Sequence[tuple[int, Frame]]) -> list[io.Instruction]:
        return []

    patch.setattr(StandbyFeed, "cut", cut)


@fed("kill")
def the_seed_and_the_time_are_kept_over_a_feed_point(patch: pytest.MonkeyPatch) -> None:
    take, renew = Snapshotting.feed_point, TaskContext.open_epoch

    def feed_point(self: Snapshotting, *given: Any) -> Any:
        with pytest.MonkeyPatch.context() as kept:
            kept.setattr(TaskContext, "open_epoch", lambda self: None)
            return take(self, *given)

    patch.setattr(Snapshotting, "feed_point", feed_point)
    patch.setattr(TaskContext, "open_epoch", renew)


@fed("kill")
def determinants_are_left_out_of_the_feed(patch: pytest.MonkeyPatch) -> None:
    received = Following.received

    def without(self: Following, event: io.FeedReceived) -> RestoreState | None:
        header = msgspec.structs.replace(event.header, delta=[])
        return received(self, msgspec.structs.replace(event, header=header))

    patch.setattr(Following, "received", without)


@fed("kill")
def a_fed_standby_does_not_report_what_it_holds(patch: pytest.MonkeyPatch) -> None:
    answer = HeldLogs.answer

    def silent(self: HeldLogs, *given: Any) -> Any:
        found = answer(self, *given)
        return found if found.has_own_log else msgspec.structs.replace(found, logs=[])

    patch.setattr(HeldLogs, "answer", silent)


@fed("kill")
def a_feed_point_counts_as_the_restart_point(patch: pytest.MonkeyPatch) -> None:
    """Senders drop what the task needs if it fails again."""
    promote = Restoring.promote

    def covering(self: Restoring, attempt: Attempt, restore: Restore) -> list[io.Instruction]:
        with pytest.MonkeyPatch.context() as kept:
            kept.setattr(InputChannel, "cover", lambda self, next_seq: None)
            return promote(self, attempt, restore)

    patch.setattr(Restoring, "promote", covering)


@fed("kill")
def receivers_are_served_before_the_log_has_arrived(patch: pytest.MonkeyPatch) -> None:
    made = Connections.__init__

    def serving(self: Connections, *given: Any) -> None:
        made(self, *given)
        self.serve()

    patch.setattr(Connections, "__init__", serving)


@fed("kill", endless=True)
def void_checkpoints_are_forgotten_at_a_feed_point(patch: pytest.MonkeyPatch) -> None:
    restore = Snapshotting.restore

    def forgetting(self: Snapshotting, item: RestoreState) -> None:
        restore(self, msgspec.structs.replace(item, aborted=()))

    patch.setattr(Snapshotting, "restore", forgetting)


@fed("kill", endless=True)
def a_feed_point_is_taken_while_barriers_are_aligned(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AlignedBarriers, "aligning", TaskCheckpointing.aligning)


@fed("kill")
def sinks_do_not_get_the_rows_since_the_barrier_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Chain, "give", lambda self: None)


@fed("kill")
def prepared_results_of_uncompleted_checkpoints_are_left_out(patch: pytest.MonkeyPatch) -> None:
    usable = Following.usable

    def without(self: Following, attempt: Attempt, checkpoint: int) -> FeedState | None:
        point = usable(self, attempt, checkpoint)
        return None if point is None else point._replace(committables={})

    patch.setattr(Following, "usable", without)


@fed("kill")
def a_point_behind_the_last_checkpoint_is_used(patch: pytest.MonkeyPatch) -> None:
    usable = Following.usable
    patch.setattr(Following, "usable", lambda self, attempt, checkpoint: usable(self, attempt, 0))


@fed("kill")
def the_replay_begins_behind_the_restart_point(patch: pytest.MonkeyPatch) -> None:
    """The log is not skipped up to the feed point."""

    def load_at(self: Gate, segments: Sequence[Any], epoch: int, epoch_start: int, offset: int) -> None:
        if segments:
            self.writer.resume(segments[0].epoch, segments[0].epoch_start, segments[0].start)
            self.load(segments)
        else:
            self.writer.resume(epoch, epoch_start, offset)

    patch.setattr(Gate, "load_at", load_at)


@fed("kill", "standby")
def another_attempt_is_followed_with_what_was_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CausalStore, "clear", lambda self: None)


@fed("kill")
def a_sink_restores_a_state_that_it_never_had(patch: pytest.MonkeyPatch) -> None:
    """At a feed point before the first barrier."""
    restore = SinkRows.restore

    def always(self: SinkRows, parts: Sequence[OperatorState]) -> list[OperatorState]:
        return restore(self, parts) or [OperatorState() for _ in parts]

    patch.setattr(SinkRows, "restore", always)


@fed("kill")
def a_point_is_sent_before_what_it_has_published_is_visible(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CausalOutputs, "written_below", lambda self, published: True)
    patch.setattr(CausalOutputs, "check_visible", lambda self, start, end: None)


@fed("kill")
def a_causal_sink_gets_the_rows_since_the_barrier_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(chain, "keeps_rows", lambda operator: isinstance(operator, Sink))
