"""Rows that carry their history: the computation of generated jobs, and the agreement that their sinks must show.

Every operator appends a step to the ``history`` of each row: its letter, and a nondeterministic answer. A row that
reaches several sinks, or one sink over several paths, has the same history in all copies, as far as their paths are the
same. If a recovery changes a row that a sink has already received, two of these witnesses differ. Operators that count
number their rows without gaps and duplicates, if no row was lost or taken twice.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from clonos_py.model.ids import TaskId
from clonos_py.model.operators import Sink
from clonos_py.model.state import OperatorState
from clonos_py.runtime.sim.memory_output import MemoryCausalSink, MemoryOutput

_COLUMNS: list[tuple[str, pa.DataType]] = [("id", pa.int64()), ("key", pa.int32()), ("history", pa.binary())]
HISTORY_ROWS = pa.schema(_COLUMNS)
IDS_PER_SOURCE = 1_000_000
STEP = struct.Struct("<Bq")
_KEYS = 5
INSTANCE, INSTANCES = 1 << 32, 1 << 8
"""An instance that counts has a range of numbers of its own, and others after a change of parallelism."""
RANKS = 3
"""An operator that ranks rows in parts begins again after so many of a key."""


def key_of(id_: int) -> int:
    return id_ % _KEYS


class HistorySink(Sink):
    """A transactional sink. It writes to a ledger that outlives processes; only committed rows count. Its state is what
    it had prepared last: a snapshot without that, or of a later one, is an error."""

    def __init__(self, name: str, ledger: HistoryLedger) -> None:
        self._name, self._ledger = name, ledger
        self._rows: list[tuple[int, bytes]] = []
        self._prepared = 0

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        ids: list[int] = rows.column(0).to_pylist()  # type: ignore[assignment]
        histories: list[bytes] = rows.column(2).to_pylist()  # type: ignore[assignment]
        self._rows.extend(zip(ids, histories, strict=True))

    def prepare(self, checkpoint: int) -> bytes | None:
        self._prepared = checkpoint
        if not self._rows:
            return None
        staged = self._ledger.stage(self._name, self._rows, self.ctx.task, checkpoint)
        self._rows = []
        return b"%d" % staged

    def snapshot(self) -> OperatorState:
        return OperatorState(values={"prepared": self._prepared})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._rows = []
        self._prepared = max((part.values["prepared"] for part in parts), default=0)

    def commit(self, committable: bytes) -> None:
        self._ledger.commit(int(committable))


class CausalHistorySink(MemoryCausalSink):
    """A causal sink. It writes to an output of the ledger, where rows are visible at once."""

    def __init__(self, name: str, ledger: HistoryLedger) -> None:
        self._name, self._ledger = name, ledger

    @property
    def output(self) -> MemoryOutput:
        return self._ledger.output(self._name, self.ctx.task)


Path = tuple[int, bytes]
"""The number of a source, and the letters of the operators on the path."""


class CommitWatch(Protocol):
    """Called when transactional sinks prepare and commit rows."""

    def prepared(self, staged: int, task: TaskId, number: int) -> None: ...

    def commits(self, staged: int) -> None: ...


class HistoryLedger:
    """The output of all sinks. Commits are idempotent."""

    def __init__(self) -> None:
        self.watch: CommitWatch | None = None
        self._staged: list[tuple[str, list[tuple[int, bytes]]]] = []
        self._committed: dict[int, None] = {}
        self._shown: dict[tuple[str, TaskId], tuple[MemoryOutput, list[dict[str, Any]]]] = {}
        self.rows_read = 0
        """The number of rows that sources have read live. Reads after a restart of the whole job count again."""
        self.highest: dict[tuple[int, int], int] = {}
        """By source and partition: the highest id that was read."""
        self.finished: set[tuple[int, int]] = set()
        """The sources and partitions that have been read to their end."""

    def given(self, source: int, partition: int, id_: int, last: bool) -> None:
        """A partition of a source has been read up to ``id_``. ``last``: that is its end."""
        key = source, partition
        self.highest[key] = max(id_, self.highest.get(key, id_))
        if last:
            self.finished.add(key)

    def ended(self, source: int, partitions: Iterable[int]) -> None:
        """These partitions of a source have ended behind their last rows."""
        self.finished.update((source, partition) for partition in partitions)

    def stage(self, sink: str, rows: list[tuple[int, bytes]], task: TaskId, checkpoint: int) -> int:
        self._staged.append((sink, rows))
        staged = len(self._staged) - 1
        if self.watch is not None:
            self.watch.prepared(staged, task, checkpoint)
        return staged

    def commit(self, staged: int) -> None:
        if self.watch is not None:
            self.watch.commits(staged)
        self._committed[staged] = None

    def output(self, sink: str, task: TaskId) -> MemoryOutput:
        """The output of a causal sink's task."""
        if (sink, task) not in self._shown:
            rows: list[dict[str, Any]] = []
            self._shown[sink, task] = MemoryOutput(rows), rows
        return self._shown[sink, task][0]

    def rows(self) -> dict[str, list[tuple[int, bytes]]]:
        """The visible rows, by sink."""
        found: dict[str, list[tuple[int, bytes]]] = {}
        for (sink, _), (_, rows) in self._shown.items():
            found.setdefault(sink, []).extend((row["id"], row["history"]) for row in rows)
        for staged in self._committed:
            sink, pairs = self._staged[staged]
            found.setdefault(sink, []).extend(pairs)
        return found


def missing_or_doubled(
    ledger: HistoryLedger,
    expected: Mapping[str, set[Path]],
    rows_of: Mapping[int, int],
    once: bool,
    rounds: Mapping[int, bytes],
) -> list[str]:
    """Checks that every row of a source reaches a sink over each path, and with ``once`` only once, for any number of
    rounds through loops. ``rows_of``: the number of rows, by source. ``rounds``: the letters of a round through a loop,
    by the letter that ends it."""
    found = []
    committed = ledger.rows()
    for sink, paths in sorted(expected.items()):
        sent = {(source * IDS_PER_SOURCE + n, path) for source, path in paths for n in range(rows_of[source])}
        arrived = [(id_, history[:: STEP.size]) for id_, history in committed.get(sink, [])]
        have = Counter((id_, _without_rounds(letters, rounds)) for id_, letters in arrived)
        if missing := sorted(sent - have.keys()):
            found.append(f"{sink} lacks {len(missing)} rows, such as {missing[:3]}")
        if once and (doubled := sorted(row for row, count in have.items() if count > 1)):
            found.append(f"{sink} has {len(doubled)} rows more than once, such as {doubled[:3]}")
        if invented := sorted(have.keys() - sent):
            found.append(f"{sink} has {len(invented)} rows that were never sent, such as {invented[:3]}")
    return found


def _without_rounds(letters: bytes, rounds: Mapping[int, bytes]) -> bytes:
    """The path without the additional rounds through each loop."""
    for last, letters_of_round in rounds.items():
        first, end = letters.find(last), letters.rfind(last)
        between = letters[first + 1 : end + 1]
        if between == letters_of_round * (len(between) // len(letters_of_round)):
            letters = letters[: first + 1] + letters[end + 1 :]
    return letters


class Numbering(NamedTuple):
    """How an operator counts. ``by_key``: each key separately. ``again``: it begins again after ``RANKS``."""

    by_key: bool
    again: bool


def disagreements(ledger: HistoryLedger, numbered: Mapping[int, Numbering]) -> list[str]:
    """Finds witnesses with different histories of a row, and operators with gaps or duplicates in their counts.
    ``numbered``: the operators that count, by letter."""
    by_letters: dict[tuple[int, bytes], bytes] = {}
    differing = set()
    for rows in ledger.rows().values():
        for id_, history in rows:
            for end in range(STEP.size, len(history) + 1, STEP.size):
                prefix = history[:end]
                if by_letters.setdefault((id_, prefix[:: STEP.size]), prefix) != prefix:
                    differing.add(id_)
    found = [f"witnesses differ on {sorted(differing)[:10]}"] if differing else []
    return found + _miscounts(by_letters, numbered)


def _miscounts(by_letters: Mapping[tuple[int, bytes], bytes], numbered: Mapping[int, Numbering]) -> list[str]:
    counts: dict[tuple[int, int, int], list[int]] = {}
    for (id_, letters), history in by_letters.items():
        numbering = numbered.get(letters[-1])
        if numbering is not None:
            instance, number = divmod(STEP.unpack(history[-STEP.size :])[1], INSTANCE)
            key = key_of(id_) if numbering.by_key else -1
            counts.setdefault((letters[-1], instance, key), []).append(number)
    return [
        f"instance {instance} of operator {letter} counted {sorted(numbers)[:20]} in {len(numbers)} rows"
        for (letter, instance, _), numbers in sorted(counts.items())
        if sorted(numbers) != _expected(len(numbers), numbered[letter].again)
    ]


def _expected(count: int, again: bool) -> list[int]:
    return sorted(number % RANKS + 1 if again else number + 1 for number in range(count))
