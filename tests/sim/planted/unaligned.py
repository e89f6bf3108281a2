"""Bugs of unaligned checkpoints: where the cut is, which frames are stored, and how they are used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest

from clonos_py.channel.retained import RetainedFrame, RetainedFrames
from clonos_py.link import instructions as io
from clonos_py.link.checkpointing import LinkCheckpointing
from clonos_py.link.receiving import InputChannel
from clonos_py.link.restoring import RestoredFrames
from clonos_py.link.sending import OutputChannel
from clonos_py.model.ids import Attempt
from clonos_py.model.messages import Expectation
from clonos_py.model.snapshots import TaskSnapshot
from clonos_py.process.contract import TaskProgress
from clonos_py.protocols.known import KNOWN
from clonos_py.protocols.parts.channel_state import ChannelState, not_covered
from clonos_py.protocols.unaligned.task import UnalignedBarriers
from clonos_py.settings.protocols import UNALIGNED
from tests.sim.planted.bug import Bugs

BUGS = Bugs()
unaligned = partial(BUGS.planted, protocol=UNALIGNED)


@unaligned()
def a_barrier_does_not_close_the_cut(patch: pytest.MonkeyPatch) -> None:
    """Frames from after the sender's snapshot are taken before the receiver's."""
    patch.setattr(UnalignedBarriers, "barrier", lambda self, channel, checkpoint, epoch: False)


@unaligned()
def frames_are_stored_from_where_they_are_acknowledged(patch: pytest.MonkeyPatch) -> None:
    """The receiver may have gone on since its snapshot."""

    def acknowledged(output: OutputChannel, checkpoint: int) -> int | None:
        found = not_covered(output, checkpoint)
        return found if found is None else max(found, output.cursor.acked)

    link = partial(ChannelState, start=acknowledged)
    patch.setitem(KNOWN, UNALIGNED.name, replace(KNOWN[UNALIGNED.name], link=link))


@unaligned()
def a_single_frame_under_way_is_not_stored(patch: pytest.MonkeyPatch) -> None:
    between = RetainedFrames.between

    def several(self: RetainedFrames, start: int, stop: int) -> Iterator[RetainedFrame]:
        found = list(between(self, start, stop))
        return iter(found if sum(bool(entry.row_count) for entry in found) > 1 else [])

    patch.setattr(RetainedFrames, "between", several)


@unaligned()
def snapshots_are_durable_without_the_frames_between_them(patch: pytest.MonkeyPatch) -> None:
    def at_once(
        self: ChannelState, snapshot: TaskSnapshot, progress: TaskProgress, attempt: Attempt
    ) -> list[io.Instruction]:
        return LinkCheckpointing.snapshot_taken(self, snapshot, progress, attempt)

    patch.setattr(ChannelState, "snapshot_taken", at_once)


@unaligned()
def stored_frames_are_not_restored(patch: pytest.MonkeyPatch) -> None:
    def nothing(self: RestoredFrames, output: OutputChannel, next_seq: int, loaded: io.Loaded) -> Sequence[object]:
        return []

    patch.setattr(RestoredFrames, "of", nothing)


@unaligned(depth=-1)
def frames_from_before_the_senders_restart_point_are_depended_on(patch: pytest.MonkeyPatch) -> None:
    """Frames that a task has received since its own restart point count as those that its sender has to send again."""

    expectation = vars(InputChannel)["expectation"].fget

    def since_own(self: InputChannel) -> Expectation:
        found = expectation(self)
        received = [(seq, checksum) for seq, checksum in found.checksums if seq >= self.covered]
        return Expectation(found.channel, found.next_seq, received)

    patch.setattr(InputChannel, "expectation", property(since_own))
    patch.setattr(InputChannel, "has_received", property(lambda self: bool(self.expectation.checksums)))
    patch.setattr(InputChannel, "drop_before", lambda self, epoch: None)
