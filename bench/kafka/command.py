"""``python -m clonos_py.bench kafka``: from topic to topic, with a real broker on the same machine.

Throughput is what a consumer of what is committed finds: messages by the time between the first and the last that were
written. Each engine has two tasks or processes, one for each core of a small machine. Latency is from the making of a
message by its producer until a consumer has read the result, at a pace, in processes of their own. A task is killed in
the middle: the gap is the longest time without a new row.
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
from clonos_py.bench.kafka.topics import PARTITIONS, Row, create_topics, fill, json_rows, seen
from clonos_py.bench.kafka.traffic import LIBRARIES, Library
from clonos_py.bench.peers.environment import BYTEWAX, Environment
from clonos_py.bench.resident import resident_bytes
from clonos_py.cli.tables import show
from clonos_py.connectors import KafkaSink, KafkaSource
from clonos_py.connectors.kafka.clients import ClusterAddress
from clonos_py.connectors.kafka.port import Fields, Message, TopicPartition
from clonos_py.model.coordinator_events import Deployed
from clonos_py.model.errors import ClonosError
from clonos_py.observe.events import Event, Measured, TaskFailed
from clonos_py.runtime.launch import run_job
from clonos_py.runtime.ray.cluster import connected
from clonos_py.runtime.transport.ports import free_ports
from clonos_py.settings.resolution import resolve

DELIVERIES = ("causal", "transactional", "idempotent")
QUIX = "3.28.1"
_PEERS = {"quix": ("quixstreams", QUIX), "bytewax": ("bytewax[kafka]", BYTEWAX)}
_BY_ARRIVAL = {"message.timestamp.type": "LogAppendTime"}
"""Messages have the time at which the broker got them. Quix Streams gives them that of its input otherwise."""
_PARALLELISM = 2
"""Of what is measured for throughput, also of other engines."""
_TOGETHER_MS = 3_000
"""Processes that start within this time share the partitions from the first message on."""
_BATCHES_PER_S = 100
_CONSUMED_S = 60.0
"""For what is left to consume when the job has ended."""


def job(bootstrap: str, library: Library, delivery: Any, arrow: bool, **source: Any) -> Job:
    """All rows, through a filter that lets them pass."""
    form: Any = "arrow" if arrow else "json"
    made = Job("topic-to-topic")
    rows = made.source(KafkaSource("in", Row, bootstrap=bootstrap, client=library, format=form, **source))
    key = "id" if delivery == "idempotent" else ()
    sink = KafkaSink("out", bootstrap=bootstrap, client=library, format=form, delivery=delivery, key=key)
    rows.filter(col("id") >= 0).sink(sink)
    return made


@contextmanager
def broker(together_ms: int = 0) -> Iterator[BrokerCluster]:
    """``together_ms``: how long the first consumer of a group waits for others."""
    with (
        tempfile.TemporaryDirectory(prefix="clonos-kafka-") as folder,
        cluster(Path(folder), group_initial_rebalance_delay_ms=together_ms) as found,
    ):
        create_topics(found.bootstrap, "in")
        create_topics(found.bootstrap, "out", settings=_BY_ARRIVAL)
        yield found


def carry_out(job: Job, folder: str, heard: Callable[[Event], None] = lambda event: None, **settings: Any) -> None:
    """``heard`` is called with what happens."""
    given = {"parallelism": 1, "checkpoint_interval": "10s", "checkpoints": folder, **settings}
    run_job(job, resolve(given), lambda at_us, event: heard(event))


def throughput(library: Library, delivery: str, rows: int, arrow: bool) -> float:
    """Rows a second."""
    with broker() as found, tempfile.TemporaryDirectory() as folder:
        fill(found.bootstrap, "in", rows, arrow)
        carry_out(job(found.bootstrap, library, delivery, arrow, stop="latest"), folder, parallelism=_PARALLELISM)
        written = seen(found.bootstrap, "out", arrow)
    if written.rows != rows:
        raise ClonosError(f"{rows:,} rows were read, and {written.rows:,} written")
    return rows / written.seconds


def throughput_of_peer(peer: str, rows: int, root: Path) -> float:
    """Messages a second of another engine, JSON, exactly-once where it has that."""
    package, version = _PEERS[peer]
    environment = Environment((root / peer).absolute(), (f"{package}=={version}",))
    environment.make(lambda text: click.echo(text, err=True))
    program = Path(__file__).parent / f"{peer}_job.py"
    addresses = [f"127.0.0.1:{port}" for port in free_ports(_PARALLELISM)]
    with broker(_TOGETHER_MS) as found:
        fill(found.bootstrap, "in", rows, arrow=False)
        commands = [
            [str(environment.python), str(program), found.bootstrap, str(index), *addresses]
            for index in range(_PARALLELISM)
        ]
        with ThreadPoolExecutor() as pool:
            ended = list(pool.map(_ended, commands))
        written = seen(found.bootstrap, "out", arrow=False)
    if written.rows < rows:
        said = "; ".join(process.stderr[-500:] for process in ended)
        raise ClonosError(f"{peer} has written {written.rows} of {rows} rows: {said}")
    return written.rows / written.seconds


def _ended(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


# ---- latency


_stops: list[Any] = []
"""In a process that consumes: an event that is set when there is nothing more to wait for."""


def _listen_to(stop: Any) -> None:
    _stops.append(stop)


def produce(bootstrap: str, rows: int, rate: int) -> None:
    """In a process of its own: at a pace."""
    writer = ClusterAddress(bootstrap).connect().writer()
    batch, began = rate // _BATCHES_PER_S, time.monotonic()
    for number, start in enumerate(range(0, rows, batch)):
        time.sleep(max(0.0, began + number / _BATCHES_PER_S - time.monotonic()))
        values = json_rows(start, min(start + batch, rows))
        writer.write([Message("in", value, partition=n % PARTITIONS) for n, value in enumerate(values)])
    writer.flush()
    writer.close()


def consume(bootstrap: str, rows: int) -> tuple[list[float], list[tuple[float, int]]]:
    """In a process of its own: the latency of each row in ms, and how many came when (seconds)."""
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
    """``gap_ms``: the longest time without a new row after a task was killed. ``memory_bytes``: the most that a process
    of the task had for itself."""

    median_ms: float
    p95_ms: float
    gap_ms: float
    journal_bytes: int
    memory_bytes: int
    rows: int


@dataclass
class _Listener:
    """Calls ``begin`` when the job is there. ``killed``: whether a task was."""

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


def latency(library: Library, delivery: str, rate: int, seconds: int) -> Latency:
    """The second quarter of the rows, which come after the job is there; behind the half of them a task is killed."""
    rows = rate * seconds
    stop = {("in", partition): rows // PARTITIONS for partition in range(PARTITIONS)}
    kill = f"source-kafka[0]@{seconds * 3 // 5}s"
    with broker() as found, tempfile.TemporaryDirectory() as folder, _beside() as pool:
        consumed = pool.submit(consume, found.bootstrap, rows)
        listener = _Listener(partial(pool.submit, partial(produce, found.bootstrap, rows, rate)))
        carry_out(job(found.bootstrap, library, delivery, False, stop=stop), folder, listener, kills=(kill,))
        latencies_ms, arrivals = consumed.result(_CONSUMED_S)
        journal, written = _size(found, "journal"), seen(found.bootstrap, "out", arrow=False)
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
def _beside() -> Iterator[ProcessPoolExecutor]:
    """Processes for a producer and a consumer. A consumer does not outlast the block."""
    spawning = multiprocessing.get_context("spawn")
    stop = spawning.Event()
    with ProcessPoolExecutor(2, spawning, _listen_to, (stop,)) as pool:
        try:
            yield pool
        finally:
            stop.set()


def _size(found: BrokerCluster, of: str) -> int:
    """Bytes on disk of the topics whose names have this in them."""
    folders = [folder for node in found.nodes for folder in (node.folder / "logs").glob(f"*{of}*")]
    return sum(file.stat().st_size for folder in folders for file in folder.glob("*.log"))


# ---- the command


def _rates(
    sizes: Mapping[tuple[Library, str, bool], int], peers: Sequence[str], scale: float, repeat: int, root: Path
) -> Mapping[tuple[str, ...], list[float]]:
    """In turn, so that a slow minute of the machine does not hit one only."""
    rates: dict[tuple[str, ...], list[float]] = {}
    for _ in range(repeat):
        for (library, delivery, arrow), rows in sizes.items():
            found = throughput(library, delivery, int(rows * scale), arrow)
            rates.setdefault((library, delivery, "Arrow" if arrow else "JSON"), []).append(found)
        for peer in peers:
            rates.setdefault((peer, "", "JSON"), []).append(throughput_of_peer(peer, int(300_000 * scale), root))
    return rates


def run(peers: tuple[str, ...], scale: float, repeat: int, rate: int, seconds: int, root: Path) -> None:
    sizes: dict[tuple[Library, str, bool], int] = {
        ("confluent-kafka", "causal", False): 1_500_000,
        ("confluent-kafka", "transactional", False): 1_500_000,
        ("confluent-kafka", "idempotent", False): 1_500_000,
        ("kafka-python", "causal", False): 200_000,
        ("confluent-kafka", "causal", True): 10_000_000,
    }
    with connected(None):
        rates = _rates(sizes, peers, scale, repeat, root)
        measured: dict[tuple[Library, str], list[Latency]] = {}
        for _ in range(repeat):
            for delivery in DELIVERIES:
                library = LIBRARIES[0]
                measured.setdefault((library, delivery), []).append(latency(library, delivery, rate, seconds))
    show(
        "From topic to topic",
        ("client", "delivery", "format", "rows/s, median", "all"),
        [
            (*key, f"{statistics.median(all_):,.0f}", ", ".join(f"{r:,.0f}" for r in all_))
            for key, all_ in rates.items()
        ],
    )
    show(
        f"Latency at {rate:,} rows/s, checkpoints every 10 s",
        ("client", "delivery", "median ms", "95% ms", "gap after SIGKILL ms", "journal bytes/row", "memory MB"),
        [
            (
                *key,
                *(_spread(values) for values in zip(*(_shown(of) for of in all_), strict=True)),
            )
            for key, all_ in measured.items()
        ],
    )


def _shown(of: Latency) -> tuple[float, ...]:
    return of.median_ms, of.p95_ms, of.gap_ms, of.journal_bytes / of.rows, of.memory_bytes / 1e6


def _spread(values: Sequence[float]) -> str:
    """The median, then the least and the most."""
    digits = 0 if min(values) > 10 else 1
    return f"{statistics.median(values):,.{digits}f} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


command = click.Command(
    "kafka",
    callback=run,
    params=[
        click.Option(["--peers"], multiple=True, type=click.Choice(list(_PEERS)), help="Other engines, too."),
        click.Option(["--scale"], type=float, default=1.0, show_default=True, help="Of the number of rows."),
        click.Option(["--repeat"], type=click.IntRange(1), default=3, show_default=True, help="Runs of each, in turn."),
        click.Option(["--rate"], type=click.IntRange(100), default=10_000, show_default=True, help="For latency."),
        click.Option(["--seconds"], type=click.IntRange(30), default=40, show_default=True, help="Of a latency run."),
        click.Option(
            ["--root"], type=click.Path(path_type=Path), default="peers", show_default=True,
            help="Where other engines are installed.",
        ),
    ],
    help="Throughput and latency from topic to topic, and what a consumer sees of a killed task.",
)  # fmt: skip
