"""How the coordinator detects that a loop has ended (E11).

    [*] --> OPEN
    OPEN --all that enters it has ended--> PROBED
    PROBED --rows are left--> OPEN
    PROBED --no rows are left--> QUIET
    QUIET --every task of the loop restarts behind that--> ENDED
    any --its heads have ended--> ENDED
    any --a task failed--> OPEN

A loop has ended when it holds no rows and none will enter. To find out, the coordinator asks the tasks of the loop how
many frames each of their channels has cut and taken. Each channel is counted by itself (Mattern, Algorithms for
distributed termination detection, 5). If all tasks are passive, and every channel has delivered all frames that entered
it, then the answers, though taken at different moments, form a consistent cut without frames in flight. Nothing will
happen in the loop any more.

Failures are the exception. A replaced task takes its last frames again, perhaps in another order where no other task
depends on the order, and may feed rows back. So the heads are sent EndLoop only when no task of the loop can restart
from before its answer. That condition is durable: it holds after any later failure, and a new coordinator may probe
again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from clonos_py.checkpoint.line import line_channels
from clonos_py.job.checkpointing import JobCheckpointing
from clonos_py.job.context import CoordinatorContext
from clonos_py.job.events import Instructions, Send
from clonos_py.job.states import LOOP_STATES, LoopCause, LoopState
from clonos_py.model.ids import TaskId
from clonos_py.model.messages import EndLoop, Probe, Probed
from clonos_py.model.plan import Loop, PhysicalPlan
from clonos_py.model.purposes import Purpose
from clonos_py.model.states import LastEvents
from clonos_py.model.times import MAX_TIME

_FIRST_PAUSE_US, _LAST_PAUSE_US = 10_000, 500_000
"""The pause between two probes that find rows; each pause is twice the one before."""
_CHECKPOINT_AGAIN_US = 1_000_000
_PROBES_PER_GENERATION = 1 << 32


class _Detection:
    """The detection of the end of one loop."""

    def __init__(self, plan: PhysicalPlan, loop: Loop, last: LastEvents) -> None:
        self._last = last
        self.state = LOOP_STATES.initial
        channels = [c for c in line_channels(plan) if c.receiver.vertex in loop.members]
        self.channels = [c for c in channels if c.sender.vertex in loop.members]
        """The channels inside the loop."""
        self.feeders = frozenset(c.sender for c in channels if c not in self.channels)
        """Tasks outside the loop that send into it."""
        self.tasks = [task for task in plan.tasks if task.vertex in loop.members]
        self.heads = [task for task in plan.tasks if task.vertex == loop.head]
        self.probe = 0
        """The number of the last probe."""
        self.answers: dict[TaskId, Probed] = {}
        self.quiet: dict[TaskId, int] = {}
        """By task: the epoch in which it was when the loop held no rows."""
        self.due_us = 0
        """When to take the next step, a probe or another checkpoint; 0: as soon as possible."""
        self.pause_us = _FIRST_PAUSE_US

    def enter(self, cause: LoopCause) -> None:
        self.state = LOOP_STATES.after(self.state, cause, f"the loop of {self.heads[0].vertex}", self._last)

    def reset(self) -> None:
        """A task has failed: the counts do not apply to its replacement."""
        if self.state is not LoopState.OPEN:
            self.enter(LoopCause.TASK_FAILED)
        self.due_us, self.pause_us = 0, _FIRST_PAUSE_US

    @property
    def empty(self) -> bool:
        """Whether the loop holds no rows, according to the answers of all tasks."""
        answers = self.answers
        return all(answer.passive for answer in answers.values()) and all(
            answers[c.sender].cut[c.output] == answers[c.receiver].taken[c.input] for c in self.channels
        )


class LoopEnds:
    """Detects the end of all loops of a job. ``trigger`` triggers a checkpoint; it does nothing if none can begin.
    ``last``: the last events of the job."""

    def __init__(
        self,
        context: CoordinatorContext,
        protocol: JobCheckpointing,
        trigger: Callable[[Purpose], Instructions],
        last: LastEvents,
    ) -> None:
        self._context, self._protocol, self._trigger = context, protocol, trigger
        self._detections = [_Detection(context.plan, loop, last) for loop in context.plan.loops]
        self._probes = 0

    def reset(self) -> None:
        """A task has failed, or all tasks restart: earlier answers no longer apply."""
        for detection in self._detections:
            detection.reset()

    @property
    def wake_us(self) -> int:
        """When ``advance`` must be called next."""
        waiting = [d.due_us for d in self._detections if d.state in (LoopState.OPEN, LoopState.QUIET) and d.due_us]
        return min(waiting, default=MAX_TIME)

    def advance(self, drained: frozenset[TaskId]) -> Instructions:
        """Takes the next step for each loop. All tasks run. ``drained``: the tasks at the end of their input."""
        out: Instructions = []
        for detection in self._detections:
            if detection.state is not LoopState.ENDED and drained.issuperset(detection.heads):
                detection.enter(LoopCause.HEADS_ENDED)
            if drained.issuperset(detection.feeders):
                out += self._next_step(detection)
        return out

    def answer(self, task: TaskId, message: Probed) -> None:
        """Stores the counts of a task. ``advance`` takes the next step from them."""
        for detection in self._detections:
            if detection.state is not LoopState.PROBED or message.number != detection.probe:
                continue
            detection.answers[task] = message
            if len(detection.answers) < len(detection.tasks):
                return
            if detection.empty:
                detection.enter(LoopCause.NO_ROWS_LEFT)
                detection.quiet = {t: answer.epoch for t, answer in detection.answers.items()}
                detection.due_us = 0
            else:
                detection.enter(LoopCause.ROWS_LEFT)
                detection.due_us = self._context.now_us + detection.pause_us
                detection.pause_us = min(2 * detection.pause_us, _LAST_PAUSE_US)

    def _next_step(self, detection: _Detection) -> Instructions:
        match detection.state:
            case LoopState.OPEN if detection.due_us <= self._context.now_us:
                return self._probe(detection)
            case LoopState.QUIET:
                return self._end(detection)
        return []

    def _probe(self, detection: _Detection) -> Instructions:
        detection.enter(LoopCause.PROBE_SENT)
        self._probes += 1
        detection.probe = self._context.generation * _PROBES_PER_GENERATION + self._probes
        detection.answers = {}
        return self._sent(detection.tasks, Probe(detection.probe))

    def _end(self, detection: _Detection) -> Instructions:
        if all(self._protocol.safe_epoch(task) > epoch for task, epoch in detection.quiet.items()):
            detection.enter(LoopCause.END_SENT)
            return self._sent(detection.heads, EndLoop())
        if detection.due_us > self._context.now_us:
            return []
        triggers = self._trigger(Purpose.REQUESTED)
        detection.due_us = self._context.now_us + _CHECKPOINT_AGAIN_US if triggers else 0
        return triggers

    def _sent(self, tasks: Collection[TaskId], message: Probe | EndLoop) -> Instructions:
        return [Send(self._context.fleet.owner_of(task).number, message) for task in tasks]
