"""Bugs of recovery: which processes are asked and listened to, what is sent again, from where a replacement starts."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from clonos_py.causal.log import CausalStore
from clonos_py.channel.cursor import Cursor
from clonos_py.channel.frames import Frame, FrameHeader
from clonos_py.channel.retained import RetainedFrames
from clonos_py.job import rounds
from clonos_py.job.events import Instructions
from clonos_py.job.fleet import Role, TaskProcess
from clonos_py.job.recovery import Round
from clonos_py.job.restarts_without_log import RestartsWithoutLog
from clonos_py.job.rounds import Rounds
from clonos_py.link import instructions as io
from clonos_py.link.connections import Connections
from clonos_py.link.machine import LinkMachine
from clonos_py.link.receiving import InputChannel
from clonos_py.link.restoring import Restoring
from clonos_py.link.sending import Outgoing, OutputChannel
from clonos_py.model.ids import Attempt
from clonos_py.model.messages import Restore, Sever
from clonos_py.model.times import MAX_TIME, MIN_TIME
from clonos_py.process.contract import InputProgress, MayProduce, StateChanged, TaskProgress, TaskState
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.task.chain import Chain
from clonos_py.task.inputs import Inputs
from clonos_py.task.machine import TaskMachine
from clonos_py.task.outcome import Outcome
from clonos_py.task.outputs import Outputs
from clonos_py.task.reader import Reader
from clonos_py.task.timers import Timers
from tests.sim.planted.bug import Bugs
from tests.sim.planted.seams import Handle, made_with, rehandled

BUGS = Bugs()
NEWEST = Attempt(1 << 30, 0)


# ---- the round


@BUGS.planted()
def replay_starts_before_survivors_have_answered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Round, "await_answer", lambda self, process: None)


@BUGS.planted()
def survivors_do_not_say_all_they_hold(patch: pytest.MonkeyPatch) -> None:
    of = CausalStore.of
    patch.setattr(CausalStore, "of", lambda self, task: of(self, task)[:-1])


@BUGS.planted()
def recovering_processes_are_not_asked_what_they_hold(patch: pytest.MonkeyPatch) -> None:
    await_answer = Round.await_answer

    def only_active(self: Round, process: TaskProcess) -> None:
        if process.role is Role.ACTIVE:
            await_answer(self, process)

    patch.setattr(Round, "await_answer", only_active)


def replacements_are_not_asked(patch: pytest.MonkeyPatch) -> None:
    """They take over an output or a snapshot that holds logs."""
    patch.setattr(rounds, "reports_logs", lambda plan, task: False)


# ---- connections


@BUGS.planted(depth=0)
def frames_of_a_connection_overtake_each_other(patch: pytest.MonkeyPatch) -> None:
    """Two that could be sent together are swapped, and their receiver numbers them as they come."""
    sendable = OutputChannel.sendable

    def swapped(self: OutputChannel, store: CausalStore) -> Iterator[Outgoing]:
        frames = list(sendable(self, store))
        for first in range(0, len(frames) - 1, 2):
            frames[first : first + 2] = frames[first + 1], frames[first]
        yield from frames

    receive = InputChannel.receive

    def numbered(self: InputChannel, header: FrameHeader, frame: Frame) -> Frame:
        in_order = msgspec.structs.replace(header, seq=self.next_seq)
        return receive(self, in_order, dataclasses.replace(frame, seq=self.next_seq))

    patch.setattr(OutputChannel, "sendable", swapped)
    patch.setattr(InputChannel, "receive", numbered)


@BUGS.planted()
def survivors_answer_before_they_close_connections(patch: pytest.MonkeyPatch) -> None:
    """Unread frames in the sockets of the dead are taken after the answer that does not contain them."""
    handle = LinkMachine.handle
    late: dict[LinkMachine, list[Callable[[], list[io.Instruction]]]] = {}

    def answer(sever: Handle, link: LinkMachine, message: Sever) -> list[io.Instruction]:
        late.setdefault(link, []).append(partial(sever, link, message))
        with pytest.MonkeyPatch.context() as open_:
            _keep_connections(open_)
            return sever(link, message)

    def close_later(self: LinkMachine, event: Any) -> list[io.Instruction]:
        instructions = handle(self, event)
        if not isinstance(event, Sever):
            for sever in late.pop(self, ()):
                instructions += [i for i in sever() if not isinstance(i, io.SendToCoordinator)]
        return instructions

    rehandled(patch, Sever, answer)
    patch.setattr(LinkMachine, "handle", close_later)


@BUGS.planted()
def connections_with_the_dead_are_not_closed(patch: pytest.MonkeyPatch) -> None:
    _keep_connections(patch)


def _keep_connections(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Connections, "close_older", lambda self, attempts: [])
    patch.setattr(Connections, "replace", lambda self, peers: ([], []))


@BUGS.planted("zombie")
def a_replaced_receiver_is_served_again(patch: pytest.MonkeyPatch) -> None:
    """The zombie asks the sender that is still the same."""
    admit = Connections.admit

    def trusting(self: Connections, event: io.Subscribed) -> Any:
        output, refusal = admit(self, event)
        newest = msgspec.structs.replace(event.hello, receiver=NEWEST)
        return admit(self, io.Subscribed(event.connection, newest)) if output is None and refusal else (output, refusal)

    patch.setattr(Connections, "admit", trusting)


# ---- what is sent again


@BUGS.planted()
def a_receiver_asks_for_one_frame_too_many(patch: pytest.MonkeyPatch) -> None:
    receive = InputChannel.receive

    def off_by_one(self: InputChannel, header: Any, frame: Any) -> Any:
        taken = receive(self, header, frame)
        if header.seq % 7 == 5:
            self.next_seq -= 1
        return taken

    patch.setattr(InputChannel, "receive", off_by_one)


@BUGS.planted("partition")
def gaps_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """The sender continues where the connection broke, and the receiver accepts the gap."""
    connect = Cursor.connect

    def onwards(self: Cursor, next_seq: int) -> None:
        at = self.at
        connect(self, next_seq)
        self.at = self.acked = max(at, next_seq)

    patch.setattr(Cursor, "connect", onwards)
    _take_what_comes(patch)


@BUGS.planted("partition")
def doubles_are_taken(patch: pytest.MonkeyPatch) -> None:
    """The sender sends all retained frames, and the receiver accepts them."""
    subscribe = OutputChannel.subscribe

    def from_the_first(
        self: OutputChannel, connection: int, attempt: Attempt, next_seq: int, store: CausalStore
    ) -> FrameHeader:
        header = subscribe(self, connection, attempt, self.frames.first, store)
        return msgspec.structs.replace(header, seq=next_seq)

    patch.setattr(OutputChannel, "subscribe", from_the_first)
    _take_what_comes(patch)


def _take_what_comes(patch: pytest.MonkeyPatch) -> None:
    def receive(self: InputChannel, header: Any, frame: Any) -> Any:
        self.next_seq = header.seq + 1
        return frame

    def open_(self: InputChannel, header: Any) -> bool:
        self.opened = True
        return False

    patch.setattr(InputChannel, "receive", receive)
    patch.setattr(InputChannel, "open", open_)


@BUGS.planted()
def frames_are_dropped_when_they_are_acknowledged(patch: pytest.MonkeyPatch) -> None:
    acknowledged = OutputChannel.acknowledged

    def hasty(self: OutputChannel, given: io.Acknowledgement) -> bool:
        changed = acknowledged(self, given)
        self.cover(given.next_seq)
        return changed

    patch.setattr(OutputChannel, "acknowledged", hasty)


@BUGS.planted()
def in_flight_log_is_never_truncated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RetainedFrames, "drop_covered", lambda self: None)


@BUGS.planted()
def receivers_do_not_say_what_their_restart_point_covers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OutputChannel, "cover", lambda self, below: False)


@BUGS.planted()
def a_finished_task_forgets_its_frames(patch: pytest.MonkeyPatch) -> None:
    def forgets(handle: Handle, link: LinkMachine, event: StateChanged) -> list[io.Instruction]:
        instructions = handle(link, event)
        if event.state is TaskState.FINISHED:
            for output in link.outputs:
                output.cover(output.cursor.acked)
        return instructions

    rehandled(patch, StateChanged, forgets)


@BUGS.planted(endless=True)
def back_pressure_holds_a_replaying_task(patch: pytest.MonkeyPatch) -> None:
    """Frames that its receivers had from its predecessor count as not received yet."""
    made, connect, offer, step = made_with(patch, Cursor), Cursor.connect, TaskMachine.offer, TaskMachine.step
    held_back: dict[TaskMachine, bool] = {}

    def unaware(self: Cursor, next_seq: int) -> None:
        connect(self, next_seq)
        self.acked = made[self]["frames"].first

    def unreceived(self: Cursor) -> int:
        return made[self]["frames"].next_seq - self.acked if self.connected else 0

    def noted(self: TaskMachine, item: Any) -> None:
        if isinstance(item, MayProduce):
            held_back[self] = not item.allowed
        offer(self, item)

    def held(self: TaskMachine, now_us: int) -> Outcome:
        return Outcome([], MAX_TIME) if self.replaying and held_back.get(self) else step(self, now_us)

    patch.setattr(Cursor, "connect", unaware)
    patch.setattr(Cursor, "unreceived", property(unreceived))
    patch.setattr(TaskMachine, "offer", noted)
    patch.setattr(TaskMachine, "step", held)


# ---- where a replacement starts


@BUGS.planted()
def a_replacement_starts_from_the_newest_snapshot(patch: pytest.MonkeyPatch) -> None:
    """The checkpoint may be incomplete."""
    collect, restart = CoordinatedCheckpoints.collect, CoordinatedCheckpoints.restart
    newest: dict[Any, Any] = {}

    def noted(self: CoordinatedCheckpoints, message: Any) -> Instructions:
        newest[message.handle.task] = message.handle
        return collect(self, message)

    def newer(self: CoordinatedCheckpoints, task: Any) -> Restore:
        handle = newest.get(task)
        if handle is None or handle.checkpoint <= self.completed.number:
            return restart(self, task)
        operators = {name: [stored] for name, stored in handle.operators.items()}
        return Restore(handle.checkpoint, operators, handle.progress, dict(handle.committables))

    patch.setattr(CoordinatedCheckpoints, "collect", noted)
    patch.setattr(CoordinatedCheckpoints, "restart", newer)


@BUGS.planted()
def a_standby_starts_from_what_it_happens_to_have(patch: pytest.MonkeyPatch) -> None:
    promote = Restoring.promote

    def content(self: Restoring, attempt: Attempt, restore: Restore) -> list[io.Instruction]:
        return [i for i in promote(self, attempt, restore) if not isinstance(i, io.Load)]

    patch.setattr(Restoring, "promote", content)
    patch.setattr(Restoring, "ready", property(lambda self: self.requested is not None))


@BUGS.planted("disk", "kill", endless=True)
def a_state_that_storage_did_not_give_is_not_requested_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Restoring, "not_loaded", lambda self, event: [])


@BUGS.planted(anywhere=True, endless=True)
def a_state_is_loaded_again_that_the_task_has(patch: pytest.MonkeyPatch) -> None:
    """It arrives after the promotion and restarts the inputs, whose connections are open."""
    prepare = Restoring.prepare

    def load(self: Restoring, restore: Restore) -> list[io.Instruction]:
        found = prepare(self, restore)
        return [io.Load(restore, ahead=True)] if found and self.ready else found

    patch.setattr(Restoring, "prepare", load)
    patch.setattr(Restoring, "is_awaited", lambda self, restore: self.is_requested(restore) and self.fed is None)


@BUGS.planted()
def sources_begin_at_the_beginning_again(patch: pytest.MonkeyPatch) -> None:
    restore = Reader.restore
    patch.setattr(Reader, "restore", lambda self, parts, partitions: restore(self, (), partitions))


@BUGS.planted()
def state_of_operators_is_not_restored(patch: pytest.MonkeyPatch) -> None:
    restore = Chain.restore
    patch.setattr(Chain, "restore", lambda self, parts, *others: restore(self, {}, *others))


@BUGS.planted()
def the_turn_of_a_rebalance_is_not_restored(patch: pytest.MonkeyPatch) -> None:
    restore = Outputs.restore

    def at_the_first(self: Outputs, epoch: int, progress: TaskProgress | None) -> None:
        if progress is not None:
            progress = msgspec.structs.replace(progress, round_robin=[0] * len(progress.round_robin))
        restore(self, epoch, progress)

    patch.setattr(Outputs, "restore", at_the_first)


@BUGS.planted()
def watermarks_of_inputs_are_not_restored(patch: pytest.MonkeyPatch) -> None:
    restored_inputs_with(patch, watermark=MIN_TIME)


def restored_inputs_with(patch: pytest.MonkeyPatch, **changed: int) -> None:
    """All input channels continue with this progress."""
    restore = Inputs.restore

    def otherwise(self: Inputs, progress: Sequence[InputProgress] | None) -> None:
        restore(self, [msgspec.structs.replace(channel, **changed) for channel in progress or ()] or None)

    patch.setattr(Inputs, "restore", otherwise)


@BUGS.planted()
def timers_are_lost_with_the_task(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timers, "restore", lambda self, timers, left_us: self.clear())


@BUGS.planted()
def a_timer_fires_again_after_replay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timers, "remove", lambda self, operator, at_us: None)


@BUGS.planted()
def of_timers_for_the_same_time_one_is_restored(patch: pytest.MonkeyPatch) -> None:
    restore = Timers.restore

    def first_only(self: Timers, timers: Sequence[tuple[int, int]], left_us: Sequence[int]) -> None:
        restore(self, timers, left_us)
        for (at_us, _), (next_us, operator) in pairwise(self.all):
            if at_us == next_us:
                self.remove(operator, at_us)

    patch.setattr(Timers, "restore", first_only)


@BUGS.planted()
def idleness_of_inputs_is_not_restored(patch: pytest.MonkeyPatch) -> None:
    restored_inputs_with(patch, idle=False)


# ---- tasks that restart, where availability is preferred


@BUGS.planted("kill", "coordinator", depth=1)
def lives_are_forgotten_with_the_coordinator(patch: pytest.MonkeyPatch) -> None:
    """Neither the states of processes tell the next one, nor the answers of survivors."""
    resume = Rounds.resume

    def unknown(
        self: Rounds, number: int, attempts: Any, failed: Any, incarnations: Any, replaying: Any
    ) -> Instructions:
        return resume(self, number, attempts, failed, {}, replaying)

    patch.setattr(Rounds, "resume", unknown)
    patch.setattr(RestartsWithoutLog, "learn", lambda self, round_: None)


@BUGS.planted(depth=1)
def a_receiver_forgets_that_its_sender_has_started_anew(patch: pytest.MonkeyPatch) -> None:
    def follow(self: InputChannel, peer: Any) -> None:
        self.peer, self.failures, self.renumbers = peer, 0, peer.reset

    patch.setattr(InputChannel, "follow", follow)


@BUGS.planted(depth=1)
def a_replay_goes_on_when_a_task_before_it_starts_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(RestartsWithoutLog, "useless_replays", lambda self, round_, replaying: [])
