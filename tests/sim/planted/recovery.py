"""Bugs of recovery: which processes are asked and listened to, what is sent again, from where a replacement starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from clonos_py.causal.log import CausalStore
from clonos_py.channel.cursor import Cursor
from clonos_py.channel.frames import Frame, FrameHeader
from clonos_py.channel.retained import RetainedFrames
from clonos_py.job.events import Instructions
from clonos_py.job.rounds import Rounds
from clonos_py.job.takeover import Takeover
from clonos_py.link import instructions as io
from clonos_py.link.connections import Connections
from clonos_py.link.machine import LINK_EVENTS, LinkMachine
from clonos_py.link.receiving import InputChannel
from clonos_py.link.restoring import Restoring
from clonos_py.link.sending import Outgoing, OutputChannel
from clonos_py.model.ids import Attempt
from clonos_py.model.messages import Restore, Sever
from clonos_py.model.states import Ignored, Unless
from clonos_py.model.times import MIN_TIME
from clonos_py.process.contract import StateChanged, TaskState
from clonos_py.protocols.parts.coordinated import CoordinatedCheckpoints
from clonos_py.task.chain import Chain
from clonos_py.task.inputs import Inputs
from clonos_py.task.machine import TaskMachine
from clonos_py.task.outputs import Outputs
from clonos_py.task.reader import Reader
from clonos_py.task.snapshotting import Snapshotting
from clonos_py.task.timers import Timers
from tests.sim.planted.bug import Bugs

BUGS = Bugs()


def rehandled(patch: pytest.MonkeyPatch, event: type, handler: Callable[..., list[io.Instruction]]) -> None:
    """From now on, the link handles ``event`` with ``handler``. Those that come too late are ignored as before."""
    for state in TaskState:
        match LINK_EVENTS.row(state).get(event):
            case None | Ignored():
                continue
            case Unless(late, why):
                patch.setitem(LINK_EVENTS.row(state), event, Unless(late, why, handler))
            case _:
                patch.setitem(LINK_EVENTS.row(state), event, handler)


# ---- the round


@BUGS.planted()
def replay_starts_before_survivors_have_answered(patch: pytest.MonkeyPatch) -> None:
    tell = Rounds._promote_and_sever

    def hasty(self: Rounds, round_: Any, promoted: Any) -> Instructions:
        instructions = tell(self, round_, promoted)
        round_.awaited.clear()
        return instructions

    patch.setattr(Rounds, "_promote_and_sever", hasty)


@BUGS.planted()
def survivors_do_not_say_all_they_hold(patch: pytest.MonkeyPatch) -> None:
    of = CausalStore.of
    patch.setattr(CausalStore, "of", lambda self, task: of(self, task)[:-1])


@BUGS.planted()
def recovering_processes_are_not_asked_what_they_hold(patch: pytest.MonkeyPatch) -> None:
    tell = Rounds._promote_and_sever

    def only_active(self: Rounds, round_: Any, promoted: Any) -> Instructions:
        instructions = tell(self, round_, promoted)
        silent = {p.number for p in self._context.fleet.processes.values() if p.role.name == "PROMOTED"}
        round_.awaited -= silent
        return instructions

    patch.setattr(Rounds, "_promote_and_sever", only_active)


# ---- connections


@BUGS.planted(depth=0)
def frames_of_a_connection_overtake_each_other(patch: pytest.MonkeyPatch) -> None:
    """Two that could be sent together are swapped, and their receiver takes them as they come."""
    sendable = OutputChannel.sendable

    def swapped(self: OutputChannel, store: CausalStore) -> Iterator[Outgoing]:
        frames = list(sendable(self, store))
        for first in range(0, len(frames) - 1, 2):
            frames[first : first + 2] = frames[first + 1], frames[first]
        yield from frames

    def receive(self: InputChannel, header: FrameHeader, frame: Frame) -> Frame:
        self.next_seq = max(self.next_seq, header.seq + 1)
        return frame

    def offer(self: Inputs, index: int, frame: Frame) -> None:
        self._channels[index].queue.append(frame)

    patch.setattr(OutputChannel, "sendable", swapped)
    patch.setattr(InputChannel, "receive", receive)
    patch.setattr(Inputs, "offer", offer)


@BUGS.planted()
def survivors_answer_before_they_close_connections(patch: pytest.MonkeyPatch) -> None:
    """Unread frames in the sockets of the dead are taken after the answer that does not contain them."""
    sever, handle = LinkMachine._on_sever, LinkMachine.handle
    late: dict[int, list[Sever]] = {}

    def answer(self: LinkMachine, message: Sever) -> list[io.Instruction]:
        late.setdefault(id(self), []).append(message)
        with pytest.MonkeyPatch.context() as open_:
            _keep_connections(open_)
            return sever(self, message)

    def close_later(self: LinkMachine, event: Any) -> list[io.Instruction]:
        instructions = handle(self, event)
        if not isinstance(event, Sever) and (messages := late.pop(id(self), None)):
            for message in messages:
                instructions += [i for i in sever(self, message) if not isinstance(i, io.SendToCoordinator)]
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
        output = next(o for o in self._outputs if o.channel == event.hello.channel)
        output.attempt = min(output.attempt, event.hello.receiver)
        return admit(self, event)

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
    connect = Cursor.connect
    patch.setattr(Cursor, "connect", lambda self, next_seq: connect(self, self._frames.first))
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

    def hasty(self: OutputChannel, next_seq: int, held: Any, rows_requested: int = 0) -> bool:
        changed = acknowledged(self, next_seq, held, rows_requested)
        self.cover(next_seq)
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
    def forgets(self: LinkMachine, event: Any) -> list[io.Instruction]:
        instructions = LinkMachine._on_state_changed(self, event)
        if event.state.name == "FINISHED":
            for output in self.outputs:
                output.frames._drop_below(output.cursor.acked)
        return instructions

    rehandled(patch, StateChanged, forgets)


@BUGS.planted()
def back_pressure_holds_a_replaying_task(patch: pytest.MonkeyPatch) -> None:
    """Frames that its receivers had from its predecessor count as not received yet."""
    connect, replay = Cursor.connect, TaskMachine._replay_event

    def unaware(self: Cursor, next_seq: int) -> None:
        connect(self, next_seq)
        self.acked = self._retained_at_connect = self._frames.first

    patch.setattr(Cursor, "connect", unaware)
    patch.setattr(TaskMachine, "_replay_event", lambda self, now_us: self._may_produce and replay(self, now_us))


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

    def at_the_first(self: Outputs, epoch: int, progress: Any) -> None:
        restore(self, epoch, progress)
        for output in self._edges.values():
            output.turn = 0

    patch.setattr(Outputs, "restore", at_the_first)


@BUGS.planted()
def watermarks_of_inputs_are_not_restored(patch: pytest.MonkeyPatch) -> None:
    restore = Inputs.restore

    def unknown(self: Inputs, progress: Any) -> None:
        restore(self, progress)
        for channel in self._channels:
            channel.progress.watermark = MIN_TIME

    patch.setattr(Inputs, "restore", unknown)


@BUGS.planted()
def timers_are_lost_with_the_task(patch: pytest.MonkeyPatch) -> None:
    restore_state = TaskMachine._restore_state

    def forgetful(self: TaskMachine, item: Any) -> None:
        restore_state(self, item)
        self._shared.timers.clear()

    patch.setattr(TaskMachine, "_restore_state", forgetful)


@BUGS.planted()
def a_timer_fires_again_after_replay(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Timers, "remove", lambda self, operator, at_us: None)


@BUGS.planted()
def of_timers_for_the_same_time_one_is_restored(patch: pytest.MonkeyPatch) -> None:
    restore = Snapshotting.restore

    def first_only(self: Snapshotting, item: Any) -> None:
        restore(self, item)
        timers = self._shared.timers
        for (at_us, _), (next_us, operator) in pairwise(timers.all):
            if at_us == next_us:
                timers.remove(operator, at_us)

    patch.setattr(Snapshotting, "restore", first_only)


@BUGS.planted()
def idleness_of_inputs_is_not_restored(patch: pytest.MonkeyPatch) -> None:
    restore = Inputs.restore

    def awake(self: Inputs, progress: Any) -> None:
        restore(self, progress)
        for channel in self._channels:
            channel.progress.idle = False

    patch.setattr(Inputs, "restore", awake)


# ---- tasks that restart, where availability is preferred


@BUGS.planted("kill", "coordinator", depth=1)
def lives_are_forgotten_with_the_coordinator(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Takeover, "_incarnations", lambda self, round_: {})


@BUGS.planted(depth=1)
def a_receiver_forgets_that_its_sender_has_started_anew(patch: pytest.MonkeyPatch) -> None:
    def follow(self: InputChannel, peer: Any) -> None:
        self.peer, self.failures, self.renumbers = peer, 0, peer.reset

    patch.setattr(InputChannel, "follow", follow)


@BUGS.planted(depth=1)
def a_replay_goes_on_when_a_task_before_it_starts_anew(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Rounds, "_abandon_replays", lambda self, round_: [])
