"""The two-witness job: every record gets a random number, a time and an answer that is never repeated, and flows over
two different paths into two sinks. If a recovery changes anything that was visible already, the sinks disagree.

    numbers -> rebalance -> enrich -+-> forward ---------------------> left
                                    +-> hash(key) -> rank (in order) -> right

``enrich`` also counts processing-time timers that it sets itself, and every row carries the count. ``rank`` numbers the
rows of a key in order of arrival, and a timer resets the number: its state depends on order and on timers, too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa

from clonos_py.columns.keys import key_groups
from clonos_py.model.errors import UserCodeError
from clonos_py.model.operators import End, EventTime, Operator, Read, Sink, Source, Wait
from clonos_py.model.plan import Edge, OperatorPlan, Partitioning, PhysicalPlan, SourcePlan, Vertex, Wire
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.model.state import GROUP_COLUMN, Chunk, OperatorState
from clonos_py.process.contract import ChannelLimits
from clonos_py.runtime.sim.memory_output import MemoryCausalSink, MemoryOutput
from clonos_py.runtime.sim.run import SimulatedRun, simulate_plan
from clonos_py.runtime.sim.slices import among_others
from clonos_py.settings.protocols import DEFAULT_PROTOCOL

_NUMBER_NAMES = ("id", "key", "at")
_ENRICHED_NAMES = (*_NUMBER_NAMES, "random", "time", "answer", "ticks")
_TYPES = {"key": pa.int32()}
"""The types of columns that are not int64."""


def _schema(*names: str) -> pa.Schema:
    return pa.schema([(name, _TYPES.get(name, pa.int64())) for name in names])


NUMBERS = _schema(*_NUMBER_NAMES)
ENRICHED = _schema(*_ENRICHED_NAMES)
RANKED = _schema(*_ENRICHED_NAMES, "rank")


class NumberSource(Source):
    """Partition p gives the ids p, p + partitions, p + 2 * partitions, ... below ``total``."""

    def __init__(self, total: int, partitions: int, batch: int, pause_us: int) -> None:
        self._total, self._partitions, self._batch, self._pause_us = total, partitions, batch, pause_us
        self._next_us = 0
        self._reads = 0

    def partitions(self) -> int:
        return self._partitions

    def open(self, index: int, parallelism: int) -> None:
        self._own = [p for p in range(self._partitions) if p % parallelism == index]
        self.seek({})

    def seek(self, positions: Mapping[int, int]) -> None:
        self._positions = {p: positions.get(p, 0) for p in self._own}

    def _count(self, partition: int) -> int:
        return (self._total - partition + self._partitions - 1) // self._partitions

    def poll(self, now: int) -> Read | Wait | End:
        if now < self._next_us:
            return Wait(self._next_us)
        self._next_us = now + self._pause_us
        left = [p for p in self._own if self._positions[p] < self._count(p)]
        if not left:
            return End()
        partition = min(left, key=lambda p: self._positions[p])
        start = self._positions[partition]
        # the size of a read depends on the time, as with a real source
        return self.reread(partition, start, min(start + 1 + now % self._batch, self._count(partition)))

    def reread(self, partition: int, start: int, stop: int) -> Read:
        self._positions[partition] = stop
        ids = [partition + n * self._partitions for n in range(start, stop)]
        rows = pa.record_batch([ids, [i % 7 for i in ids], [i * 1_000 for i in ids]], schema=NUMBERS)
        self._reads += 1
        return Read(partition, start, stop, (among_others(rows, self._reads),), last=stop == self._count(partition))


class EnrichStep(Operator):
    """Adds all kinds of nondeterministic answers to every row, and counts timers. If a timer is overdue by more than
    ``late_us``, it counts as lost, which stops the job."""

    def __init__(self, pause_us: int, late_us: int) -> None:
        self._pause_us, self._late_us = pause_us, late_us
        self._ticks = 0
        self._due: list[int] = []

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        randoms, times, answers = [], [], []
        for _ in range(rows.num_rows):
            randoms.append(self.ctx.random.getrandbits(40))
            times.append(self.ctx.time.now())
            answers.append(self.ctx.gate.ask("oracle", self.ctx.service("oracle")))
        if self._due and self._due[0] + self._late_us < times[0]:
            raise UserCodeError(f"a timer for {self._due[0]} has not fired at {times[0]}")
        self._set(times[0] + self._pause_us)
        ticks = [self._ticks] * rows.num_rows
        self.out.emit(pa.record_batch([*rows.columns, randoms, times, answers, ticks], schema=ENRICHED))

    def _set(self, at_us: int) -> None:
        if at_us not in self._due:
            self._due.append(at_us)
        self.ctx.set_timer(at_us)

    def on_timer(self, at: int) -> None:
        self._ticks += 1
        self._due.remove(at)

    def on_end(self) -> None:
        """No timer fires any more, even if a sender that restarts still sends rows (at-least-once)."""
        self._due.clear()

    def snapshot(self) -> OperatorState:
        return OperatorState(values={"ticks": self._ticks, "due": list(self._due)})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._ticks = sum(part.values["ticks"] for part in parts)
        self._due = sorted(at for part in parts for at in part.values["due"])


class RankStep(Operator):
    """Numbers the rows of each key in order of arrival. A timer after ``pause_us`` resets the number."""

    def __init__(self, pause_us: int) -> None:
        self._pause_us = pause_us
        self._ranks: dict[int, tuple[int, int]] = {}

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        ranks = []
        keys: list[int] = rows.column("key").to_pylist()  # type: ignore[assignment]
        for key in keys:
            rank = self._ranks.get(key, (0, 0))[0] + 1
            ranks.append(rank)
            at_us = self.ctx.time.now() + self._pause_us
            self._ranks[key] = (rank, at_us)
            self.ctx.set_timer(at_us)
        self.out.emit(pa.record_batch([*rows.columns, ranks], schema=RANKED))

    def on_timer(self, at: int) -> None:
        self._ranks = {k: v for k, v in self._ranks.items() if v[1] != at}

    def snapshot(self) -> OperatorState:
        keys = list(self._ranks)
        rows = pa.RecordBatch.from_pydict(
            {
                "key": pa.array(keys, pa.int64()),
                "rank": pa.array([self._ranks[k][0] for k in keys], pa.int64()),
                "at": pa.array([self._ranks[k][1] for k in keys], pa.int64()),
            }
        )
        groups = pa.array(key_groups(rows, ["key"], self.ctx.key_groups))
        return OperatorState(tables={"ranks": [Chunk(rows.append_column(GROUP_COLUMN, groups))]})

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._ranks = {}
        for part in parts:
            for chunk in part.tables["ranks"]:
                for row in chunk.rows.to_pylist():
                    if row[GROUP_COLUMN] in self.ctx.groups:
                        self._ranks[row["key"]] = (row["rank"], row["at"])
                        self.ctx.set_timer(row["at"])


class Witness(Sink):
    """A transactional sink. It writes to a ledger that outlives processes; only committed rows count."""

    def __init__(self, name: str, ledger: WitnessLedger) -> None:
        self._name, self._ledger = name, ledger
        self._rows: list[dict[str, int]] = []

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self._rows.extend(rows.to_pylist())

    def prepare(self, checkpoint: int) -> bytes | None:
        if not self._rows:
            return None
        final = f"{self._name}-{self.ctx.task}-{checkpoint}"
        staged = self._ledger.stage(self._rows)
        self._rows = []
        return f"{staged} {final}".encode()

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._rows = []

    def commit(self, committable: bytes) -> None:
        staged, final = committable.decode().split()
        self._ledger.commit(int(staged), final)


class CausalWitness(MemoryCausalSink):
    """A causal sink. It writes to an output of the ledger, where its rows are visible at once."""

    def __init__(self, name: str, ledger: WitnessLedger) -> None:
        self._name, self._ledger = name, ledger

    @property
    def output(self) -> MemoryOutput:
        name = f"{self._name}-{self.ctx.task}"
        return self._ledger.outputs.setdefault(
            name, MemoryOutput(self._ledger.committed.setdefault(f"{name}-shown", []))
        )


class WitnessLedger:
    """The output of the witnesses. Commits are idempotent."""

    def __init__(self) -> None:
        self._staged: list[list[dict[str, int]]] = []
        self.committed: dict[str, list[dict[str, int]]] = {}
        self.outputs: dict[str, MemoryOutput] = {}

    def stage(self, rows: list[dict[str, int]]) -> int:
        self._staged.append(rows)
        return len(self._staged) - 1

    def commit(self, staged: int, final: str) -> None:
        self.committed[final] = self._staged[staged]

    def rows(self, name: str) -> list[dict[str, int]]:
        return [
            row for final in sorted(self.committed) if final.startswith(f"{name}-") for row in self.committed[final]
        ]


@dataclass(frozen=True)
class WitnessJob:
    """Sizes of a two-witness job."""

    total: int = 200
    batch: int = 5
    parallelism: int = 2
    partitions: int = 4
    pause_us: int = 2_000
    """The pause between two reads of a source, so that the job lasts for several checkpoints."""
    late_us: int = 0
    """How late a timer may fire; 0 in virtual time."""
    frame_rows: int = 8
    sharing_depth: int = -1
    rollback: bool = False
    protocol: ProtocolProperties = DEFAULT_PROTOCOL
    standbys: int = 1
    regenerates: bool = False
    """Whether the source regenerates its frames instead of keeping them."""
    gaps: bool = False
    time_granularity_us: int = 300
    causal: tuple[str, ...] = ()
    """Witnesses whose rows are visible at once: left, right or both."""

    def plan(self, ledger: WitnessLedger) -> PhysicalPlan:
        p = self.parallelism
        no_times = EventTime((None,))
        source = SourcePlan(
            "numbers",
            partial(NumberSource, self.total, self.partitions, self.batch, self.pause_us),
            (NUMBERS,),
            no_times,
        )
        vertices: tuple[Vertex, ...] = (
            Vertex("numbers", p, source, (), (), regenerates=self.regenerates),
            Vertex(
                "enrich",
                p,
                None,
                (OperatorPlan("enrich", "process", partial(EnrichStep, 30_000, self.late_us), (ENRICHED,)),),
                (),
            ),
            Vertex("left", p, None, (self._witness("left", ledger),), ()),
            Vertex(
                "rank",
                p,
                None,
                (
                    OperatorPlan("rank", "process", partial(RankStep, 3_000), (RANKED,), stateful=True),
                    self._witness("right", ledger),
                ),
                (Wire(0, 0, 1, 0),),
            ),
        )
        n = self.frame_rows
        edges = (
            Edge(0, "numbers", -1, 0, "enrich", 0, 0, Partitioning.REBALANCE, (), NUMBERS, n, n),
            Edge(1, "enrich", 0, 0, "left", 0, 0, Partitioning.FORWARD, (), ENRICHED, n, n),
            Edge(2, "enrich", 0, 0, "rank", 0, 0, Partitioning.HASH, ("key",), ENRICHED, n, n),
        )
        vertices = tuple(replace(vertex, standbys=self.standbys) for vertex in vertices)
        settings = {"time_granularity_us": self.time_granularity_us}
        return PhysicalPlan(
            "witness",
            vertices,
            edges,
            key_groups=16,
            sharing_depth=self.sharing_depth,
            protocol=self.protocol,
            rollback=self.rollback,
            settings=settings,
            gaps=self.gaps,
        )

    def _witness(self, name: str, ledger: WitnessLedger) -> OperatorPlan:
        causal = name in self.causal
        factory = partial(CausalWitness if causal else Witness, name, ledger)
        return OperatorPlan(name, "sink", factory, (), sink=True, causal=causal)


def disagreements(ledger: WitnessLedger, total: int) -> list[str]:
    """The errors in the witnesses' records: missing, duplicate or differing ones. Empty if there are none."""
    left = ledger.rows("left")
    right = [{k: v for k, v in row.items() if k != "rank"} for row in ledger.rows("right")]
    found = []
    for name, rows in (("left", left), ("right", right)):
        ids = sorted(row["id"] for row in rows)
        if ids != list(range(total)):
            doubled = sorted({i for i in ids if ids.count(i) > 1})
            missing = sorted(set(range(total)) - set(ids))
            found.append(f"{name}: missing {missing[:10]}, twice {doubled[:10]}")
    by_id = {row["id"]: row for row in left}
    differing = [row["id"] for row in right if by_id.get(row["id"]) != row]
    if differing:
        found.append(f"witnesses differ on {differing[:10]}")
    return found


def simulate(
    seed: int,
    job: WitnessJob = WitnessJob(),
    kills: int = 3,
    limits: ChannelLimits | None = None,
) -> SimulatedRun:
    """Runs the two-witness job once, and adds disagreements of the witnesses to the problems. The window of ``limits``
    is ignored: the seed draws it."""
    ledger = WitnessLedger()
    outcome = simulate_plan(job.plan(ledger), seed, kills, limits=limits)
    outcome.problems.extend(disagreements(ledger, job.total))
    return outcome
