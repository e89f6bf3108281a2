"""The gate: every nondeterministic question a task asks, answered live and logged, or from the log (D4).

Running, the task reports each choice with ``record`` and each service question with ``ask``. Replaying, ``peek`` says
which event must come next and ``take`` consumes it; ``ask`` gives the logged answer. When the last determinant is
used up the gate is running, be it in the middle of an event.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import Answer, Determinant, Landmark, Order, Refusal, Seed, Time, length
from clonos_py.causal.log import LogWriter
from clonos_py.model.errors import DivergenceError, ProtocolError, ServiceError
from clonos_py.model.segments import Segment

D = TypeVar("D")


class Gate:
    """One per task. ``record``, ``take`` and ``ask`` keep the log's offset in step with what has happened."""

    def __init__(self, writer: LogWriter) -> None:
        self.writer = writer
        self._replay: deque[Determinant] = deque()
        self._run_used = 0

    def load(self, segments: Iterable[Segment]) -> None:
        """Replays these, which must go on where the log stands. Raises ProtocolError if they do not. What is logged
        after them is coded as their continuation."""
        expected = self.writer.offset
        self.writer.codec = LogCodec(self.writer.epoch)
        for segment in segments:
            if segment.start != expected:
                raise ProtocolError(f"the log to replay goes on at {segment.start}, the snapshot ends at {expected}")
            self._replay.extend(self.writer.codec.load(segment))
            expected = segment.stop

    def skip(self, wanted: Callable[[Landmark], bool]) -> Landmark | None:
        """Leaves out of the replay what lies before its last landmark that is ``wanted``, which comes next then. None,
        and nothing is left out, where there is none."""
        found = [n for n, d in enumerate(self._replay) if isinstance(d, Landmark) and wanted(d)]
        if not found:
            return None
        self.writer.offset += sum(length(self._replay.popleft()) for _ in range(found[-1]))
        landmark = self._replay[0]
        assert isinstance(landmark, Landmark)
        return landmark

    def pass_over(self, segments: Iterable[Segment]) -> list[Determinant]:
        """Takes these as done, whatever came of them, and goes on live after them (gap recovery)."""
        skipped: list[Determinant] = []
        self.writer.codec = LogCodec(self.writer.epoch)
        for segment in segments:
            skipped += self.writer.codec.load(segment)
            self.writer.skip(segment)
        return skipped

    @property
    def replaying(self) -> bool:
        return bool(self._replay)

    def peek(self) -> Determinant | None:
        """The event that must come next; None when running."""
        return self._replay[0] if self._replay else None

    def take(self) -> Determinant:
        """Consumes the next event of the replay; of a run of arrivals only the first."""
        determinant = self._replay[0]
        self.writer.offset += 1
        if isinstance(determinant, Order):
            self._run_used += 1
            if self._run_used < determinant.count:
                return determinant
            self._run_used = 0
        self._replay.popleft()
        return determinant

    def record(self, determinant: Determinant) -> None:
        """Logs a choice made live. Replaying tasks make none."""
        if self._replay:
            raise ProtocolError(f"{determinant} was decided live while determinants are still to be replayed")
        self.writer.append(determinant)

    def _expect(self, kind: type[D], question: str) -> D:
        found = self._replay[0]
        if not isinstance(found, kind):
            raise DivergenceError(f"the replay asks for {question}, its predecessor's log has {found} here")
        self._replay.popleft()
        self.writer.offset += 1
        return found

    def now(self, live: Callable[[], int]) -> int:
        """The time, microseconds UTC."""
        if self._replay:
            return self._expect(Time, "the time").now_us
        now_us = live()
        self.writer.append(Time(now_us))
        return now_us

    def seed(self, live: Callable[[], int]) -> int:
        """The seed of an epoch's random numbers."""
        if self._replay:
            return self._expect(Seed, "a random seed").seed
        seed = live()
        self.writer.append(Seed(seed))
        return seed

    def ask(self, kind: str, live: Callable[[], Any]) -> Any:
        """A service's answer. Raises ServiceError where the service did, replaying too."""
        if self._replay:
            return self._replayed(kind)
        try:
            value = live()
        except ServiceError as problem:
            self.writer.append(Refusal(kind, str(problem)))
            raise
        self.writer.append(Answer(kind, value))
        return value

    def _replayed(self, kind: str) -> Any:
        found = self._expect(Answer | Refusal, f"an answer of {kind!r}")  # type: ignore[arg-type]
        if found.kind != kind:
            raise DivergenceError(f"the replay asks {kind!r}, its predecessor asked {found.kind!r} here")
        if isinstance(found, Refusal):
            raise ServiceError(found.message)
        return found.value
