"""Simulated jobs whose sources have got more rows when they are run again: event time counts these as if they had been
there, whichever partitions had ended before, and wherever the run before was stopped."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import pyarrow as pa
import pytest

from clonos_py import Job, Record, count, tumbling
from clonos_py.causal.determinants import Determinant, SourceReopened
from clonos_py.causal.gate import Gate
from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.connectors import MemorySink
from clonos_py.job.events import JobPolicy
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.coordinator_events import CoordinatorEvent, SourceStaysEnded
from clonos_py.model.operators import End, Read, Source, Wait
from clonos_py.model.protocols import ProtocolProperties
from clonos_py.plan.physical import plan
from clonos_py.process.contract import ChannelLimits
from clonos_py.runtime.sim.run import SimulatedEnvironment
from clonos_py.runtime.sim.schedule import VirtualTime
from clonos_py.runtime.world.world import World, WorldSettings
from clonos_py.settings.protocols import ALIGNED, PROTOCOLS
from clonos_py.settings.resolution import resolve
from clonos_py.task import machine, reader
from clonos_py.task.reader import Reader
from tests.sim.courses import running

RUNS = 3
SEEDS = 5
SEEDS_MAX = 60
LOST_BY, OPENED_BY, ENDED_BY = (2, 8, 5, 10, 0), (50,), (53,)
"""The seeds that show planted bugs soonest: a hint that saves time."""
"""For planted bugs."""
BAND_S, WINDOW_S = 100, 10
"""The rows that are new in a run have event times in the next band of so many seconds, so that no window of an earlier
run had closed before them."""
KINDS = ((ALIGNED, True), (ALIGNED, False), *((protocol, True) for protocol in PROTOCOLS if protocol is not ALIGNED))
"""Protocols, and whether the partition that does not end belongs to the same source."""
NOT_REOPENED = [protocol for protocol in PROTOCOLS if protocol is not ALIGNED]

Times = list[list[int]]
"""By partition: the event times of its rows, in seconds."""


class Timed(Record):
    key: int
    at: int


class Counted(Record):
    key: int
    window_start: int
    n: int


class Grown(SourceDefinition[Timed]):
    """Gives one row of each partition in turn. The partitions in ``open_`` do not end. ``logs_rows``: see ``Source``;
    without it a replacement starts at the last landmark of its log, and repeats few events."""

    def __init__(self, times: Times, open_: frozenset[int], logs_rows: bool) -> None:
        self.times, self.open_, self.logs_rows = times, open_, logs_rows
        self.unread = {number: len(rows) for number, rows in enumerate(times)}
        """By partition: the number of rows behind the last poll that any reader made."""
        self.schemas, self.records = (Timed.schema(),), (Timed,)

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        (names,) = columns
        return GrownReader(self, Timed.schema().names if names is None else list(names))


class GrownReader(Source):
    def __init__(self, grown: Grown, names: list[str]) -> None:
        self._grown, self._names = grown, names
        self.logs_rows = grown.logs_rows
        self._own: range = range(0)
        self._at: dict[int, int] = {}
        self._turn: list[int] = []

    def partitions(self) -> int:
        return len(self._grown.times)

    def open(self, index: int, parallelism: int) -> None:
        self._own = range(index, self.partitions(), parallelism)

    def seek(self, positions: Mapping[int, int]) -> None:
        self._at = {number: positions.get(number, 0) for number in self._own}
        self._turn = list(self._own)

    def poll(self, now: int) -> Read | Wait | End:
        for number in self._turn:
            at, rows = self._at[number], len(self._grown.times[number])
            if at < rows or number not in self._grown.open_:
                self._grown.unread[number] = max(rows - at - 1, 0)
                return self.reread(number, at, min(at + 1, rows))
        self._grown.unread |= dict.fromkeys(self._turn, 0)
        return Wait(now + 1_000) if self._turn else End()

    def reread(self, partition: int, start: int, stop: int) -> Read:
        times = self._grown.times[partition]
        is_last = stop == len(times) and partition not in self._grown.open_
        self._at[partition] = stop
        self._turn = [number for number in self._turn if number != partition] + [partition] * (not is_last)
        columns = {"key": [at % 2 for at in times[start:stop]], "at": [at * 1_000_000 for at in times[start:stop]]}
        rows = pa.record_batch(columns, schema=Timed.schema()).select(self._names)
        return Read(partition, start, stop, (rows,), checksum=stop, last=is_last)


@dataclass
class Outcome:
    """What the runs of a seed gave."""

    found: Counter[tuple[int, int]]
    """By key and start of a window: the number of rows that it has counted."""
    expected: Counter[tuple[int, int]]
    events: list[CoordinatorEvent]


def job_of(name: str, protocol: str, bounded: Grown, open_: Grown | None) -> tuple[Job, MemorySink]:
    job, sink = Job(name, protocol=protocol), MemorySink(name)
    rows = job.source(bounded, event_time="at").named("grown")
    if open_ is not None:
        rows = rows.union(job.source(open_, event_time="at").named("open"))
    rows.key_by("key").window(tumbling(f"{WINDOW_S}s")).aggregate(n=count()).sink(sink).named("counts")
    return job, sink


def runs(seed: int, protocol: ProtocolProperties, together: bool) -> Outcome:
    """Runs a job three times, each time with more rows, the first two until a stop, with up to two kills each.
    ``together``: whether the partition that does not end before the last run belongs to the same source as the
    others."""
    dice = random.Random(seed)
    name, events = f"grown-{seed}", list[CoordinatorEvent]()
    store, time = MemoryStore(name), VirtualTime(dice)
    logs_rows = dice.choice([False, True])
    times: Times = [[] for _ in range(dice.choice([2, 3]) + 1)]
    parallelism, window = 1 if together else dice.choice([1, 2, 3]), dice.choice([1, 4, 16])
    MemorySink(name).clear()
    for number in range(RUNS):
        begin = number * BAND_S
        for partition in times[:-1]:
            partition.extend(sorted(dice.choices(range(begin, begin + BAND_S), k=dice.choice([0, 1, 3, 40]))))
        times[-1].append(dice.randrange(begin, begin + BAND_S))
        open_in = frozenset({len(times) - 1 if together else 0}) if number < RUNS - 1 else frozenset[int]()
        if together:
            sources = [Grown(times, open_in, logs_rows)]
        else:
            sources = [Grown(times[:-1], frozenset(), logs_rows), Grown(times[-1:], open_in, logs_rows)]
        job, sink = job_of(name, protocol.name, sources[0], None if together else sources[1])
        physical = plan(job, resolve(job.settings, command_line={"runtime": "sim"}), parallelism=parallelism)
        early = dice.choice([0.0002, 0.002])
        kills = 2

        def befall(world: World, early: float = early, sources: list[Grown] = sources) -> None:
            nonlocal kills
            if world.ended is not None or not (tasks := running(world)):
                return
            if kills and dice.random() < 0.02:
                kills -= 1
                world.kill(dice.choice(tasks).number)
            all_read = not any(any(source.unread.values()) for source in sources)
            if sources[-1].open_ and dice.random() < (0.02 if all_read else early):
                world.request_stop()

        policy = JobPolicy(checkpoint_interval_us=dice.choice([5_000, 20_000, 500_000]), lineage=f"run-{number}")
        world = World(
            physical,
            store,
            time,
            lambda task: SimulatedEnvironment(time.now_us, dice, store, task),
            WorldSettings(policy, ChannelLimits(window=window), 2_000, events_max=400_000),
            lambda at_us, event: events.append(event),
            hook=befall,
        )
        ended = world.run()
        assert ended.error is None, f"seed {seed}: {ended.error}: {ended.message}"
        assert ended.stopped == (number < RUNS - 1), f"seed {seed}"
    windows = Counter[tuple[int, int]]()
    for row in sink.rows(Counted):
        windows[row.key, row.window_start // 1_000_000] += row.n
    return Outcome(windows, Counter((at % 2, at // WINDOW_S * WINDOW_S) for rows in times for at in rows), events)


@pytest.mark.parametrize(("protocol", "together"), KINDS, ids=str)
def test_rows_that_a_source_has_got_are_counted_as_if_they_had_been_there(
    protocol: ProtocolProperties, together: bool
) -> None:
    for seed in range(SEEDS):
        outcome = runs(seed, protocol, together)
        assert outcome.found == outcome.expected, f"seed {seed}"


@pytest.mark.parametrize("protocol", NOT_REOPENED, ids=str)
def test_a_source_is_read_again_or_named(protocol: ProtocolProperties) -> None:
    for seed in range(SEEDS):
        outcome = runs(seed, protocol, together=False)
        named = any(isinstance(event, SourceStaysEnded) for event in outcome.events)
        assert outcome.found == outcome.expected or named, f"seed {seed}"
        assert outcome.found <= outcome.expected, f"seed {seed}"


def shows(*kinds: tuple[ProtocolProperties, bool], first: tuple[int, ...] = LOST_BY) -> bool:
    """Whether some seed shows a planted bug with one of these kinds of jobs."""
    for seed, (protocol, together) in product((*first, *range(SEEDS_MAX)), kinds):
        try:
            outcome = runs(seed, protocol, together)
        except AssertionError:
            return True
        if outcome.found != outcome.expected:
            return True
    return False


@pytest.mark.parametrize(("protocol", "together"), KINDS, ids=str)
def test_partitions_that_stay_ended_lose_rows(
    protocol: ProtocolProperties, together: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Reader, "reopen", lambda self, run: setattr(self, "run", run))
    assert shows((protocol, together))


def test_that_a_source_was_opened_again_has_to_be_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    record = Gate.record
    monkeypatch.setattr(
        Gate, "record", lambda self, made: None if isinstance(made, SourceReopened) else record(self, made)
    )
    assert shows(*KINDS, first=OPENED_BY)


def test_that_a_partition_has_ended_has_to_be_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task may repeat its log in the next run, in which the source has more rows."""
    determinants_of = reader.determinants_of

    def unmarked(reads: Sequence[Read]) -> list[Determinant]:
        return determinants_of([read._replace(last=False) for read in reads])

    monkeypatch.setattr(machine, "determinants_of", unmarked)
    assert shows(*((protocol, True) for protocol in NOT_REOPENED), first=ENDED_BY)
