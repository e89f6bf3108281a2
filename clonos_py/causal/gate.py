"""The gate: answers every nondeterministic question of a task, live and logged, or from the log (D4).

While running, the task logs each choice with ``record`` and each service call with ``ask``. While replaying, ``peek``
returns the event that must come next and ``take`` consumes it; ``ask`` returns the logged answer. When the last
determinant is used up, the gate runs live, even in the middle of an event.

The clock is as fine as the granularity: within it, queries of the time are answered with the last time and nothing is
logged. A determinant of time counts such queries before it, so a replay answers exactly those with the old time. The
log does not contain the queries of the old time after its last determinant. So within a replayed event the time changes
only where the log says so. Every epoch begins with a new time, since a snapshot holds none.

A log is copied to every task that depends on it. So an answer larger than 64 KiB is first made durable in a place of
its own, and the log holds its name.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, Protocol, TypeVar

from msgspec.structs import replace

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import (
    Answer,
    Completion,
    Determinant,
    InputOrder,
    ReadBatch,
    Refusal,
    Seed,
    Time,
    decode_value,
    encode_value,
    length,
)
from clonos_py.causal.log import LogWriter
from clonos_py.model.errors import DivergenceError, ProtocolError, ServiceError
from clonos_py.model.segments import LogSegment

D = TypeVar("D")
A = TypeVar("A", Answer, Completion)
ASIDE_BYTES = 64 << 10
"""An answer larger than this is stored aside."""


class Keeper(Protocol):
    """Stores large answers aside."""

    def keep(self, epoch: int, content: bytes) -> str:
        """Makes an answer of this epoch durable and returns its name. Raises CheckpointError."""
        ...

    def kept(self, name: str) -> bytes:
        """The content stored under a name. Raises CheckpointError."""
        ...


class Gate:
    """The gate of one task. ``record``, ``take`` and ``ask`` advance the log's offset with every determinant."""

    def __init__(self, writer: LogWriter, granularity_us: int = 0, keeper: Keeper | None = None) -> None:
        self.writer = writer
        self._granularity_us, self._keeper = granularity_us, keeper
        self._replay: deque[Determinant] = deque()
        self._run_used = 0
        self._repeating = False
        self.reset_time()

    def reset_time(self) -> None:
        """The next query of the time gets a new answer."""
        self._now_us: int | None = None
        self._cached = 0

    @property
    def last_answered_us(self) -> int | None:
        """The last time answered, live or from the log; None if there was none in this epoch."""
        return self._now_us

    def load(self, segments: Iterable[LogSegment]) -> None:
        """Replays these segments. Raises ProtocolError if they do not begin where the log stands. Later determinants
        are encoded as their continuation."""
        expected = self.writer.offset
        self.writer.codec = LogCodec(self.writer.epoch)
        for segment in segments:
            if segment.start != expected:
                raise ProtocolError(f"the log to replay continues at {segment.start}, not at {expected}")
            self._replay.extend(self.writer.codec.load(segment))
            expected = segment.stop

    def load_from(self, segments: Sequence[LogSegment]) -> None:
        """Replays these segments, the first of which is self-contained, from its beginning on."""
        first = segments[0]
        self.writer.resume(first.epoch, first.epoch_start, first.start)
        self.load(segments)

    def load_at(self, segments: Sequence[LogSegment], epoch: int, epoch_start: int, offset: int) -> None:
        """Replays these segments from ``offset`` on, which is in this epoch. Raises ProtocolError if they end before
        it."""
        if segments:
            begins = [n for n, segment in enumerate(segments) if segment.self_contained and segment.start <= offset]
            self.load_from(segments[begins[-1] if begins else 0 :])
        while self._replay and self.writer.offset < offset:
            self.writer.offset += length(self._replay.popleft())
        if segments and self.writer.offset != offset:
            raise ProtocolError(f"the log to replay has no event that ends at {offset}, where the task is to start")
        self.writer.resume(epoch, epoch_start, offset)

    def pass_over(self, segments: Iterable[LogSegment]) -> list[Determinant]:
        """Skips these segments without a replay and continues live (gap recovery). Returns the skipped determinants."""
        skipped: list[Determinant] = []
        self.writer.codec = LogCodec(self.writer.epoch)
        for segment in segments:
            skipped += self.writer.codec.load(segment)
            self.writer.skip(segment)
        return skipped

    @property
    def replaying(self) -> bool:
        return bool(self._replay)

    def follow(self, determinants: Iterable[Determinant]) -> None:
        """The next event is this one, as if it came from a log, and all questions in it are asked live: another task
        has performed it (F3)."""
        self._replay.extend(determinants)

    @property
    def coming(self) -> list[Determinant]:
        """The determinants of the event that must come next; empty while running."""
        first = self._replay[0] if self._replay else None
        return list(islice(self._replay, 1 + (first.count if isinstance(first, ReadBatch) else 0)))

    def peek(self) -> Determinant | None:
        """The event that must come next; None while running."""
        return self._replay[0] if self._replay else None

    def take(self) -> Determinant:
        """Consumes the replay's next event, with a value stored aside loaded; of a run of arrivals only the first."""
        determinant = self._replay[0]
        self._repeating = True
        self.writer.offset += 1
        if isinstance(determinant, InputOrder):
            self._run_used += 1
            if self._run_used < determinant.count:
                return determinant
            self._run_used = 0
        self._replay.popleft()
        return self._loaded(determinant) if isinstance(determinant, Completion) else determinant

    def take_next(self, count: int) -> list[Determinant]:
        """Consumes the next ``count`` determinants, which form one event. Raises DivergenceError if there are fewer."""
        if len(self._replay) < count:
            raise DivergenceError(f"the log ends after {len(self._replay)} of {count} determinants of one event")
        return [self.take() for _ in range(count)]

    def record(self, determinant: Determinant) -> None:
        """Logs a choice made live. Raises ProtocolError while the task replays."""
        if self._replay:
            raise ProtocolError(f"{determinant} was decided live while determinants are still to be replayed")
        self._repeating = False
        self.writer.append(self._externalized(determinant) if isinstance(determinant, Completion) else determinant)

    def _expect(self, kind: type[D], question: str) -> D:
        found = self._replay[0]
        if not isinstance(found, kind):
            raise DivergenceError(f"the replay needs {question} here, but the log of its predecessor has {found}")
        self._replay.popleft()
        self.writer.offset += 1
        return found

    def now(self, live: Callable[[], int]) -> int:
        """The time in microseconds UTC, no older than the granularity."""
        if self._old_time_serves(live):
            self._cached += 1
        else:
            self._now_us = self._new_time(live)
            self._cached = 0
        assert self._now_us is not None
        return self._now_us

    def _old_time_serves(self, live: Callable[[], int]) -> bool:
        if self._now_us is None or not self._granularity_us:
            return False
        if self._repeating:
            following = self._replay[0] if self._replay else None
            return not (isinstance(following, Time) and following.cached == self._cached)
        return 0 <= live() - self._now_us < self._granularity_us

    def _new_time(self, live: Callable[[], int]) -> int:
        if self._replay:
            return self._expect(Time, "the time").now_us
        now_us = live()
        self.writer.append(Time(now_us, self._cached))
        return now_us

    def seed(self, live: Callable[[], int]) -> int:
        """The seed of an epoch's random numbers."""
        if self._replay:
            return self._expect(Seed, "a random seed").seed
        seed = live()
        self.writer.append(Seed(seed))
        return seed

    def ask(self, kind: str, live: Callable[[], Any]) -> Any:
        """Returns a service's answer and logs it. Raises ServiceError if the service did, on replay too."""
        if self._replay:
            return self._replayed(kind)
        try:
            value = live()
        except ServiceError as problem:
            self.writer.append(Refusal(kind, str(problem)))
            raise
        self.writer.append(self._externalized(Answer(kind, value)))
        return value

    def _externalized(self, answer: A) -> A:
        """The answer with its value replaced by a name if the value is large."""
        if self._keeper is None or answer.value is None or isinstance(answer.value, int):
            return answer
        content = encode_value(answer.value)
        if len(content) <= ASIDE_BYTES:
            return answer
        return replace(answer, value=None, kept=self._keeper.keep(self.writer.epoch, content))

    def _loaded(self, answer: A) -> A:
        if answer.kept is None:
            return answer
        if self._keeper is None:
            raise ProtocolError(
                f"the log names the stored answer {answer.kept!r}, but this task has no storage for answers"
            )
        return replace(answer, value=decode_value(self._keeper.kept(answer.kept)), kept=None)

    def _replayed(self, kind: str) -> Any:
        found = self._expect(Answer | Refusal, f"an answer of {kind!r}")  # type: ignore[arg-type]
        if found.kind != kind:
            raise DivergenceError(f"the replay calls {kind!r} here, its predecessor called {found.kind!r}")
        if isinstance(found, Refusal):
            raise ServiceError(found.message)
        return self._loaded(found).value
