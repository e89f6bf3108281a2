"""``python -m clonos_py.bench kafka``: measures jobs from topic to topic, with a real broker on the same machine.

Throughput is the number of committed messages divided by the time between the first and the last write, as a consumer
of the output sees them. Each engine has two tasks or processes, one for each core of a small machine.

Latency is the time from the creation of a message until a consumer has read its result. Messages are produced at a
fixed rate; producer and consumer are separate processes. A task is killed half-way. The gap is the longest time
without a new row.
"""

from __future__ import annotations

import json
import multiprocessing
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click
import numpy as np

from clonos_py import Job, col
from clonos_py.bench.kafka.cluster import BrokerCluster, cluster
from clonos_py.bench.kafka.topics import PARTITIONS, Row, count_committed, create_topics, fill, json_rows
from clonos_py.bench.kafka.traffic import LIBRARIES, Library
from clonos_py.bench.peers.environment import BYTEWAX, Environment
from clonos_py.bench.ports import free_ports
from clonos_py.bench.resident import resident_bytes
from clonos_py.cli.tables import show
from clonos_py.connectors import KafkaSink, KafkaSource
from clonos_py.connectors.kafka.client import Fields, Message, TopicPartition
from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.model.coordinator_events import Deployed
from clonos_py.model.errors import ClonosError
from clonos_py.observe.events import Event, Measured, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import connected
from clonos_py.settings.resolution import resolve

DELIVERIES = ("causal", "transactional", "idempotent")
QUIX = "3.28.1"
_PEERS = {"quix": ("quixstreams", QUIX), "bytewax": ("bytewax[kafka]", BYTEWAX)}
_BY_ARRIVAL = {"message.timestamp.type": "LogAppendTime"}
"""Makes the broker set the timestamps of messages on arrival. Otherwise Quix Streams copies those of its input."""
_PARALLELISM = 2
"""The parallelism of throughput runs, and the number of processes of other engines."""
_REBALANCE_DELAY_MS = 3_000
"""How long the broker waits for further consumers, so that all processes share the partitions from the beginning."""
_BATCHES_PER_S = 100
_CONSUMED_S = 60.0
"""How long the consumer may take for the remaining rows after the job has ended."""


def job(bootstrap: str, library: Library, delivery: Any, arrow: bool, **source: Any) -> Job:
    """A job that copies rows from one topic to another, through a filter that all rows pass."""
    form: Any = "arrow" if arrow else "json"
    made = Job("topic-to-topic")
    rows = made.source(KafkaSource("in", Row, bootstrap=bootstrap, client=library, format=form, **source))
    key = "id" if delivery == "idempotent" else ()
    sink = KafkaSink("out", bootstrap=bootstrap, client=library, format=form, delivery=delivery, key=key)
    rows.filter(col("id") >= 0).sink(sink)
    return made


@contextmanager
def broker(rebalance_delay_ms: int = 0) -> Iterator[BrokerCluster]:
    """Runs a broker with the two topics. ``rebalance_delay_ms``: how long the first consumer of a group
    waits for others."""
    with (
        tempfile.TemporaryDirectory(prefix="clonos-kafka-") as folder,
        cluster(Path(folder), group_initial_rebalance_delay_ms=rebalance_delay_ms) as found,
    ):
        create_topics(found.bootstrap, "in")
        create_topics(found.bootstrap, "out", settings=_BY_ARRIVAL)
        yield found


def run_to_end(job: Job, folder: str, on_event: Callable[[Event], None] = lambda event: None, **settings: Any) -> None:
    """Runs a job to its end. ``on_event`` is called with each event of the run."""
    given = {"parallelism": 1, "checkpoint_interval": "10s", "checkpoints": folder, **settings}
    run_job(job, resolve(given), lambda at_us, event: on_event(event))


def throughput(library: Library, delivery: str, rows: int, arrow: bool) -> float:
    """Measures the throughput of this engine in rows per second. Raises ClonosError if rows are missing or doubled."""
    with broker() as found, tempfile.TemporaryDirectory() as folder:
        fill(found.bootstrap, "in", rows, arrow)
        run_to_end(job(found.bootstrap, library, delivery, arrow, stop="latest"), folder, parallelism=_PARALLELISM)
        written = count_committed(found.bootstrap, "out", arrow)
    if written.rows != rows:
        raise ClonosError(f"{rows:,} rows were read, and {written.rows:,} written")
    return rows / written.seconds


def throughput_of_peer(peer: str, rows: int, root: Path) -> float:
    """Measures the throughput of another engine in messages per second, with JSON, and exactly-once if it supports
    that. Raises ClonosError if messages are missing."""
    package, version = _PEERS[peer]
    environment = Environment((root / peer).absolute(), (f"{package}=={version}",))
    environment.make(lambda text: click.echo(text, err=True))
    program = Path(__file__).parent / f"{peer}_job.py"
    addresses = [f"127.0.0.1:{port}" for port in free_ports(_PARALLELISM)]
    with broker(_REBALANCE_DELAY_MS) as found:
        fill(found.bootstrap, "in", rows, arrow=False)
        commands = [
            [str(environment.python), str(program), found.bootstrap, str(index), *addresses]
            for index in range(_PARALLELISM)
        ]
        with ThreadPoolExecutor() as pool:
            ended = list(pool.map(_ended, commands))
        written = count_committed(found.bootstrap, "out", arrow=False)
    if written.rows < rows:
        errors = "; ".join(process.stderr[-500:] for process in ended)
        raise ClonosError(f"{peer} has written {written.rows} of {rows} rows: {errors}")
    return written.rows / written.seconds


def _ended(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


# ---- latency


_stops: list[Any] = []
"""In the process of a consumer: one event. When it is set, the consumer ends even if rows are missing."""


def _listen_to(stop: Any) -> None:
    _stops.append(stop)


def produce(bootstrap: str, rows: int, rate: int) -> None:
    """Produces messages at a fixed rate. Runs in a separate process."""
    writer = ClusterAddress(bootstrap).connect().writer()
    batch, began = rate // _BATCHES_PER_S, time.monotonic()
    for number, start in enumerate(range(0, rows, batch)):
        time.sleep(max(0.0, began + number / _BATCHES_PER_S - time.monotonic()))
        values = json_rows(start, min(start + batch, rows))
        writer.write([Message("in", value, partition=n % PARTITIONS) for n, value in enumerate(values)])
    writer.flush()
    writer.close()


def consume(bootstrap: str, rows: int) -> tuple[list[float], list[tuple[float, int]]]:
    """Consumes the output. Returns the latency of each row in ms, and the time (seconds) and number of rows of each
    fetched batch. Runs in a separate process."""
    reader = ClusterAddress(bootstrap).connect().reader(Fields())
    reader.assign({TopicPartition("out", number): 0 for number in range(PARTITIONS)})
    latencies_ms: list[float] = []
    arrivals: list[tuple[float, int]] = []
    while len(latencies_ms) < rows and not _stops[0].is_set():
        for messages in reader.fetch(0.1):
            now_us = time.time_ns() // 1_000
            created = [json.loads(value)["created"] for value in messages.values if value]
            latencies_ms += [(now_us - at_us) / 1_000 for at_us in created]
            arrivals.append((now_us / 1e6, len(created)))
    reader.close()
    return latencies_ms, arrivals


@dataclass
class Latency:
    """The figures of a latency run. ``gap_ms``: the longest time without a new row. ``memory_bytes``: the peak memory
    of the largest task process."""

    median_ms: float
    p95_ms: float
    gap_ms: float
    journal_bytes: int
    memory_bytes: int
    rows: int


@dataclass
class _Listener:
    """Calls ``begin`` when the job is deployed. ``killed``: whether a task has failed."""

    begin: Callable[[], object]
    memory_bytes: int = 0
    killed: bool = False

    def __call__(self, event: Event) -> None:
        match event:
            case Deployed():
                self.begin()
            case TaskFailed():
                self.killed = True
            case Measured():
                self.memory_bytes = max([self.memory_bytes, *(size for _, size in resident_bytes())])
            case _:
                pass


def latency(library: Library, delivery: str, rate: int, seconds: int, feed: str = "off") -> Latency:
    """Measures one run. Latencies are of the second quarter of the rows: the job is warm, and no task has been killed.
    A task is killed after 60% of ``seconds``. The gap is that after the first quarter. ``feed``: the setting
    ``standby_feed``."""
    rows = rate * seconds
    stop = {("in", partition): rows // PARTITIONS for partition in range(PARTITIONS)}
    kill = f"source-kafka[0]@{seconds * 3 // 5}s"
    with broker() as found, tempfile.TemporaryDirectory() as folder, _two_processes() as pool:
        consumed = pool.submit(consume, found.bootstrap, rows)
        listener = _Listener(partial(pool.submit, partial(produce, found.bootstrap, rows, rate)))
        made = job(found.bootstrap, library, delivery, False, stop=stop)
        run_to_end(made, folder, listener, kills=(kill,), standby_feed=feed)
        latencies_ms, arrivals = consumed.result(_CONSUMED_S)
        journal, written = _size(found, "journal"), count_committed(found.bootstrap, "out", arrow=False)
    if written.rows != rows and delivery != "idempotent":
        raise ClonosError(f"{rows:,} rows were made, and {written.rows:,} are in the topic")
    if not listener.killed:
        raise ClonosError("no task was killed")
    calm = latencies_ms[rows // 4 : rows // 2]
    late = [at for at, _ in arrivals if at > arrivals[0][0] + seconds / 4]
    gap_ms = 1e3 * max(np.diff(late))
    p95_ms = float(np.quantile(calm, 0.95))
    return Latency(statistics.median(calm), p95_ms, gap_ms, journal, listener.memory_bytes, len(latencies_ms))


@contextmanager
def _two_processes() -> Iterator[ProcessPoolExecutor]:
    """Two processes, for a producer and a consumer. At the end of the block the consumer is stopped."""
    spawning = multiprocessing.get_context("spawn")
    stop = spawning.Event()
    with ProcessPoolExecutor(2, spawning, _listen_to, (stop,)) as pool:
        try:
            yield pool
        finally:
            stop.set()


def _size(found: BrokerCluster, of: str) -> int:
    """The bytes on disk of all topics whose names contain ``of``."""
    folders = [folder for node in found.nodes for folder in (node.folder / "logs").glob(f"*{of}*")]
    return sum(file.stat().st_size for folder in folders for file in folder.glob("*.log"))


# ---- the command


def _rates(
    sizes: Mapping[tuple[Library, str, bool], int], peers: Sequence[str], scale: float, repeat: int, root: Path
) -> Mapping[tuple[str, ...], list[float]]:
    """Measures all throughputs in turns, so that a slow minute of the machine does not affect only one of them."""
    rates: dict[tuple[str, ...], list[float]] = {}
    for _ in range(repeat):
        for (library, delivery, arrow), rows in sizes.items():
            found = throughput(library, delivery, int(rows * scale), arrow)
            rates.setdefault((library, delivery, "Arrow" if arrow else "JSON"), []).append(found)
        for peer in peers:
            rates.setdefault((peer, "", "JSON"), []).append(throughput_of_peer(peer, int(300_000 * scale), root))
    return rates


def run(
    peers: tuple[str, ...],
    measured: str,
    deliveries: tuple[str, ...],
    standby_feeds: tuple[str, ...],
    scale: float,
    repeat: int,
    rate: int,
    seconds: int,
    root: Path,
) -> None:
    sizes: dict[tuple[Library, str, bool], int] = {
        ("confluent-kafka", "causal", False): 1_500_000,
        ("confluent-kafka", "transactional", False): 1_500_000,
        ("confluent-kafka", "idempotent", False): 1_500_000,
        ("kafka-python", "causal", False): 200_000,
        ("confluent-kafka", "causal", True): 10_000_000,
    }
    for feed in standby_feeds:
        resolve(command_line={"standby_feed": feed})
    sizes = {key: rows for key, rows in sizes.items() if key[1] in deliveries}
    with connected(None):
        if measured != "latency":
            _show_rates(_rates(sizes, peers, scale, repeat, root))
        if measured != "throughput":
            _show_latencies(deliveries, standby_feeds, repeat, rate, seconds)


def _show_rates(rates: Mapping[tuple[str, ...], list[float]]) -> None:
    show(
        "From topic to topic",
        ("client", "delivery", "format", "rows/s, median", "all"),
        [
            (*key, f"{statistics.median(all_):,.0f}", ", ".join(f"{r:,.0f}" for r in all_))
            for key, all_ in rates.items()
        ],
    )


def _show_latencies(
    deliveries: Sequence[str], standby_feeds: Sequence[str], repeat: int, rate: int, seconds: int
) -> None:
    """Measures in turns, and prints."""
    found: dict[tuple[str, str, str], list[Latency]] = {}
    library = LIBRARIES[0]
    for _ in range(repeat):
        for delivery in deliveries:
            for feed in standby_feeds:
                measured = latency(library, delivery, rate, seconds, feed)
                found.setdefault((library, delivery, feed), []).append(measured)
    figures = ("median ms", "95% ms", "gap after SIGKILL ms", "journal bytes/row", "memory MB")
    show(
        f"Latency at {rate:,} rows/s, checkpoints every 10 s",
        ("client", "delivery", "standby feed", *figures),
        [
            (*key, *(_median_and_range(values) for values in zip(*(_shown(of) for of in all_), strict=True)))
            for key, all_ in found.items()
        ],
    )


def _shown(of: Latency) -> tuple[float, ...]:
    return of.median_ms, of.p95_ms, of.gap_ms, of.journal_bytes / of.rows, of.memory_bytes / 1e6


def _median_and_range(values: Sequence[float]) -> str:
    """The median, and in brackets the minimum and maximum."""
    digits = 0 if min(values) > 10 else 1
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


command = click.Command(
    "kafka",
    callback=run,
    params=[
        click.Option(
            ["--peers"], multiple=True, type=click.Choice(list(_PEERS)),
            help="Measure this engine, too; may be given several times.",
        ),
        click.Option(
            ["--measured"], type=click.Choice(["throughput", "latency", "both"]), default="both", show_default=True,
            help="What to measure.",
        ),
        click.Option(
            ["deliveries", "--delivery"], multiple=True, type=click.Choice(DELIVERIES), default=DELIVERIES,
            show_default=True, help="A delivery to measure; may be given several times.",
        ),
        click.Option(
            ["standby_feeds", "--standby-feed"], multiple=True, metavar="DURATION|off",
            default=("off",), show_default=True,
            help="How often standbys are fed in a latency run; may be given several times.",
        ),
        click.Option(["--scale"], type=float, default=1.0, show_default=True, help="Factor for the numbers of rows."),
        click.Option(["--repeat"], type=click.IntRange(1), default=3, show_default=True, help="Runs of each, in turn."),
        click.Option(
            ["--rate"], type=click.IntRange(100), default=10_000, show_default=True,
            help="Rows per second of a latency run.",
        ),
        click.Option(
            ["--seconds"], type=click.IntRange(30), default=40, show_default=True, help="Seconds of a latency run."
        ),
        click.Option(
            ["--root"], type=click.Path(path_type=Path), default="peers", show_default=True,
            help="Where other engines are installed.",
        ),
    ],
    help="Throughput and latency from topic to topic, and what a consumer sees of a killed task.",
)  # fmt: skip
