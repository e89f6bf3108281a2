"""Injects hundreds of failures into running jobs and checks that everything they wrote is right.

The jobs are the two-witness job and queries 3, 5 and 8. They run one after the other on Ray actors over several nodes,
in turns, until the requested number of SIGKILLs was sent. A seed decides the faults, their victims and their times:

- tasks are killed: alone, two at once, one while another recovers, the same task again; standbys are killed;
- tasks are stopped, and continue as zombies;
- the coordinator is killed, alone or with a task;
- the coordinator is stopped for seconds, which must not replace any task;
- the clock of a task is set forwards or backwards.

In a third of the runs standbys share processes. Once in each turn a whole node is lost, and a new node replaces it. A
turn ends with a run whose Ray is killed (``blackouts``). A soak writes everything into its own temporary folder, which
must be empty at the end.

With ``--kafka`` the two-witness job and query 8 read and write topics, with one broker or three. Brokers are killed and
restarted, or stopped for seconds. Their connections are cut, some while the broker answers a commit.
"""

from __future__ import annotations

import itertools
import os
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from clonos_py.bench import witnesses
from clonos_py.bench.blackouts import Blackout, black_out
from clonos_py.bench.clock_shim import ClockSteps, clock_steps
from clonos_py.bench.fault_injector import OF_BROKERS, FaultInjector, InjectedCounts, InjectedFault, drawn
from clonos_py.bench.kafka.brokers import Brokers
from clonos_py.bench.kafka.new_users import DELIVERIES, new_users
from clonos_py.bench.kafka.traffic import LIBRARIES, JobOverTopics
from clonos_py.bench.kafka.witnesses import kafka_witnesses
from clonos_py.bench.oracle import expected
from clonos_py.bench.standstills import TaskEvent, failures_caused
from clonos_py.cli.options import setting_options
from clonos_py.connectors import FileSink, read_results
from clonos_py.dsl.job import Job
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.new_users import difference
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.coordinator_events import Deployed, Finished, Replayed, RolledBack
from clonos_py.model.errors import ClonosError
from clonos_py.observe.events import Event, TaskFailed
from clonos_py.plan.physical import plan
from clonos_py.runtime.launch import run_job
from clonos_py.settings.protocols import DEFAULT_PROTOCOL
from clonos_py.settings.resolution import resolve

JOBS = ("witnesses", "q3", "q5", "q8")
KAFKA_JOBS = tuple(f"{job}:{library}" for job in ("witnesses", "q8") for library in LIBRARIES)
SECONDS = 40.0
PAUSE_S = (0.8, 2.2)
"""The pause between two faults, from and to."""
_SETTINGS = {"parallelism": 2, "checkpoint_interval": "1s"}
_RATE = 2_000
_WITNESS_RATE = 100.0
"""Rows per second of each partition."""


@dataclass(frozen=True)
class Subject:
    """A job under test. ``tasks``: the possible victims. ``wrong``: says what is wrong with the results, or None.
    ``begin``: called when the job is deployed."""

    job: Job
    tasks: tuple[str, ...]
    wrong: Callable[[], str | None]
    begin: Callable[[], None] = lambda: None


@dataclass
class SoakFinding:
    """The result of a run. ``wrong``: None if every result is right and no rollback was needed."""

    name: str
    counts: InjectedCounts
    replayed: int
    wrong: str | None


class FaultSchedule:
    """Listens to a run, and injects faults into the job from its deployment to its end."""

    def __init__(
        self,
        injector: FaultInjector,
        faults: Iterator[tuple[InjectedFault, Sequence[str]]],
        random_: random.Random,
        begin: Callable[[], None],
    ) -> None:
        self.events: list[Event] = []
        self.failed: list[TaskEvent] = []
        self._injector, self._faults, self._random, self._begin = injector, faults, random_, begin
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="injector", daemon=True)

    def __call__(self, at_us: int, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, TaskFailed):
            self.failed.append(TaskEvent(time.monotonic(), str(event.task)))
        if isinstance(event, Deployed) and not self._thread.is_alive():
            self._begin()
            self._thread.start()
        if isinstance(event, Finished):
            self._ended.set()

    def _run(self) -> None:
        for fault, victims in self._faults:
            if self._ended.wait(self._random.uniform(*PAUSE_S)):
                return
            self._injector.inject(fault, victims)

    def stop(self) -> None:
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()


def subject(name: str, folder: str, seconds: float, server: str) -> Subject:
    """The job of this name. ``seconds``: how long it lasts without failures."""
    if name == "witnesses":
        total = _witnesses_in(seconds)
        job = witnesses.witnesses(server, folder, total, _WITNESS_RATE)
        return Subject(job, witnesses.TASKS, lambda: witnesses.wrong(folder, total))
    source = NexmarkSource(events=int(seconds * _RATE), rate=_RATE, event_rate=150, partitions=2)
    job = build(name, source, FileSink(folder, "parquet"))
    return Subject(
        job, _tasks(job), lambda: difference(expected(name, source), [tuple(r.values()) for r in read_results(folder)])
    )


def _tasks(job: Job) -> tuple[str, ...]:
    return tuple(str(task) for task in plan(job, resolve(command_line=dict(_SETTINGS))).tasks)


def _over_topics(
    name: str, folder: Path, seconds: float, server: str, random_: random.Random
) -> AbstractContextManager[JobOverTopics]:
    job, _, by = name.partition(":")
    library, nodes = LIBRARIES[LIBRARIES.index(by)], random_.choice((1, 3))
    if job == "witnesses":
        return kafka_witnesses(folder, server, _witnesses_in(seconds), _WITNESS_RATE, library, nodes)
    return new_users(folder, seconds, 2 * _WITNESS_RATE, library, random_.choice(DELIVERIES), nodes)


def _witnesses_in(seconds: float) -> int:
    return int(seconds * _WITNESS_RATE) * witnesses.PARTITIONS


def soak(
    name: str,
    seed: int,
    seconds: float = SECONDS,
    address: str | None = None,
    lose_node: Callable[[], None] | None = None,
    clocks: ClockSteps | None = None,
    most: int | None = None,
    protocol: str = DEFAULT_PROTOCOL.name,
) -> SoakFinding:
    """Runs one job and injects at most ``most`` faults. ``lose_node`` is one of them, the fifth, if given. Without
    ``clocks`` no clock is stepped."""
    random_ = random.Random(f"{seed} {name}")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="clonos-soak-"))
        server = stack.enter_context(witnesses.answer_server())
        fault_random, brokers = random.Random(f"{seed} {name} harm"), None
        if name in KAFKA_JOBS:
            over = stack.enter_context(_over_topics(name, Path(folder), seconds, server, random_))
            target = Subject(over.job, _tasks(over.job), over.wrong, over.begin)
            brokers = Brokers(over.brokers, fault_random)
        else:
            target = subject(name, folder, seconds, server)
        injector = FaultInjector(target.job.name, lose_node, clocks, brokers, fault_random)
        without = {*(() if clocks else (InjectedFault.CLOCK,)), *(() if brokers else OF_BROKERS)}
        faults: Iterator[tuple[InjectedFault, Sequence[str]]] = drawn(target.tasks, random_, without)
        if lose_node is not None:
            faults = itertools.chain(itertools.islice(faults, 4), [(InjectedFault.NODE, target.tasks)], faults)
        schedule = FaultSchedule(injector, itertools.islice(faults, most), random_, target.begin)
        settings = {**_SETTINGS, "standbys_per_process": random_.choice((1, 3, 8)), "address": address}
        settings |= {"protocol": protocol}
        try:
            run_job(target.job, resolve(command_line=settings), schedule)
            rolled_back = any(isinstance(event, RolledBack) for event in schedule.events)
            needless_replacements = failures_caused(injector.standstills, injector.harmed_at, schedule.failed)
            wrong = "the job rolled back" if rolled_back else "; ".join(needless_replacements) or target.wrong()
        except ClonosError as problem:
            wrong = f"{type(problem).__name__}: {problem}"
        finally:
            schedule.stop()
    replayed = sum(event.rows for event in schedule.events if isinstance(event, Replayed))
    return SoakFinding(name, injector.counts, replayed, wrong)


def leftovers(folder: Path) -> list[str]:
    """The names of files that runs have left in their folder. The folder is removed if it is empty."""
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def run(
    jobs: tuple[str, ...], kafka: bool, kills: int, seconds: float, seed: int, nodes: int, protocol: str | None
) -> None:
    """Prints a line for each run, and a summary. Exits with 1 if anything was wrong."""
    total, wrong, runs, began = InjectedCounts(), 0, 0, time.monotonic()
    chosen = protocol or DEFAULT_PROTOCOL.name
    names, lost = jobs or (KAFKA_JOBS if kafka else JOBS), Counter[str]()
    with own_folder() as folder, clock_steps() as clocks, cluster(nodes) as raylets:
        for turn, name in enumerate(itertools.cycle(names)):
            loses = raylets is not None and turn % len(names) == turn // len(names) % len(names)
            address, lose_node = (raylets.address, raylets.lose) if raylets else (None, None)
            finding = soak(name, seed + turn, seconds, address, lose_node if loses else None, clocks, None, chosen)
            if raylets and loses:
                raylets.add()
            total.faults += finding.counts.faults
            total.kills += finding.counts.kills
            wrong, runs = wrong + (finding.wrong is not None), runs + 1
            click.echo(f"seed {seed + turn:<4} {summary(finding)}")
            if raylets and turn % len(names) == len(names) - 1:
                blackout = list(Blackout)[turn // len(names) % len(Blackout)]
                problem = black_out(blackout, seconds)
                lost[blackout.value] += 1
                wrong, runs = wrong + (problem is not None), runs + 1
                click.echo(f"seed {seed + turn:<4} {blackout.value:<10} killed during a run  {verdict(problem)}")
            if total.kills >= kills:
                break
    if left := leftovers(folder):
        wrong += 1
        click.echo(f"WRONG: left in {folder}: {', '.join(left)}")
    if clocks is None:
        click.echo("no clock was stepped: there is no C compiler, or the interpreter waits by the time of day")
    minutes = (time.monotonic() - began) / 60
    click.echo(f"{runs} runs in {minutes:.0f} minutes, {total.kills} SIGKILLs: {wrong} wrong")
    faults = [(fault.value, amount) for fault, amount in total.faults.most_common()]
    click.echo(
        "; ".join(f"{amount} x {what}" for what, amount in [*faults, *((f"{p} lost", n) for p, n in lost.items())])
    )
    if wrong:
        raise click.exceptions.Exit(1)


def summary(finding: SoakFinding) -> str:
    faults = sum(finding.counts.faults.values())
    done = f"{faults:>3} faults, {finding.counts.kills:>3} SIGKILLs, {finding.replayed:>8,} rows replayed"
    return f"{finding.name:<10} {done}  {verdict(finding.wrong)}"


def verdict(wrong: str | None) -> str:
    return "right" if wrong is None else f"WRONG: {wrong}"


@contextmanager
def own_folder() -> Iterator[Path]:
    """Creates a temporary folder for this process and all processes that it starts. Ray's own files stay elsewhere."""
    outside, given = tempfile.gettempdir(), {name: os.environ.get(name) for name in ("TMPDIR", "RAY_TMPDIR")}
    folder = tempfile.mkdtemp(prefix="clonos-soak-")
    os.environ.update(TMPDIR=folder, RAY_TMPDIR=given["RAY_TMPDIR"] or outside)
    tempfile.tempdir = folder
    try:
        yield Path(folder)
    finally:
        tempfile.tempdir = outside
        for name, value in given.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})
        with suppress(OSError):  # a folder that is not empty stays, so that its files can be inspected
            os.rmdir(folder)


@contextmanager
def cluster(nodes: int) -> Iterator[Any]:
    """Starts Ray: a cluster of several nodes on this machine, or Ray's usual single node, for which it yields None."""
    from clonos_py.runtime.ray.cluster import connected

    with ExitStack() as stack:
        raylets = None
        if nodes > 1:
            from deploy.start_raylets import raylets as started  # beside the package, in a checkout

            os.environ["RAY_AUTH_MODE"] = "token"
            raylets = stack.enter_context(started(nodes))
        stack.enter_context(connected(raylets.address if raylets else None))
        yield raylets


command = click.Command(
    "soak",
    callback=run,
    params=[
        click.Argument(["jobs"], nargs=-1, type=click.Choice([*JOBS, *KAFKA_JOBS])),
        click.Option(["--kafka"], is_flag=True, help="Jobs that read and write topics, with each Kafka client."),
        click.Option(
            ["--kills"], type=click.IntRange(1), default=200, show_default=True, help="SIGKILLs to send in all."
        ),
        click.Option(
            ["--seconds"], type=float, default=SECONDS, show_default=True, help="Seconds of a run without faults."
        ),
        click.Option(
            ["--seed"], type=int, default=0, show_default=True, help="Decides which faults are injected, and when."
        ),
        click.Option(
            ["--nodes"],
            type=click.IntRange(1),
            default=3,
            show_default=True,
            help="Nodes of the cluster; with 1 none is lost.",
        ),
        *setting_options("protocol"),
    ],
    help="Kills, stops and wakes processes of JOBS (all without any), nodes too, and compares every result.",
)
