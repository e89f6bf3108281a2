"""Bugs of determinants: not logged, logged at the wrong place, or not held where they are needed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import pytest

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import (
    Abort,
    Determinant,
    FrameBatch,
    InputOrder,
    Linger,
    ReadBatch,
    SourceRead,
    TimerFired,
    Trigger,
    length,
)
from clonos_py.causal.gate import Gate
from clonos_py.causal.log import CausalStore, LogWriter
from clonos_py.link import machine as link
from clonos_py.link.sending import Outgoing, OutputChannel
from clonos_py.model.operators import Read
from clonos_py.model.segments import LogSegment, StableMark
from clonos_py.process.contract import Produced
from clonos_py.runtime.sim.harsh_environment import HarshEnvironment
from clonos_py.runtime.sim.origin import RowOrigin
from clonos_py.task.context import TaskContext
from clonos_py.task.landmarks import Landmarks
from clonos_py.task.reader import Ask, Reader
from clonos_py.task.snapshotting import Snapshotting
from tests.sim.planted.bug import Bug, Bugs, Patch

BUGS = Bugs()


def unlogged(kind: type) -> Patch:
    """The choice is made live and not logged."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        record = Gate.record
        patch.setattr(Gate, "record", lambda self, d: None if isinstance(d, kind) else record(self, d))

    return plant


BUGS["arrival_order_is_not_logged"] = Bug(unlogged(InputOrder))
BUGS["timers_are_not_logged"] = Bug(unlogged(TimerFired))
BUGS["linger_cuts_are_not_logged"] = Bug(unlogged(Linger))
BUGS["aborts_are_not_logged"] = Bug(unlogged(Abort))
BUGS["triggers_are_not_logged"] = Bug(unlogged(Trigger))
BUGS["source_reads_are_not_logged"] = Bug(unlogged(SourceRead))


def _answer_live(patch: pytest.MonkeyPatch, question: str) -> None:
    """The logged answer is read from the log, and another one is returned."""
    ask = getattr(Gate, question)

    def answer_live(self: Gate, *asked: Any) -> Any:
        ask(self, *asked)
        return asked[-1]()

    patch.setattr(Gate, question, answer_live)


@BUGS.planted()
def frames_taken_together_are_logged_one_by_one(patch: pytest.MonkeyPatch) -> None:
    record = Gate.record

    def one_by_one(self: Gate, determinant: Any) -> None:
        record(
            self,
            InputOrder(determinant.channel, determinant.count) if isinstance(determinant, FrameBatch) else determinant,
        )

    patch.setattr(Gate, "record", one_by_one)


@BUGS.planted()
def reads_taken_together_are_logged_one_by_one(patch: pytest.MonkeyPatch) -> None:
    unlogged(ReadBatch)(patch)


@BUGS.planted()
def a_timer_is_logged_behind_the_event_that_came_next(patch: pytest.MonkeyPatch) -> None:
    record = Gate.record
    late: dict[int, TimerFired] = {}

    def swapped(self: Gate, determinant: Any) -> None:
        if isinstance(determinant, TimerFired):
            late[id(self)] = determinant
            return
        record(self, determinant)
        if (timer := late.pop(id(self), None)) is not None:
            record(self, timer)

    patch.setattr(Gate, "record", swapped)


@BUGS.planted()
def random_seed_is_drawn_anew_on_replay(patch: pytest.MonkeyPatch) -> None:
    _answer_live(patch, "seed")


@BUGS.planted()
def random_seed_is_kept_over_the_barrier(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TaskContext, "open_epoch", lambda self: None)


@BUGS.planted()
def time_is_read_anew_on_replay(patch: pytest.MonkeyPatch) -> None:
    _answer_live(patch, "now")


@BUGS.planted()
def services_are_asked_again_on_replay(patch: pytest.MonkeyPatch) -> None:
    _answer_live(patch, "ask")


@BUGS.planted()
def a_replay_does_not_count_what_it_takes(patch: pytest.MonkeyPatch) -> None:
    take = Gate.take

    def uncounted(self: Gate) -> Any:
        before = self.writer.offset
        determinant = take(self)
        self.writer.offset = before
        return determinant

    patch.setattr(Gate, "take", uncounted)


def sent_with(patch: pytest.MonkeyPatch, change: Callable[[OutputChannel, list[LogSegment]], list[LogSegment]]) -> None:
    """Frames leave with a changed delta."""
    sendable = OutputChannel.sendable

    def changed(self: OutputChannel, store: CausalStore) -> Iterator[Outgoing]:
        for outgoing in sendable(self, store):
            delta = change(self, outgoing.header.delta)
            yield outgoing._replace(header=msgspec.structs.replace(outgoing.header, delta=delta))

    patch.setattr(OutputChannel, "sendable", changed)


@BUGS.planted()
def frames_leave_without_determinants(patch: pytest.MonkeyPatch) -> None:
    sent_with(patch, lambda channel, delta: [])


@BUGS.planted()
def determinants_leave_one_frame_too_late(patch: pytest.MonkeyPatch) -> None:
    held: dict[OutputChannel, list[LogSegment]] = {}

    def late(channel: OutputChannel, delta: list[LogSegment]) -> list[LogSegment]:
        before, held[channel] = held.get(channel, []), delta
        return before

    sent_with(patch, late)


@BUGS.planted("kill", "partition")
def a_new_connection_opens_without_a_log(patch: pytest.MonkeyPatch) -> None:
    subscribe = OutputChannel.subscribe

    def silent(self: OutputChannel, *given: Any) -> Any:
        return msgspec.structs.replace(subscribe(self, *given), delta=[])

    patch.setattr(OutputChannel, "subscribe", silent)


@BUGS.planted()
def a_new_receiver_is_thought_to_hold_what_its_predecessor_did(patch: pytest.MonkeyPatch) -> None:
    subscribe, sendable = OutputChannel.subscribe, OutputChannel.sendable
    positions: dict[OutputChannel, int] = {}

    def mistaken(self: OutputChannel, connection: int, attempt: Any, next_seq: int, store: CausalStore) -> Any:
        header, position = subscribe(self, connection, attempt, next_seq, store), positions.get(self, 0)
        positions[self] = store.position
        shared = {segment.log for segment in header.delta}
        return msgspec.structs.replace(header, delta=store.since(position, shared.__contains__))

    def noted(self: OutputChannel, store: CausalStore) -> Iterator[Outgoing]:
        for outgoing in sendable(self, store):
            positions[self] = store.position
            yield outgoing

    patch.setattr(OutputChannel, "subscribe", mistaken)
    patch.setattr(OutputChannel, "sendable", noted)


@BUGS.planted()
def logs_of_upstream_tasks_are_not_passed_on(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(link, "shared_logs", lambda plan, task, receiver: frozenset({task.log_id}))


@BUGS.planted()
def causal_log_is_truncated_one_epoch_early(patch: pytest.MonkeyPatch) -> None:
    mark = CausalStore.mark

    def early(self: CausalStore, made: StableMark) -> None:
        mark(self, made._replace(epoch=made.epoch + 1) if made.epoch else made)

    patch.setattr(CausalStore, "mark", early)


@BUGS.planted()
def an_epoch_starts_one_determinant_too_late(patch: pytest.MonkeyPatch) -> None:
    """The snapshot names a place in the log that is too early."""
    open_epoch = LogWriter.open_epoch

    def late(self: LogWriter, checkpoint: int) -> LogSegment | None:
        rest = open_epoch(self, checkpoint)
        self.offset -= length(Linger())
        return rest

    patch.setattr(LogWriter, "open_epoch", late)


@BUGS.planted(time_granularity_us=10_000)
def the_time_is_kept_over_the_barrier(patch: pytest.MonkeyPatch) -> None:
    open_epoch = TaskContext.open_epoch

    def keeping(self: TaskContext) -> None:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(Gate, "reset_time", lambda self: None)
            open_epoch(self)

    patch.setattr(TaskContext, "open_epoch", keeping)


@BUGS.planted()
def timers_are_coded_against_those_of_the_epoch_before(patch: pytest.MonkeyPatch) -> None:
    restart, encode, decode = LogCodec.restart, LogCodec.encode, LogCodec.decode
    base_us: dict[LogCodec, int] = {}
    last_us: dict[LogCodec, int] = {}

    def restarted(self: LogCodec, epoch: int) -> None:
        restart(self, epoch)
        base_us[self] = last_us.get(self, 0)

    def encoded(self: LogCodec, determinants: Sequence[Determinant]) -> bytes:
        last_us.update((self, d.at_us) for d in determinants if isinstance(d, TimerFired))
        return encode(self, [moved(d, -base_us[self]) for d in determinants])

    def decoded(self: LogCodec, data: bytes) -> list[Determinant]:
        determinants = [moved(d, base_us[self]) for d in decode(self, data)]
        last_us.update((self, d.at_us) for d in determinants if isinstance(d, TimerFired))
        return determinants

    def moved(determinant: Determinant, by_us: int) -> Determinant:
        if not isinstance(determinant, TimerFired):
            return determinant
        return TimerFired(determinant.operator, determinant.at_us + by_us)

    patch.setattr(LogCodec, "restart", restarted)
    patch.setattr(LogCodec, "encode", encoded)
    patch.setattr(LogCodec, "decode", decoded)


@BUGS.planted()
def frames_leave_without_the_landmark_at_which_they_are_cut(patch: pytest.MonkeyPatch) -> None:
    def late(self: Landmarks, other_events: int, ended: bool, now_us: int) -> Produced:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(Snapshotting, "cut", lambda made: [made.landmark(0, False), cut(made)][1])
            return log(self, other_events, ended, now_us)

    cut, log = Snapshotting.cut, Landmarks.log
    patch.setattr(Landmarks, "log", late)


@BUGS.planted()
def the_codec_keeps_its_state_where_replays_may_begin(patch: pytest.MonkeyPatch) -> None:
    def kept(self: LogWriter) -> None:
        self.codec.fresh = True

    patch.setattr(LogWriter, "allow_replay_from_here", kept)


@BUGS.planted()
def large_answers_are_kept_under_an_epoch_that_is_too_low(patch: pytest.MonkeyPatch) -> None:
    keep = HarshEnvironment.keep
    patch.setattr(HarshEnvironment, "keep", lambda self, epoch, content: keep(self, max(0, epoch - 3), content))


@BUGS.planted()
def rows_are_read_again_though_they_are_logged(patch: pytest.MonkeyPatch) -> None:
    reread = Reader.reread

    def again(self: Reader, logged: Sequence[Determinant], ask: Ask) -> list[Read]:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(Reader, "logs_rows", False)
            return reread(self, logged, ask)

    patch.setattr(Reader, "reread", again)


@BUGS.planted()
def a_source_goes_on_where_it_was_before_reads_that_came_from_the_log(patch: pytest.MonkeyPatch) -> None:
    poll = Reader.poll

    def onwards(self: Reader, *given: Any) -> Any:
        with pytest.MonkeyPatch.context() as meanwhile:
            meanwhile.setattr(RowOrigin, "seek", lambda self, positions: None)
            return poll(self, *given)

    patch.setattr(Reader, "poll", onwards)
