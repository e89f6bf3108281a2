"""The two-witness job: two sinks of one nondeterministic job, whose rows must agree after any recovery.

Every record gets a random number, a time and an HTTP answer that the server never gives twice. It then flows over two
paths, one of them through a keyed shuffle, into two file sinks, mostly a causal one and a transactional one. If a
recovery changed a value that was visible already, the two sinks would disagree."""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pyarrow as pa

from clonos_py import Context, Job, Process, Record, state
from clonos_py.bench.paced import PacedSource
from clonos_py.connectors import FileSink, read_results
from clonos_py.model.connectors import SinkDefinition, SourceDefinition
from clonos_py.model.operators import End, Read, Source, Wait

PARTITIONS = 2
TASKS = ("numbers[0]", "numbers[1]", "enrich[0]", "enrich[1]", "left[0]", "left[1]", "rank[0]", "rank[1]")
"""All tasks at parallelism 2."""
FIRST_TASKS = TASKS[::2]
"""One task of each operator."""
KEYS = 13


class Number(Record):
    id: int
    key: int


class Enriched(Number):
    random: float
    time: int
    answer: int


class RankedNumber(Enriched):
    rank: int


class Numbers(PacedSource):
    def __init__(self, total: int, rate: float, unpaced: str) -> None:
        super().__init__(total, rate, PARTITIONS, most=64)
        self._unpaced, self._is_unpaced = unpaced, False

    def poll(self, now: int) -> Read | Wait | End:
        self._check_pace()
        return super().poll(now)

    def reread(self, partition: int, start: int, stop: int) -> Read:
        self._check_pace()
        return super().reread(partition, start, stop)

    def due_rows(self, elapsed_us: float) -> int:
        return self._total if self._is_unpaced else super().due_rows(elapsed_us)

    def _check_pace(self) -> None:
        if self._is_unpaced or not os.path.exists(self._unpaced):
            return
        self._is_unpaced = True
        with open(self._unpaced) as file:
            total = file.read()
        if total and self._partition < PARTITIONS:
            self._total = int(total) // PARTITIONS

    def rows(self, partition: int, start: int, stop: int) -> pa.RecordBatch:
        ids = [n * PARTITIONS + partition for n in range(start, stop)]
        return pa.record_batch({"id": ids, "key": [i % KEYS for i in ids]}, schema=Number.schema())


class PacedNumbers(SourceDefinition):
    """Gives ``total`` numbers, ``rate`` a second in each partition. ``unpaced``: once this file exists, all are due. A
    number in it is a new total, which must be above what the rate allows until then."""

    def __init__(self, total: int, rate: float, unpaced: str = "") -> None:
        self.schemas = (Number.schema(),)
        self._total, self._rate, self._unpaced = total, rate, unpaced

    def create(self, columns: tuple[tuple[str, ...] | None, ...], read_rows: int | None = None) -> Source:
        return Numbers(self._total // PARTITIONS, self._rate, self._unpaced)


class Rank(Process[Enriched, RankedNumber]):
    """Numbers the rows of a key in the order of their arrival."""

    seen: int = state(0)

    def on_row(self, row: Enriched, ctx: Context) -> Iterator[RankedNumber]:
        self.seen += 1
        yield RankedNumber.extend(row, rank=self.seen)


def witnesses(server: str, folder: str, total: int, rate: float, causal: bool = True, unpaced: str = "") -> Job:
    """The job with file sinks. ``causal``: one sink is causal and one transactional, else both are transactional.
    ``unpaced``: see ``PacedNumbers``."""
    left = FileSink(f"{folder}/left", format="jsonl", delivery="causal" if causal else "transactional")
    right = FileSink(f"{folder}/right", format="jsonl")
    return witnesses_between(PacedNumbers(total, rate, unpaced), left, right, server)


def witnesses_between(source: SourceDefinition, left: SinkDefinition, right: SinkDefinition, server: str) -> Job:
    """The job with a given source and given sinks. ``server``: the address of an ``answer_server``."""

    def enrich(number: Number, ctx: Context) -> Enriched:
        answer = int(ctx.http.get(f"{server}/{number.id}", timeout="5s").text)
        return Enriched.extend(number, random=ctx.random.random(), time=ctx.time.now(), answer=answer)

    job = Job("witnesses")
    enriched = job.source(source).named("numbers").rebalance().map(enrich).named("enrich")
    enriched.rebalance().sink(left).named("left")
    ranked = enriched.key_by("key").process(Rank).named("rank")
    ranked.sink(right).named("right")
    return job


def wrong(folder: str, total: int) -> str | None:
    """What the two sinks disagree on. None if no row is missing, duplicate or different."""
    left, right = (list(read_results(f"{folder}/{name}")) for name in ("left", "right"))
    return disagreement(left, right, total)


def disagreement(left: Sequence[dict[str, Any]], right: Sequence[dict[str, Any]], total: int) -> str | None:
    """As ``wrong``, for the given rows of the two sinks."""
    for name, rows in (("left", left), ("right", right)):
        if sorted(row["id"] for row in rows) != list(range(total)):
            return f"{name} has {len(rows)} records, {len({row['id'] for row in rows})} different ones, of {total}"
    by_id = {row["id"]: row for row in left}
    differing = [row["id"] for row in right if by_id[row["id"]] != {k: v for k, v in row.items() if k != "rank"}]
    if differing:
        return f"the witnesses differ on {differing[:10]}"
    for key in range(KEYS):
        ranks = sorted(row["rank"] for row in right if row["key"] == key)
        if ranks != list(range(1, len(ranks) + 1)):
            return f"the ranks of key {key} are not those of its rows in some order"
    return None


class AnswerServer(BaseHTTPRequestHandler):
    """Answers every request with a number that it never gave before."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # header and body in one packet
    disable_nagle_algorithm = True
    numbers = itertools.count(1)

    def answer(self) -> int:
        return next(self.numbers)

    def do_GET(self) -> None:
        body = str(self.answer()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):  # the client was killed
            super().handle()

    def log_message(self, format: str, *args: object) -> None:
        """Logs nothing."""


@contextlib.contextmanager
def answer_server(handler: type[AnswerServer] = AnswerServer) -> Iterator[str]:
    """Runs an HTTP server that answers every request with a new number. Yields its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
