"""The causal log: segments of determinants, the writer of a task's own log, and the store of all logs in a process.

Offsets count determinants from the start of the job and are never reset (D6). The task whose log it is cuts a segment
once. The segment travels unchanged over every path: holders compare whole segments and never decode what they forward.

Invariants of the store, checked on every append:
- a log is contiguous except for stable parts: marks state, by log, which epochs no replay needs any more;
- a segment that arrives again equals the one held;
- of each task only the newest incarnation is held: when a task restarts without its log, the old log is void.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import Determinant, InputOrder, length
from clonos_py.model.errors import ProtocolError
from clonos_py.model.ids import LogId, TaskId
from clonos_py.model.segments import ALL_LOGS, LogSegment, Reach, StableMark

PENDING_MAX = 256
"""A log is passed on with the frames that depend on it, and at the latest when it has this many determinants."""


class LogWriter:
    """Collects a task's own determinants and cuts them into segments. Runs of arrivals are run-length encoded."""

    def __init__(self, log: LogId, keeps: bool = True) -> None:
        """``keeps``: False if the log is never used; then determinants are only counted."""
        self._log, self._keeps = log, keeps
        self.codec = LogCodec()
        """Encodes the segments. A replay replaces it with the codec that decoded the log, to continue its encoding."""
        self._pending: list[Determinant] = []
        self._count = 0
        self.epoch = 0
        self.epoch_start = 0
        self.offset = 0
        """The offset after the last determinant, pending ones included."""

    def resume(self, epoch: int, epoch_start: int, offset: int) -> None:
        """Continues after a snapshot, or after a replay, that ended at ``offset``."""
        self._pending, self._count = [], 0
        self.epoch, self.epoch_start, self.offset = epoch, epoch_start, offset

    def skip(self, segment: LogSegment) -> None:
        """Continues after a segment that a predecessor cut."""
        self.epoch, self.epoch_start, self.offset = segment.epoch, segment.epoch_start, segment.stop

    def append(self, determinant: Determinant) -> None:
        covered = length(determinant)
        self.offset += covered
        if not self._keeps:
            return
        self._count += covered
        if isinstance(determinant, InputOrder) and self._pending:
            last = self._pending[-1]
            if isinstance(last, InputOrder) and last.channel == determinant.channel:
                self._pending[-1] = InputOrder(last.channel, last.count + determinant.count)
                return
        self._pending.append(determinant)

    @property
    def full(self) -> bool:
        """Whether the pending determinants should be cut without waiting for a frame that depends on them."""
        return len(self._pending) >= PENDING_MAX

    def cut(self) -> LogSegment | None:
        """Everything since the last cut as one segment; None if there is nothing."""
        if not self._pending:
            return None
        start, fresh = self.offset - self._count, self.codec.fresh
        payload = self.codec.encode(self._pending)
        segment = LogSegment(self._log, self.epoch, self.epoch_start, start, self._count, payload, self_contained=fresh)
        self._pending, self._count = [], 0
        return segment

    def open_epoch(self, checkpoint: int) -> LogSegment | None:
        """The snapshot of ``checkpoint`` is taken here: cuts the rest of the old epoch and begins the new one."""
        rest = self.cut()
        self.epoch, self.epoch_start = checkpoint, self.offset
        if self.codec.epoch < checkpoint:
            self.codec.restart(checkpoint)
        return rest

    def allow_replay_from_here(self) -> None:
        """The next segment begins here and is self-contained. Everything before must have been cut."""
        assert not self._pending
        self.codec.restart(self.epoch)


class CausalStore:
    """All logs that a process holds: its own task's and those of upstream tasks within the sharing depth."""

    def __init__(self, tasks: Mapping[LogId, TaskId] | None = None) -> None:
        """``tasks``: the tasks of all logs, by which errors name them."""
        self._tasks = tasks or {}
        self._journal: list[LogSegment] = []
        self._dropped = 0
        self._segments: dict[LogId, dict[int, LogSegment]] = {}
        self._ends: dict[LogId, int] = {}
        self._incarnations: dict[LogId, int] = {}
        self.incomplete: tuple[LogId, ...] = ()
        """Logs of which a predecessor of this process may have held more."""
        self._stable: dict[LogId, int] = {}
        """By log: the newest mark, in the order in which they arrived."""
        self.marks_taken = 0
        """The number of new marks taken in. A connection uses it as the position up to which it has carried marks."""
        self.size_bytes = 0

    def append(self, segment: LogSegment) -> bool:
        """Takes a segment in. The marks that arrived with it must have been taken in before.

        Returns False if the segment was held already. Raises ProtocolError on a gap, and on an overlap that differs.
        """
        if segment.epoch < self.stable(segment.log) or not self._is_current(segment):
            return False
        held = self._segments.setdefault(segment.log, {})
        end = self._ends.get(segment.log)
        if end is not None and segment.start < end:
            self._compare(segment, held.get(segment.start), end)
            return False
        missing_is_stable = segment.start == segment.epoch_start and segment.epoch <= self.stable(segment.log)
        if end is not None and segment.start > end and not missing_is_stable:
            raise ProtocolError(f"{self._name(segment)} has a gap: held up to {end}, next received is {segment.start}")
        held[segment.start] = segment
        self._ends[segment.log] = segment.stop
        self._journal.append(segment)
        self.size_bytes += len(segment.payload)
        return True

    def extend(self, segments: Sequence[LogSegment]) -> None:
        """Takes in all segments, as ``append`` does one by one. It is several times as fast where they continue one
        log: a replacement waits for it."""
        if not self._continue(segments):
            for segment in segments:
                self.append(segment)
            return
        first, last = segments[0], segments[-1]
        self._segments.setdefault(first.log, {}).update((segment.start, segment) for segment in segments)
        self._ends[first.log] = last.stop
        self._journal += segments
        self.size_bytes += sum(len(segment.payload) for segment in segments)

    def _continue(self, segments: Sequence[LogSegment]) -> bool:
        """Whether these are segments of one log without a gap, none of which is held or stable."""
        if not segments:
            return False
        first, next_start = segments[0], segments[0].start
        held = (first.log, first.incarnation)
        for segment in segments:
            if segment.start != next_start or (segment.log, segment.incarnation) != held:
                return False
            next_start += segment.count
        known = self._incarnations.get(first.log, 0)
        return (
            first.incarnation == known
            and first.epoch >= self.stable(first.log)
            and (first.log not in self._ends or first.start == self._ends[first.log])
        )

    def _is_current(self, segment: LogSegment) -> bool:
        """Whether the segment is of the newest incarnation. The first segment of a newer one voids what is held."""
        known = self._incarnations.get(segment.log, 0)
        if segment.incarnation > known:
            self._incarnations[segment.log] = segment.incarnation
            self._segments.pop(segment.log, None)
            self._ends.pop(segment.log, None)
            self._keep([s for s in self._journal if s.log != segment.log])
        return segment.incarnation >= known

    def _keep(self, kept: list[LogSegment]) -> None:
        self._dropped += len(self._journal) - len(kept)
        self._journal = kept
        self.size_bytes = sum(len(s.payload) for s in kept)

    def _compare(self, segment: LogSegment, known: LogSegment | None, end: int) -> None:
        if known is None and all(start >= segment.stop for start in self._segments[segment.log]):
            return  # from before the held part, so it has been stable for long
        if known != segment:
            raise ProtocolError(
                f"{self._name(segment)} arrived twice and differs at offset {segment.start} (held to {end})"
            )

    def _name(self, segment: LogSegment) -> str:
        return f"the log of {self._tasks.get(segment.log, f'an unknown task ({segment.log})')}"

    @property
    def position(self) -> int:
        """The end of the journal. A connection uses it as the position up to which it has carried segments. After a
        truncation, an older position may yield segments that the connection has carried, but never fewer than it
        lacks."""
        return self._dropped + len(self._journal)

    def since(self, position: int, predicate: Callable[[LogId], bool]) -> list[LogSegment]:
        """Segments taken in at ``position`` or later, of logs for which ``predicate`` holds, in order of arrival."""
        return [s for s in self._journal[max(0, position - self._dropped) :] if predicate(s.log)]

    def of(self, log: LogId) -> list[LogSegment]:
        """The held segments of one log, by offset."""
        return sorted(self._segments.get(log, {}).values(), key=lambda s: s.start)

    def end(self, log: LogId) -> int | None:
        """The offset at which the held part of one log ends; None if nothing is held that is not stable."""
        return self._ends[log] if self._segments.get(log) else None

    def reach(self, log: LogId) -> Reach:
        """How far one log is held, as a ``Reach``."""
        return Reach(log, self._incarnations.get(log, 0), self._ends.get(log, 0))

    @property
    def incarnations(self) -> dict[LogId, int]:
        """By log of a task that has restarted without it: the number of the newest incarnation seen."""
        return dict(self._incarnations)

    def clear(self) -> None:
        """Drops all segments: they are of a run that is over."""
        self._keep([])
        self._segments, self._ends, self._incarnations = {}, {}, {}

    # ---- stable parts

    def stable(self, log: LogId) -> int:
        """Epochs of a log before this one are stable."""
        return max(self._stable.get(ALL_LOGS, 0), self._stable.get(log, 0))

    def mark(self, mark: StableMark) -> None:
        """Takes a mark in, and drops the segments that it makes stable."""
        if mark.epoch <= self.stable(mark.log):
            return
        if mark.log == ALL_LOGS:
            self._stable = {log: epoch for log, epoch in self._stable.items() if epoch > mark.epoch}
        self._stable.pop(mark.log, None)
        self._stable[mark.log] = mark.epoch
        self.marks_taken += 1
        marked = {mark.log} if mark.log != ALL_LOGS else self._segments.keys()
        dropped = [self._drop(log, mark.epoch) for log in marked & self._segments.keys()]
        if any(dropped):
            self._keep([s for s in self._journal if s.log not in marked or s.epoch >= mark.epoch])

    def _drop(self, log: LogId, epoch: int) -> int:
        """Drops the segments of one log before an epoch. Returns how many these were."""
        held = self._segments[log]
        before = [start for start, segment in held.items() if segment.epoch < epoch]
        for start in before:
            del held[start]
        return len(before)

    def marks_since(self, taken: int) -> tuple[StableMark, ...]:
        """The marks taken in since ``marks_taken`` was ``taken``, except those that newer marks have replaced."""
        new = self.marks_taken - taken
        return tuple(map(StableMark._make, list(self._stable.items())[-new:])) if new else ()


def merge(
    answers: Iterable[Sequence[LogSegment]], epoch: int, tasks: Mapping[LogId, TaskId] | None = None
) -> list[LogSegment]:
    """Merges the answers of all holders to the longest log of a task from ``epoch`` on, contiguous and without
    duplicates, of the newest incarnation in any answer. ``tasks``: as in ``CausalStore``.

    Raises ProtocolError if two holders disagree or the pieces leave a gap.
    """
    store = CausalStore(tasks)
    store.mark(StableMark(ALL_LOGS, epoch))
    distinct = _without_copies(list(answers))
    pieces = sorted((s for answer in distinct for s in answer), key=lambda s: (s.incarnation, s.start))
    store.extend(pieces)
    return store.of(pieces[0].log) if pieces else []


def _without_copies(answers: list[Sequence[LogSegment]]) -> list[Sequence[LogSegment]]:
    """The answers without those that are a part of the longest one. Usually one answer is left: holders differ in how
    far they hold a log, and comparing whole answers is much faster than taking in each segment of each."""
    longest = max(answers, key=len, default=())
    index = {segment.start: number for number, segment in enumerate(longest)}
    kept = [longest]
    for answer in answers:
        first = index.get(answer[0].start, len(longest)) if answer else 0
        if longest[first : first + len(answer)] != answer:
            kept.append(answer)
    return kept
