"""Regenerates frames from the log of their task, instead of retaining them.

A second machine of the task regenerates a channel's frames from number n on. It starts at the last landmark before n
and replays the log from there. Frames for other channels are dropped. Each channel has a machine of its own, which runs
at its receiver's pace: receivers that wait for each other could deadlock on a shared one.

Invariant: such a machine never makes a live choice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from clonos_py.channel.frames import Frame
from clonos_py.model.errors import ProtocolError
from clonos_py.model.ids import Attempt
from clonos_py.process.contract import Begin, Produced, Regenerate, RegenerateBelow, Regenerated
from clonos_py.task.outcome import Outcome

_NO_ATTEMPT = Attempt(0, 0)
_EVENTS_PER_STEP = 8
"""The number of log events per step, after which the task may do other work."""


class Replayer(Protocol):
    """A task machine that only replays a log."""

    @property
    def replaying(self) -> bool: ...

    def offer(self, item: Begin, /) -> None: ...

    def step(self, now_us: int, /) -> Outcome: ...

    def close(self) -> None: ...


class _Run:
    """The regeneration of one channel's frames."""

    def __init__(self, request: Regenerate, machine: Replayer) -> None:
        self.request = request
        self.below = request.below
        self.next_seq = request.start
        self._machine = machine
        machine.offer(Begin(_NO_ATTEMPT, request.log, (), before=(request.output, request.start)))

    @property
    def has_room(self) -> bool:
        return self.next_seq < self.below

    @property
    def done(self) -> bool:
        return self.next_seq >= self.request.stop

    def step(self) -> list[Frame]:
        """Replays a few logged events, up to the first that cuts frames for this channel, and returns these frames."""
        for _ in range(_EVENTS_PER_STEP):
            if frames := self._event():
                return frames
        return []

    def _event(self) -> list[Frame]:
        if not self._machine.replaying:
            raise ProtocolError(
                f"frame {self.next_seq} of output {self.request.output} cannot be regenerated: the log ends before it"
            )
        events = self._machine.step(0).events
        cut = [f for e in events if isinstance(e, Produced) for index, f in e.frames if index == self.request.output]
        frames = [replace(frame, marker_us=0) for frame in cut if self.next_seq <= frame.seq < self.request.stop]
        self.next_seq += len(frames)
        return frames

    def close(self) -> None:
        self._machine.close()


class Regeneration:
    """The regeneration runs of one task, at most one per output. They take turns."""

    def __init__(self, new_machine: Callable[[], Replayer]) -> None:
        """``new_machine`` creates a second machine of the same task."""
        self._new_machine = new_machine
        self._runs: dict[int, _Run] = {}

    def take(self, item: Regenerate | RegenerateBelow) -> None:
        match item:
            case Regenerate(output):
                if (old := self._runs.pop(output, None)) is not None:
                    old.close()
                self._runs[output] = _Run(item, self._new_machine())
            case RegenerateBelow(output, below):
                if output in self._runs:
                    self._runs[output].below = below

    def step(self) -> Regenerated | None:
        """Advances one run whose receiver has room; None if there is no such run. The result may have no frames yet."""
        output = next((output for output, run in self._runs.items() if run.has_room), None)
        if output is None:
            return None
        run = self._runs.pop(output)
        frames = run.step()
        if run.done:
            run.close()
        else:
            self._runs[output] = run
        return Regenerated(output, run.request.run, frames)

    def close(self) -> None:
        for run in self._runs.values():
            run.close()
