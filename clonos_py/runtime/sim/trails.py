"""Rows that carry their history: what generated jobs compute, and what their sinks must agree on.

Every operator adds a step to the ``trail`` of each row: its letter, and the answer to something nondeterministic. A row
that reaches several sinks, or one sink over several paths, tells the same history everywhere, as far as the paths are
the same: if a recovery changed anything that somebody had already seen, two of these witnesses disagree. Operators that
count number their rows without a gap and without a double, if no row was lost on them or taken twice.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from clonos_py.columns.keys import key_groups
from clonos_py.model.errors import ServiceError, UserCodeError
from clonos_py.model.ids import TaskId
from clonos_py.model.operators import End, Operator, Read, Sink, Source, Wait
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.runtime.sim.tape import Tape, TapedSink

_COLUMNS: list[tuple[str, pa.DataType]] = [("id", pa.int64()), ("key", pa.int64()), ("trail", pa.binary())]
TRAILED = pa.schema(_COLUMNS)
IDS_PER_SOURCE = 1_000_000
_STEP = struct.Struct("<Bq")
_KEYS = 5
_INSTANCE = 1 << 32
_RANKS = pa.schema([("key", pa.int64()), ("rank", pa.int64())])


def key_of(id_: int) -> int:
    return id_ % _KEYS


@dataclass(frozen=True)
class Volume:
    """How much a source gives, how fast, and when a silent partition counts as idle. It pauses after ``burst``
    reads."""

    rows: int
    partitions: int
    batch: int
    pause_us: int
    idle_us: int | None
    burst: int = 1


class Origin(Source):
    """Partition p gives the ids p, p + partitions, ... of source ``number``, as many at once as the moment says."""

    def __init__(self, number: int, volume: Volume, ledger: Ledger) -> None:
        self._first_id, self._volume, self._ledger = number * IDS_PER_SOURCE, volume, ledger
        self._next_us = self._reads = 0

    def partitions(self) -> int:
        return self._volume.partitions

    def open(self, index: int, parallelism: int) -> None:
        self._own = [p for p in range(self._volume.partitions) if p % parallelism == index]
        self.seek({})

    def seek(self, positions: Mapping[int, int]) -> None:
        self._positions = {p: positions.get(p, 0) for p in self._own}

    def _count(self, partition: int) -> int:
        volume = self._volume
        return (volume.rows - partition + volume.partitions - 1) // volume.partitions

    def poll(self, now: int) -> Read | Wait | End:
        if now < self._next_us:
            return Wait(self._next_us)
        self._reads += 1
        if self._reads % self._volume.burst == 0:
            self._next_us = now + self._volume.pause_us
        left = [p for p in self._own if self._positions[p] < self._count(p)]
        if not left:
            return End()
        partition = min(left, key=lambda p: self._positions[p])
        start = self._positions[partition]
        stop = min(start + 1 + now % self._volume.batch, self._count(partition))
        self._ledger.rows_read += stop - start
        return self.reread(partition, start, stop)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        self._positions[partition] = stop
        ids = [self._first_id + partition + n * self._volume.partitions for n in range(start, stop)]
        rows = pa.record_batch([ids, [key_of(i) for i in ids], [b""] * len(ids)], schema=TRAILED)
        return Read(partition, start, stop, (rows,), last=stop == self._count(partition))


class Step(Operator):
    """Adds what ``answers`` gives, one number per row, to the trails. Subclasses ask something nondeterministic."""

    def __init__(self, letter: int) -> None:
        self._letter = letter

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        letter, pack = self._letter, _STEP.pack
        trails: list[bytes] = rows.column(2).to_pylist()  # type: ignore[assignment]
        longer = [trail + pack(letter, answer) for trail, answer in zip(trails, self.answers(rows, side), strict=True)]
        self.out.emit(pa.record_batch([rows.column(0), rows.column(1), pa.array(longer, pa.binary())], schema=TRAILED))

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        """Here: nothing is asked."""
        return [0] * rows.num_rows


class AskDice(Step):
    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        return [self.ctx.random.getrandbits(62) for _ in range(rows.num_rows)]


class AskClock(Step):
    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        return [self.ctx.time.now() for _ in range(rows.num_rows)]


class AskService(Step):
    """The service never answers the same twice, and refuses now and then."""

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        return [self._ask() for _ in range(rows.num_rows)]

    def _ask(self) -> int:
        try:
            answer: int = self.ctx.gate.ask("oracle", self.ctx.service("oracle"))
        except ServiceError:
            return -1
        return answer


class AskWatermark(Step):
    """Depends on the order of inputs, and on when a partition falls idle."""

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        return [self.ctx.watermark] * rows.num_rows


class CountTimers(Step):
    """Sets a processing-time timer for every batch and answers how many have fired. A timer that is overdue when rows
    come is lost, which stops the job."""

    PAUSE_US = 7_000

    def __init__(self, letter: int) -> None:
        super().__init__(letter)
        self._fired = 0
        self._due: list[int] = []

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        now_us = self.ctx.time.now()
        if self._due and self._due[0] < now_us:
            raise UserCodeError(f"a timer for {self._due[0]} has not fired at {now_us}")
        at_us = now_us + self.PAUSE_US
        if at_us not in self._due:
            self._due.append(at_us)
            self.ctx.set_timer(at_us)
        return [self._fired] * rows.num_rows

    def on_timer(self, at: int) -> None:
        self._fired += 1
        self._due.remove(at)

    def snapshot(self) -> OperatorState:
        return OperatorState(values={"fired": self._fired, "due": list(self._due)})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._fired = sum(part.values["fired"] for part in parts)
        self._due = sorted(at for part in parts for at in part.values["due"])


class CountRows(Step):
    """Numbers the rows of its instance in the order of their arrival."""

    def __init__(self, letter: int) -> None:
        super().__init__(letter)
        self._count = 0

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        before = self.ctx.task.index * _INSTANCE + self._count
        self._count += rows.num_rows
        return list(range(before + 1, before + rows.num_rows + 1))

    def snapshot(self) -> OperatorState:
        return OperatorState(values={"count": self._count})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._count = sum(part.values["count"] for part in parts)


class RankByKey(Step):
    """Numbers the rows of each key, state by key group. Its input is partitioned by key."""

    def __init__(self, letter: int) -> None:
        super().__init__(letter)
        self._ranks: dict[int, int] = {}

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        ranks = []
        keys: list[int] = rows.column(1).to_pylist()  # type: ignore[assignment]
        for key in keys:
            rank = self._ranks[key] = self._ranks.get(key, 0) + 1
            ranks.append(self.ctx.task.index * _INSTANCE + rank)
        return ranks

    def snapshot(self) -> OperatorState:
        rows = pa.record_batch([list(self._ranks), list(self._ranks.values())], schema=_RANKS)
        groups = pa.array(key_groups(rows, ["key"], self.ctx.key_groups))
        return OperatorState(tables={"ranks": [Chunk(rows.append_column(GROUP_COLUMN, groups))]})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        chunks = [chunk.rows.to_pylist() for part in parts for chunk in part.tables["ranks"]]
        own = self.ctx.groups
        self._ranks = {row["key"]: row["rank"] for rows in chunks for row in rows if row[GROUP_COLUMN] in own}


class RememberOther(Step):
    """Of two inputs: answers the last id that came from the other side."""

    def __init__(self, letter: int) -> None:
        super().__init__(letter)
        self._last = [-1, -1]

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        other = self._last[1 - side % 2]
        self._last[side % 2] = int(rows.column(0)[-1].as_py())
        return [other] * rows.num_rows

    def snapshot(self) -> OperatorState:
        return OperatorState(values={"last": list(self._last)})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._last = list(parts[0].values["last"]) if parts else [-1, -1]


class StepKind(Enum):
    """What an operator of a generated job asks."""

    PLAIN = "plain"
    DICE = "dice"
    CLOCK = "clock"
    SERVICE = "service"
    WATERMARK = "watermark"
    TIMERS = "timers"
    COUNT = "count"
    RANK = "rank"
    OTHER = "other"


STEPS: Mapping[StepKind, Callable[[int], Step]] = {
    StepKind.PLAIN: Step,
    StepKind.DICE: AskDice,
    StepKind.CLOCK: AskClock,
    StepKind.SERVICE: AskService,
    StepKind.WATERMARK: AskWatermark,
    StepKind.TIMERS: CountTimers,
    StepKind.COUNT: CountRows,
    StepKind.RANK: RankByKey,
    StepKind.OTHER: RememberOther,
}
"""By kind: the operator with a given letter."""


class Trails(Sink):
    """Writes to a ledger that outlives processes; what is not committed does not count."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self._name, self._ledger = name, ledger
        self._rows: list[tuple[int, bytes]] = []

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        ids: list[int] = rows.column(0).to_pylist()  # type: ignore[assignment]
        trails: list[bytes] = rows.column(2).to_pylist()  # type: ignore[assignment]
        self._rows.extend(zip(ids, trails, strict=True))

    def prepare(self, checkpoint: int) -> bytes | None:
        if not self._rows:
            return None
        staged = self._ledger.stage(self._name, self._rows)
        self._rows = []
        return b"%d" % staged

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._rows = []

    def commit(self, committable: bytes) -> None:
        self._ledger.commit(int(committable))


class CausalTrails(TapedSink):
    """Writes to a tape of the ledger, where rows are visible at once."""

    def __init__(self, name: str, ledger: Ledger) -> None:
        self._name, self._ledger = name, ledger

    @property
    def tape(self) -> Tape:
        return self._ledger.tape(self._name, self.ctx.task)


Path = tuple[int, bytes]
"""The number of a source, and the letters of the operators on the way."""


class Ledger:
    """What all sinks have written. Committing twice is committing once."""

    def __init__(self) -> None:
        self._staged: list[tuple[str, list[tuple[int, bytes]]]] = []
        self._committed: dict[int, None] = {}
        self._shown: dict[tuple[str, TaskId], tuple[Tape, list[dict[str, Any]]]] = {}
        self.rows_read = 0
        """By live reads of sources, those after a restart of the whole job counted again."""

    def stage(self, sink: str, rows: list[tuple[int, bytes]]) -> int:
        self._staged.append((sink, rows))
        return len(self._staged) - 1

    def commit(self, staged: int) -> None:
        self._committed[staged] = None

    def tape(self, sink: str, task: TaskId) -> Tape:
        """That of a causal sink's task."""
        if (sink, task) not in self._shown:
            rows: list[dict[str, Any]] = []
            self._shown[sink, task] = Tape(rows), rows
        return self._shown[sink, task][0]

    def rows(self) -> dict[str, list[tuple[int, bytes]]]:
        """What is visible, by sink."""
        found: dict[str, list[tuple[int, bytes]]] = {}
        for (sink, _), (_, rows) in self._shown.items():
            found.setdefault(sink, []).extend((row["id"], row["trail"]) for row in rows)
        for staged in self._committed:
            sink, pairs = self._staged[staged]
            found.setdefault(sink, []).extend(pairs)
        return found


def missing_or_doubled(
    ledger: Ledger, expected: Mapping[str, set[Path]], rows_of: Mapping[int, int], once: bool
) -> list[str]:
    """Every row of a source reaches a sink over each path, and ``once`` only. ``rows_of``: by source number, how many
    it gives."""
    found = []
    committed = ledger.rows()
    for sink, paths in sorted(expected.items()):
        wanted = {(source * IDS_PER_SOURCE + n, path) for source, path in paths for n in range(rows_of[source])}
        have = Counter((id_, trail[:: _STEP.size]) for id_, trail in committed.get(sink, []))
        if missing := sorted(wanted - have.keys()):
            found.append(f"{sink} lacks {len(missing)} rows, such as {missing[:3]}")
        if once and (doubled := sorted(row for row, count in have.items() if count > 1)):
            found.append(f"{sink} has {len(doubled)} rows more than once, such as {doubled[:3]}")
        if invented := sorted(have.keys() - wanted):
            found.append(f"{sink} has {len(invented)} rows that nobody sent, such as {invented[:3]}")
    return found


def disagreements(ledger: Ledger, numbered: Mapping[int, StepKind]) -> list[str]:
    """Witnesses that tell different histories of a row, and operators that have not counted one by one. ``numbered``:
    the operators that count, by letter."""
    claims: dict[tuple[int, bytes], bytes] = {}
    differing = set()
    for rows in ledger.rows().values():
        for id_, trail in rows:
            for end in range(_STEP.size, len(trail) + 1, _STEP.size):
                prefix = trail[:end]
                if claims.setdefault((id_, prefix[:: _STEP.size]), prefix) != prefix:
                    differing.add(id_)
    found = [f"witnesses differ on {sorted(differing)[:10]}"] if differing else []
    return found + _miscounts(claims, numbered)


def _miscounts(claims: Mapping[tuple[int, bytes], bytes], numbered: Mapping[int, StepKind]) -> list[str]:
    counts: dict[tuple[int, int, int], list[int]] = {}
    for (id_, letters), trail in claims.items():
        kind = numbered.get(letters[-1])
        if kind is not None:
            instance, number = divmod(_STEP.unpack(trail[-_STEP.size :])[1], _INSTANCE)
            key = key_of(id_) if kind is StepKind.RANK else -1
            counts.setdefault((letters[-1], instance, key), []).append(number)
    return [
        f"instance {instance} of operator {letter} counted {sorted(numbers)[:20]} instead of 1 to {len(numbers)}"
        for (letter, instance, _), numbers in sorted(counts.items())
        if sorted(numbers) != list(range(1, len(numbers) + 1))
    ]
