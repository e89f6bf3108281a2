"""Changed code does what the recorded code did, event by event (F3).

Each event of a task that replays is followed by the same event of its *counterparts*: the tasks of the changed job
with the same place, found by the names of their operators. Where the recorded task took frames up to the one that its
sender cut in some event, a counterpart takes the frames that its own sender has cut up to the counterpart of that
event. So each row arrives after what caused it, and as near as possible to where it arrived then:

    recorded   source reads [0, 100) | cuts frames 7, 8 |                 | join takes frame 7
    changed    source reads [0, 100) | cuts frame 5     |                 | join takes frame 5

Sources read what was read, timers that the recorded code had, too, fire where they fired, and others once the recorded
time has reached them. Frames are also cut where the recorded task cut some on the same channel. A channel or task that
the recorded job did not have takes frames as they come, in the order in which they were cut. Barriers are not repeated.

All of this follows from the record, so a comparison gives the same result each time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import NamedTuple, NoReturn

from clonos_py.causal.determinants import (
    Completion,
    Determinant,
    Fed,
    FrameBatch,
    FrameRows,
    InputOrder,
    Landmark,
    Linger,
    LoopEnd,
    PartitionsDiscovered,
    ReadBatch,
    SourceEnd,
    SourceIdle,
    SourceRead,
    TimerFired,
    Trigger,
)
from clonos_py.channel.frames import Frame, FrameKind
from clonos_py.checkpoint.line import line_channels
from clonos_py.model.errors import DivergenceError, RecordError
from clonos_py.model.ids import Attempt, TaskId
from clonos_py.model.plan import Edge, PhysicalPlan
from clonos_py.model.record_limits import NO_RECORD
from clonos_py.process.contract import Begin, ChannelLimits, Deliver, Produced, RestoreState, SnapshotTaken
from clonos_py.protocols.known import KNOWN
from clonos_py.runtime.replay.answers import LeftRecord
from clonos_py.runtime.replay.correspondence import Correspondence, Place, recorded_vertex
from clonos_py.runtime.replay.interval import RunNames
from clonos_py.runtime.replay.watching import Answering, Listening, WaitingCall
from clonos_py.settings.protocols import ALIGNED
from clonos_py.task.machine import TaskMachine

LAST = 1 << 62
"""The number of the last frame that an event has cut on a channel."""
_TIMERS_AT_ONCE = 10_000
_BEGUN = Attempt(0, 0)
_BARRIERS = frozenset({FrameKind.BARRIER, FrameKind.LAST_BARRIER})


class Cut(NamedTuple):
    """Up to where a frame has the rows of its sender: to event ``event`` of the recorded one, of which ``number``
    frames on the channel precede it. LAST: with it, all rows up to that event are sent. Frames from before the interval
    have event -1.

    A frame of the changed job that is cut in the middle of an event counts as LAST unless the recorded job cut the same
    rows there. So no row arrives before it did in the recorded job."""

    event: int
    number: int


class CutFrame(NamedTuple):
    """A frame of the changed job. ``order``: in which all frames were cut. ``clock_us``: the recorded time then."""

    cut: Cut
    order: int
    frame: Frame
    clock_us: int


@dataclass
class _Channel:
    """An input channel of the changed job. ``recorded``: the one that it corresponds to; None: it is new."""

    sender: TaskId
    receiver: TaskId
    number: int
    edge: Edge
    recorded: Place | None
    next_seq: int = 0
    queue: deque[CutFrame] = field(default_factory=deque)
    cut_in: int = -1
    """The event of the sender that cut the last frame."""
    cuts: int = 0
    """The number of frames that it cut."""
    alike: bool = True
    """Whether these have the same rows as those of the recorded job."""


class RecordedSide:
    """What the counterparts must know of the replay of the recorded code."""

    def __init__(self, plan: PhysicalPlan, machine: Callable[[TaskId], TaskMachine], begun_us: int) -> None:
        """``begun_us``: the time of day where none is known yet."""
        self.plan, self.machine, self.begun_us = plan, machine, begun_us
        self.events = dict.fromkeys(plan.tasks, 0)
        """By task: the number of its events, with the current one."""
        self.clock_us: dict[TaskId, int] = {}
        """By task: the last time of day that it is known to have reached."""
        self.receivers: dict[Place, Place] = {(c.sender, c.output): (c.receiver, c.input) for c in line_channels(plan)}
        self.untaken: dict[Place, deque[tuple[Cut, int]]] = {place: deque() for place in self.receivers.values()}
        """By input channel: the frames that are not taken yet, and the time when they were cut."""
        self.taken: dict[Place, Cut] = {}
        """By input channel: the last frame that was taken."""
        self.had: dict[Place, Cut] = {}
        """By input channel: the last frame that was cut, and that the receiver had before the interval."""
        self.cut_now: dict[Place, list[Frame]] = {}
        """By input channel: the frames that the current event has cut for it."""

    def now_us(self, task: TaskId) -> int:
        return self.clock_us.get(task, self.begun_us)

    def reach(self, task: TaskId, time_us: int) -> None:
        """A task has reached this time of day."""
        self.clock_us[task] = max(time_us, self.clock_us.get(task, time_us))

    def begin_event(self, task: TaskId) -> None:
        self.events[task] += 1
        self.cut_now = {}

    def cut(self, sender: TaskId, output: int, frame: Frame, needed: bool) -> None:
        """The current event has cut a frame. ``needed``: whether the receiver did not have it before the interval."""
        place = self.receivers[sender, output]
        frames = self.cut_now.setdefault(place, [])
        cut = Cut(self.events[sender], len(frames))
        frames.append(frame)
        if needed:
            self.untaken[place].append((cut, self.now_us(sender)))
        else:
            self.had[place] = cut

    def stored(self, place: Place) -> None:
        """A frame was in flight at the beginning of the interval."""
        self.untaken[place].append((Cut(-1, len(self.untaken[place])), self.begun_us))

    def end_event(self, sender: TaskId) -> None:
        """No further frame is cut in the current event."""
        if not self.cut_now:
            return
        pending = {self.receivers[sender, output] for output, _ in self.machine(sender).uncut}
        for place in self.cut_now.keys() - pending:
            frames = reversed(self.cut_now[place])
            barriers = len(list(takewhile(lambda frame: frame.kind in _BARRIERS, frames)))
            self._have_all(place, self.events[sender], barriers + 1)

    def _have_all(self, place: Place, event: int, count: int) -> None:
        """The last ``count`` frames of a channel, as far as they are of this event, have all rows up to it: behind
        barriers there are none."""
        found = self.untaken[place]
        for number in range(1, count + 1):
            if number <= len(found) and found[-number][0].event == event:
                found[-number] = found[-number][0]._replace(number=LAST), found[-number][1]
            elif (had := self.had.get(place)) is not None and had.event == event:
                self.had[place] = had._replace(number=LAST)

    def take(self, place: Place, count: int) -> None:
        """The receiver has taken frames."""
        for _ in range(count):
            self.taken[place], clock_us = self.untaken[place].popleft()
            self.reach(place[0], clock_us)


class RecordedTime:
    """The world outside of a task of the changed job: the recorded time. Operators ask it through their contexts."""

    def __init__(self, clock: Callable[[TaskId], int], task: TaskId) -> None:
        self._clock, self._task = clock, task

    def now_us(self) -> int:
        return self._clock(self._task)

    def seed(self) -> int:
        self._refuse()

    def service(self, name: str) -> object:
        self._refuse()

    def keep(self, epoch: int, content: bytes) -> str:
        self._refuse()

    def kept(self, name: str) -> bytes:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise DivergenceError(f"{self._task} asks the world outside past the record")


def unrecorded(plan: PhysicalPlan) -> PhysicalPlan:
    """The plan of tasks that never fail: they log nothing and take no snapshots."""
    return replace(
        plan, protocol=ALIGNED, sharing_depth=0, rollback=True, gaps=False, standby_feed_us=0, record=NO_RECORD
    )  # fmt: skip


class Counterparts:
    """The tasks of the changed job in one leg of the interval."""

    def __init__(
        self,
        plan: PhysicalPlan,
        recorded: RecordedSide,
        listening: Listening,
        answering: Answering,
        limits: ChannelLimits,
    ) -> None:
        """``plan``: with operators that are answered from the record, sources that read it, and sinks that write
        nothing."""
        self._plan, self._recorded, self._listening, self._answering = plan, recorded, listening, answering
        self._like = Correspondence(recorded.plan, plan)
        self._clock_us: dict[TaskId, int] = {}
        self._tasks_of: dict[TaskId, list[TaskId]] = {}
        for task in plan.tasks:
            if (leader := self._like.leader_of(task)) is not None:
                self._tasks_of.setdefault(leader, []).append(task)
        self._vertex_of = {o.name: vertex for vertex in plan.vertices for o in vertex.operators}
        side = KNOWN[ALIGNED.name].task
        self.machines = {
            task: TaskMachine(plan, task, RecordedTime(self.clock_us, task), side, limits=limits) for task in plan.tasks
        }
        self._order = 0
        self._channels = self._made_channels()
        self._outputs = {(c.sender, output): c for output, c in self._with_outputs()}
        self._outputs_of: dict[TaskId, list[tuple[int, _Channel]]] = {task: [] for task in plan.tasks}
        for (task, output), channel in self._outputs.items():
            self._outputs_of[task].append((output, channel))
        self._inputs: dict[TaskId, list[_Channel]] = {task: [] for task in plan.tasks}
        for channel in self._channels:
            self._inputs[channel.receiver].append(channel)
        self._of_place: dict[Place, list[_Channel]] = {}
        for channel in self._channels:
            if channel.recorded is not None:
                self._of_place.setdefault(channel.recorded, []).append(channel)
        self._free: dict[TaskId, None] = {}
        """Tasks with frames to take as they come."""

    def close(self) -> None:
        for machine in self.machines.values():
            machine.close()

    def _made_channels(self) -> list[_Channel]:
        return [
            _Channel(
                self._plan.sender(channel),
                task,
                number,
                self._plan.edges[channel.edge],
                self._like.recorded_input(task, number),
            )
            for task in self._plan.tasks
            for number, channel in enumerate(self._plan.inputs[task])
        ]

    def _with_outputs(self) -> Iterator[tuple[int, _Channel]]:
        by_input = {(channel.receiver, channel.number): channel for channel in self._channels}
        for line in line_channels(self._plan):
            yield line.output, by_input[line.receiver, line.input]

    # ---- the beginning

    def begin(self, states: Mapping[TaskId, RestoreState | None], names: RunNames) -> None:
        """All tasks start, each from its state (None: empty)."""
        for task, machine in self.machines.items():
            if (state := states.get(task)) is not None:
                machine.offer(state)
            for channel in self._inputs[task]:
                channel.next_seq = machine.progress.inputs[channel.number].next_seq
            machine.offer(Begin(_BEGUN, (), (), names.numbering, at_landmark=False, run=names.run))

    def stored(self, place: Place, frame: Frame) -> None:
        """A frame was in flight at the beginning to a task of the recorded job."""
        for channel in self._of_place.get(place, ()):
            self._add(channel, Cut(-1, len(channel.queue)), frame, self._recorded.begun_us)

    def carry_on(self, frames: Mapping[Place, Sequence[Frame]]) -> None:
        """These frames were left by an earlier leg, by input channel."""
        for channel in self._channels:
            for frame in frames.get((channel.receiver, channel.number), ()):
                self._add(channel, Cut(-1, len(channel.queue)), frame, self._recorded.begun_us)

    def end(self, checkpoint: int) -> tuple[dict[TaskId, SnapshotTaken], dict[Place, list[Frame]]]:
        """What a later leg begins with: the state of each task, and by input channel the frames that are left."""
        taken = {}
        for task, machine in self.machines.items():
            machine.follow([Trigger(checkpoint)])
            (taken[task],) = (event for event in machine.step(0).events if isinstance(event, SnapshotTaken))
        frames = {(c.receiver, c.number): [one.frame for one in c.queue] for c in self._channels if c.queue}
        return taken, frames

    # ---- one event

    def clock_us(self, task: TaskId) -> int:
        """The recorded time of day at a task."""
        leader = self._like.leader_of(task)
        if leader is not None:
            return max(self._recorded.now_us(leader), self._clock_us.get(task, 0))
        return self._clock_us.get(task, self._recorded.begun_us)

    def follow(self, task: TaskId, coming: Sequence[Determinant]) -> None:
        """The recorded task has performed an event: its counterparts do."""
        first = coming[0]
        if isinstance(first, TimerFired | Completion):
            self._answer(task, first)
        if isinstance(first, LoopEnd):
            self._take_all()
        for counterpart in self._tasks_of.get(task, ()):
            self._perform(counterpart, task, coming)
            self._cut_as(counterpart, task)
            self._settle(counterpart)
            self._end_event(counterpart)
        self._take_free()

    def _perform(self, task: TaskId, leader: TaskId, coming: Sequence[Determinant]) -> None:
        machine = self.machines[task]
        match coming[0]:
            case InputOrder(channel=number):
                self._take(task, (leader, number), together=False)
            case FrameBatch(channel=number):
                self._take(task, (leader, number), together=True)
            case SourceRead() | ReadBatch() if self._reads(task):
                self._step(task, coming)
            case SourceIdle() | SourceEnd() | PartitionsDiscovered() if self._reads(task):
                self._step(task, coming)
            case Linger() | Fed() | Landmark() | Trigger():
                self._step(task, [Linger()])
            case FrameRows(output=output, rows=rows):
                place = self._recorded.receivers[leader, output]
                for own, channel in self._outputs_of[task]:
                    if channel.recorded == place:
                        self._step(task, [FrameRows(own, rows)])
            case LoopEnd() if self._plan.loop_of(task) is not None and not machine.progress.finished:
                self._step(task, coming)

    def _reads(self, task: TaskId) -> bool:
        return self._plan.by_name[task.vertex].source is not None

    def _cut_as(self, task: TaskId, leader: TaskId) -> None:
        """Cuts what is pending, if the recorded event has cut frames on a channel on which its counterpart has not, or
        if the pending rows are for a channel that the recorded job did not have."""
        event = self._recorded.events[leader]
        for output, _ in self.machines[task].uncut:
            channel = self._outputs[task, output]
            new = channel.recorded is None
            if new or (channel.recorded in self._recorded.cut_now and channel.cut_in != event):
                self._step(task, [Linger()])
                return

    def _settle(self, task: TaskId) -> None:
        """Fires the timers that are due, and completes the calls that the recorded code has not in common."""
        for _ in range(_TIMERS_AT_ONCE):
            if (due := self._due(task)) is not None:
                self._step(task, [due])
            elif (answer := self._answered(task)) is not None:
                self._step(task, [answer])
            else:
                return

    def _due(self, task: TaskId) -> TimerFired | None:
        vertex, clock_us = self._plan.by_name[task.vertex], self.clock_us(task)
        for at_us, number in self.machines[task].timers:
            if at_us > clock_us:
                break
            if not self._has_timer(vertex.operators[number].name, task.index, at_us):
                return TimerFired(number, at_us)
        return None

    def _has_timer(self, operator: str, index: int, at_us: int) -> bool:
        """Whether the recorded code has this timer, too."""
        vertex = recorded_vertex(self._recorded.plan, operator)
        if vertex is None or index >= vertex.parallelism:
            return False
        number = [o.name for o in vertex.operators].index(operator)
        return (at_us, number) in self._recorded.machine(TaskId(vertex.name, index)).timers

    # ---- timers and answers that both have

    def _answer(self, task: TaskId, determinant: TimerFired | Completion) -> None:
        name = self._recorded.plan.by_name[task.vertex].operators[determinant.operator].name
        vertex = self._vertex_of.get(name)
        if vertex is None or task.index >= vertex.parallelism:
            return
        counterpart = TaskId(vertex.name, task.index)
        number = [operator.name for operator in vertex.operators].index(name)
        if isinstance(determinant, TimerFired):
            if (determinant.at_us, number) in self.machines[counterpart].timers:
                self._step(counterpart, [TimerFired(number, determinant.at_us)])
        else:
            self._complete(counterpart, name, number, determinant)
        if counterpart not in self._tasks_of.get(task, ()):
            self._after(counterpart)

    def _complete(self, task: TaskId, operator: str, number: int, completion: Completion) -> None:
        """Completes the call that is the same as the one of the recorded code that was answered."""
        waiting = self._answering.calls.get((operator, task.index), {})
        answered = self._listening.answered.get((operator, task.index))
        same = [call for call, made in waiting.items() if made.asked == answered]
        if same:
            call = completion.call if completion.call in same else same[0]
            self._step(task, [self._completion(task, operator, number, call, waiting[call])])

    def _completion(self, task: TaskId, operator: str, number: int, call: int, made: WaitingCall) -> Completion:
        moment, answering = self._answering.moment(task, operator)._replace(row=made.asked.row), self._answering
        try:
            found = answering.answer(operator, moment, made.service, made.question, lambda: made.text)
        except LeftRecord:
            assert answering.record.refused is not None
            raise answering.record.refused from None
        return Completion(number, call, found.value, found.error)

    def _answered(self, task: TaskId) -> Completion | None:
        """The next waiting call that the recorded code does not wait for."""
        for number, operator in enumerate(self._plan.by_name[task.vertex].operators):
            waiting = self._answering.calls.get((operator.name, task.index))
            for call, made in (waiting or {}).items():
                if not self._listening.will_ask(operator.name, task.index, made.asked):
                    return self._completion(task, operator.name, number, call, made)
        return None

    # ---- frames

    def _take(self, task: TaskId, place: Place, together: bool) -> None:
        """Takes what a task may have where the recorded one has taken frames from an input channel."""
        reached = self._recorded.taken.get(place)
        if reached is None:
            return
        for channel in self._of_place.get(place, ()):
            if channel.receiver == task:
                frames = []
                while channel.queue and channel.queue[0].cut <= reached:
                    frames.append(channel.queue.popleft())
                self._enter(channel, frames, together)

    def _enter(self, channel: _Channel, waiting: Sequence[CutFrame], together: bool) -> None:
        """Gives frames of a channel to its task."""
        group: list[CutFrame] = []
        for one in waiting:
            if group and not (together and channel.edge.merge_rows and one.frame.kind is FrameKind.DATA):
                self._give(channel, group)
                group = []
            group.append(one)
            if one.frame.kind is not FrameKind.DATA:
                self._give(channel, group)
                group = []
        if group:
            self._give(channel, group)

    def _give(self, channel: _Channel, group: Sequence[CutFrame]) -> None:
        task, machine = channel.receiver, self.machines[channel.receiver]
        for one in group:
            machine.offer(Deliver(channel.number, replace(one.frame, seq=channel.next_seq)))
            channel.next_seq += 1
            self._clock_us[task] = max(self._clock_us.get(task, 0), one.clock_us)
        many = len(group) > 1
        self._step(task, [FrameBatch(channel.number, len(group)) if many else InputOrder(channel.number, 1)])

    def _take_free(self) -> None:
        """Takes the frames of channels that the recorded job did not have, in the order in which they were cut."""
        while self._free:
            task = min(self._free, key=lambda task: self._first(task).order)
            waiting = self._first_channel(task)
            first = waiting.queue.popleft()
            if not any(channel.recorded is None and channel.queue for channel in self._inputs[task]):
                del self._free[task]
            self._give(waiting, [first])
            self._after(task)

    def _first_channel(self, task: TaskId) -> _Channel:
        channels = [channel for channel in self._inputs[task] if channel.recorded is None and channel.queue]
        return min(channels, key=lambda channel: channel.queue[0].order)

    def _first(self, task: TaskId) -> CutFrame:
        return self._first_channel(task).queue[0]

    def _after(self, task: TaskId) -> None:
        """Cuts what a task has made in an event that no recorded task had."""
        self._settle(task)
        if self.machines[task].uncut:
            self._step(task, [Linger()])

    def finish(self) -> None:
        """Takes what is left in channels of which the recorded job has taken all, and completes calls."""
        self._take_all()
        for task in self.machines:
            self._settle(task)
        self._take_free()

    def _take_all(self) -> None:
        moved = True
        while moved:
            moved = False
            for channel in self._channels:
                if channel.recorded is not None and not self._recorded.untaken[channel.recorded] and channel.queue:
                    frames, channel.queue = list(channel.queue), deque()
                    self._enter(channel, frames, together=True)
                    self._after(channel.receiver)
                    moved = True
            self._take_free()

    def _step(self, task: TaskId, determinants: Sequence[Determinant]) -> None:
        """Performs an event. Raises RecordError if it has asked a question that ends the comparison."""
        machine = self.machines[task]
        machine.follow(determinants)
        record = self._answering.record
        try:
            outcome = machine.step(0)
        except LeftRecord:
            assert record.refused is not None
            raise record.refused from None
        if record.refused is not None:  # a function of the user may have caught the error
            raise record.refused
        if outcome.wake_us is not None:
            raise RecordError(f"{task} of the changed job cannot repeat {determinants[0]}")
        for event in outcome.events:
            if isinstance(event, Produced):
                for output, frame in event.frames:
                    self._cut(task, output, frame)

    def _cut(self, task: TaskId, output: int, frame: Frame) -> None:
        channel, leader = self._outputs[task, output], self._like.leader_of(task)
        event = self._recorded.events[leader] if leader is not None else 0
        if channel.cut_in != event:
            channel.cut_in, channel.cuts, channel.alike = event, 0, True
        cut = Cut(event, LAST)
        if channel.recorded is not None:
            recorded = self._recorded.cut_now.get(channel.recorded, [])
            channel.alike = channel.alike and channel.cuts < len(recorded) and _alike(frame, recorded[channel.cuts])
            if channel.alike:
                cut = Cut(event, channel.cuts)
            channel.cuts += 1
            if (had := self._recorded.had.get(channel.recorded)) is not None and cut <= had:
                return
        self._add(channel, cut, frame, self.clock_us(task))

    def _end_event(self, task: TaskId) -> None:
        """No further frame is cut in the event: the last one of a channel without pending rows has all of them."""
        pending = {output for output, _ in self.machines[task].uncut}
        for output, channel in self._outputs_of[task]:
            last = channel.queue[-1] if channel.queue else None
            if last is not None and output not in pending and last.cut.event == channel.cut_in >= 0:
                channel.queue[-1] = last._replace(cut=last.cut._replace(number=LAST))

    def _add(self, channel: _Channel, cut: Cut, frame: Frame, clock_us: int) -> None:
        self._order += 1
        channel.queue.append(CutFrame(cut, self._order, frame, clock_us))
        if channel.recorded is None:
            self._free[channel.receiver] = None


def _alike(one: Frame, other: Frame) -> bool:
    """Whether frames have the same rows."""
    if one.rows is None or other.rows is None:
        return one.rows is other.rows
    return bool(one.rows.schema.equals(other.rows.schema) and one.rows.equals(other.rows))
