"""The operators of generated jobs: each adds a nondeterministic answer to the histories of its rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial
from typing import Any

import pyarrow as pa

from clonos_py.columns.keys import key_groups
from clonos_py.model.aggregates import Aggregate
from clonos_py.model.errors import ServiceError, UserCodeError
from clonos_py.model.operators import Operator, OperatorContext
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.operators.footprints import KeyedParts
from clonos_py.operators.keyed_chunks import with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.running import RunningAggregate
from clonos_py.operators.sort import Sort
from clonos_py.runtime.sim.async_step import ask_later
from clonos_py.runtime.sim.gathered_step import gather
from clonos_py.runtime.sim.harsh_environment import LARGE, ORACLE
from clonos_py.runtime.sim.histories import HISTORY_ROWS, INSTANCE, INSTANCES, RANKS, STEP
from clonos_py.runtime.sim.over_step import SumLastIds
from clonos_py.runtime.sim.session_step import ShowSessions
from clonos_py.runtime.sim.step import EngineStep, Step, answered
from clonos_py.runtime.sim.table_steps import CountUntilExpiry, LookUpLastId, RankByDistinct
from clonos_py.runtime.sim.window_steps import JoinAsOf, JoinSessions, MapRowsOfWindows

_RANKS = pa.schema([("key", pa.int64()), ("rank", pa.int64())])
_RANK = Aggregate("count", None, "rank", pa.int64())


class AskRandom(Step):
    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        return [self.ctx.random.getrandbits(62) for _ in range(rows.num_rows)]


class AskClock(Step):
    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        return [self.ctx.time.now() for _ in range(rows.num_rows)]


class AskService(Step):
    """Calls a service for every row. The service never repeats an answer, and sometimes refuses."""

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        return [self._ask() for _ in range(rows.num_rows)]

    def _ask(self) -> int:
        try:
            answer: int = self.ctx.gate.ask(ORACLE, self.ctx.service(ORACLE))
        except ServiceError:
            return -1
        return answer


class AskAtLength(Step):
    """Calls a service once per batch. The answer is too large for the log."""

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        try:
            content: bytes = self.ctx.gate.ask(LARGE, self.ctx.service(LARGE))
        except ServiceError:
            return [-1] * rows.num_rows
        return [int.from_bytes(content[:8])] * rows.num_rows


class AskWatermark(Step):
    """Answers the watermark, which depends on the order of inputs and on when a partition becomes idle."""

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        return [self.ctx.watermark] * rows.num_rows


class CloseWindows(Step):
    """Keeps rows until their window of ids has ended by the watermark, then answers that watermark. Late rows pass."""

    _IDS = 8

    def __init__(self, letter: int) -> None:
        super().__init__(letter)
        self._kept: list[dict[str, Any]] = []

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self._kept += rows.to_pylist()
        self._close(self.ctx.watermark)

    def on_watermark(self, watermark: int) -> int:
        self._close(watermark)
        return watermark

    def _close(self, watermark: int) -> None:
        closed = [row for row in self._kept if row["id"] // self._IDS * self._IDS + self._IDS <= watermark]
        if closed:
            self._kept = [row for row in self._kept if row not in closed]
            super().on_rows(pa.RecordBatch.from_pylist(closed, schema=HISTORY_ROWS), 0)

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        return [self.ctx.watermark] * rows.num_rows

    def snapshot(self) -> OperatorState:
        kept = Chunk(pa.RecordBatch.from_pylist(self._kept, schema=HISTORY_ROWS))
        return OperatorState(tables={"kept": [kept]}, values={"index": self.ctx.task.index})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        chunks = [chunk for part in own(parts, self.ctx) for chunk in part.tables["kept"]]
        self._kept = [row for chunk in chunks for row in chunk.rows.to_pylist()]


def own(parts: Sequence[OperatorState], ctx: OperatorContext) -> list[OperatorState]:
    """The parts of the state that an instance goes on with: its own one, and at another parallelism every n-th of those
    of all former instances. Each part has the ``index`` of its instance."""
    return [part for part in parts if part.values["index"] % ctx.parallelism == ctx.task.index]


class SortByTime(EngineStep):
    """Keeps rows in the engine's sort by event time, here their id, and answers the watermark that releases them. Late
    rows pass. Its input is partitioned by key."""

    def __init__(self, letter: int) -> None:
        super().__init__(letter, Sort(("key",), "id", HISTORY_ROWS, pass_late=True))

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        super().on_rows(rows, 0)

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self._engine.on_rows(rows, side)

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        return [self.ctx.watermark] * rows.num_rows


class CountTimers(Step):
    """Sets a processing-time timer for every batch and answers how many have fired. If a timer is overdue when rows
    arrive, it counts as lost, which stops the job."""

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
        return OperatorState(values={"index": self.ctx.task.index, "fired": self._fired, "due": sorted(self._due)})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        parts = own(parts, self.ctx)
        self._fired = sum(part.values["fired"] for part in parts)
        self._due = sorted({at for part in parts for at in part.values["due"]})
        for at_us in self._due:
            self.ctx.set_timer(at_us)


class CountRows(Step):
    """Numbers the rows of its instance in the order of their arrival."""

    def __init__(self, letter: int) -> None:
        super().__init__(letter)
        self._count = self._changes = 0

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        before = (self._changes * INSTANCES + self.ctx.task.index) * INSTANCE + self._count
        self._count += rows.num_rows
        return list(range(before + 1, before + rows.num_rows + 1))

    def snapshot(self) -> OperatorState:
        here = {"index": self.ctx.task.index, "parallelism": self.ctx.parallelism}
        return OperatorState(values={"count": self._count, "changes": self._changes, **here})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        """At another parallelism all instances begin to count again."""
        self._count = self._changes = 0
        for part in own(parts, self.ctx):
            self._count, self._changes = part.values["count"], part.values["changes"]
        if any(part.values["parallelism"] != self.ctx.parallelism for part in parts):
            self._count, self._changes = 0, parts[0].values["changes"] + 1


class RankByKey(Step):
    """Numbers the rows of each key, with state by key group. Its input is partitioned by key."""

    def __init__(self, letter: int) -> None:
        super().__init__(letter)
        self._ranks: dict[int, int] = {}

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        ranks = []
        keys: list[int] = rows.column(1).to_pylist()  # type: ignore[assignment]
        for key in keys:
            rank = self._ranks[key] = self._ranks.get(key, 0) + 1
            ranks.append(rank)
        return ranks

    def snapshot(self) -> OperatorState:
        rows = pa.record_batch([list(self._ranks), list(self._ranks.values())], schema=_RANKS)
        groups = pa.array(key_groups(rows, ["key"], self.ctx.key_groups))
        return OperatorState(tables={"ranks": [Chunk(rows.append_column(GROUP_COLUMN, groups))]})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        chunks = [chunk.rows.to_pylist() for part in parts for chunk in part.tables["ranks"]]
        own = self.ctx.groups
        self._ranks = {row["key"]: row["rank"] for rows in chunks for row in rows if row[GROUP_COLUMN] in own}


class RankInParts(KeyedParts, Step):
    """As ``RankByKey``, with state that can be saved key by key. Ranks begin again after ``RANKS``: then the key has no
    state until its next row."""

    def __init__(self, letter: int) -> None:
        Step.__init__(self, letter)
        self._ranks = KeyedRows(["key"])
        KeyedParts.__init__(self, ["key"], self._ranks)

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        keys: list[int] = rows.column(1).to_pylist()  # type: ignore[assignment]
        distinct = pa.record_batch({"key": pa.array(list(dict.fromkeys(keys)), pa.int64())})
        positions, numbers = self._ranks.find(distinct)
        ranks = dict.fromkeys(keys, 0)
        if len(numbers):
            known: list[int] = self._ranks.take(numbers).column("rank").to_pylist()  # type: ignore[assignment]
            found: list[int] = distinct.take(positions).column(0).to_pylist()  # type: ignore[assignment]
            ranks |= zip(found, known, strict=True)
            self._ranks.remove(numbers)
        opened_or_closed, answers = set(), []
        for key in keys:
            if ranks[key] == 0:
                opened_or_closed.add(key)
            ranks[key] += 1
            answers.append(ranks[key])
            if ranks[key] == RANKS:
                ranks[key] = 0
                opened_or_closed.add(key)
        ranked = [(key, rank) for key, rank in ranks.items() if rank]
        changed = pa.record_batch([[key for key, _ in ranked], [rank for _, rank in ranked]], schema=_RANKS)
        self._ranks.append(with_groups(changed, ["key"], self.ctx.key_groups))
        self._ranks.compact()
        if self.in_parts and opened_or_closed:
            self.changed(pa.record_batch({"key": pa.array(sorted(opened_or_closed), pa.int64())}))
        return answers

    def snapshot(self) -> OperatorState:
        return self._ranks.snapshot({})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self.restore_parts(parts, lambda: self._ranks.restore(parts, self.ctx.groups))


class RankByReduce(EngineStep):
    """As ``RankByKey``, by the running count of the engine. Its input is partitioned by key."""

    def __init__(self, letter: int) -> None:
        super().__init__(letter, RunningAggregate(("key",), (_RANK,), pa.schema([pa.field("rank", pa.int64())])))
        self._ranks: list[int] = []

    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        self._ranks += rows.column(0).to_pylist()  # type: ignore[arg-type]

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        self._ranks = []
        self._engine.on_rows(rows, side)
        return self._ranks


class LastOfOtherSide(Step):
    """An operator with two inputs: answers the last id that arrived on the other side."""

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


class RouteBack(Step):
    """Sends random rows back into the loop, on port 1. Rows that have made enough rounds always leave the loop."""

    _BACK = 0.4
    _ROUNDS_MAX = 4

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        histories: list[bytes] = rows.column(2).to_pylist()  # type: ignore[assignment]
        back = [self._goes_back(history) for history in histories]
        taken = answered(rows, self._letter, back)
        for port in (0, 1):
            self.out.emit(taken.filter(pa.array([again == port for again in back], pa.bool_())), port)

    def _goes_back(self, history: bytes) -> bool:
        again = self.ctx.random.random() < self._BACK
        return again and history[:: STEP.size].count(self._letter) < self._ROUNDS_MAX


class StepKind(Enum):
    """The kind of an operator of a generated job: the nondeterministic answer that it adds."""

    PLAIN = "plain"
    RANDOM = "random"
    CLOCK = "clock"
    SERVICE = "service"
    LARGE = "large answers"
    ASYNC = "async"
    GATHER = "gathered batches"
    WATERMARK = "watermark"
    WINDOWS = "windows"
    SORT = "sort"
    OVER = "over"
    TIMERS = "timers"
    COUNT = "count"
    RANK = "rank"
    PARTS = "rank in parts"
    REDUCE = "rank by reduce"
    DISTINCT = "rank by distinct"
    TTL = "count until expiry"
    OTHER = "other"
    TABLE = "look up in a table"
    LOADED = "look up in a loaded table"
    SESSIONS = "join sessions"
    AS_OF = "join as of"
    GROUPS = "map windows"
    SHOWN = "show sessions"
    ROUTE = "route back"


KEEPING = (StepKind.ASYNC, StepKind.GATHER, StepKind.WINDOWS, StepKind.SORT, StepKind.LOADED)
"""Those that keep rows."""
RANKING = (StepKind.RANK, StepKind.PARTS, StepKind.REDUCE, StepKind.DISTINCT)
"""Those that count the rows of each key."""
LOOKING_UP = (StepKind.TABLE, StepKind.LOADED)
"""Those whose second input is a table."""
JOINING = (StepKind.SESSIONS, StepKind.AS_OF)
"""Those that join two inputs by event time."""
STEPS: Mapping[StepKind, Callable[[int], Operator]] = {
    StepKind.PLAIN: Step,
    StepKind.RANDOM: AskRandom,
    StepKind.CLOCK: AskClock,
    StepKind.SERVICE: AskService,
    StepKind.LARGE: AskAtLength,
    StepKind.ASYNC: ask_later,
    StepKind.GATHER: gather,
    StepKind.WATERMARK: AskWatermark,
    StepKind.WINDOWS: CloseWindows,
    StepKind.SORT: SortByTime,
    StepKind.OVER: SumLastIds,
    StepKind.TIMERS: CountTimers,
    StepKind.COUNT: CountRows,
    StepKind.RANK: RankByKey,
    StepKind.PARTS: RankInParts,
    StepKind.REDUCE: RankByReduce,
    StepKind.DISTINCT: RankByDistinct,
    StepKind.TTL: CountUntilExpiry,
    StepKind.OTHER: LastOfOtherSide,
    StepKind.TABLE: partial(LookUpLastId, load_first=False),
    StepKind.LOADED: partial(LookUpLastId, load_first=True),
    StepKind.SESSIONS: JoinSessions,
    StepKind.AS_OF: JoinAsOf,
    StepKind.GROUPS: MapRowsOfWindows,
    StepKind.SHOWN: ShowSessions,
    StepKind.ROUTE: RouteBack,
}
"""By kind: the factory of its operators, which takes a letter."""
