"""Counts the bytes of determinants that causal logging sends, per row and per frame, at depth 1, 2 and full.

All tasks of a deep graph run in this process, on the wall clock. The logs as they are sent are compared with a plain
encoding, in which every determinant, and every single arrival of a frame, is a separate array. ``again`` is the share
of log bytes that the receiver already had from another connection. ``of all`` is the share of log bytes in all bytes
that are sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import click
import msgspec

from clonos_py.causal.codec import LogCodec
from clonos_py.causal.determinants import Determinant
from clonos_py.causal.determinants import InputOrder as Arrivals
from clonos_py.channel.frames import PassThrough
from clonos_py.checkpoint.memory import MemoryStore
from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.connectors import BlackholeSink
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.running import QueryRun
from clonos_py.link.instructions import SendFrame
from clonos_py.model.segments import LogSegment
from clonos_py.plan.physical import plan
from clonos_py.runtime.executors.link import DataConnections
from clonos_py.runtime.local.clock import RealTime
from clonos_py.runtime.local.run import local_environment
from clonos_py.runtime.ray.wire_codec import encode_header
from clonos_py.runtime.run_settings import limits, policy, raise_for
from clonos_py.runtime.world.layers import Layers
from clonos_py.runtime.world.world import World, WorldSettings
from clonos_py.settings.definitions import Settings

_QUERIES = ("chain", "wide_chain")
_DEPTHS = ("1", "2", "full")


@dataclass
class DeterminantTally:
    """Totals of everything that was sent between tasks."""

    frames: int = 0
    rows: int = 0
    data_bytes: int = 0
    log_bytes: int = 0
    plain_bytes: int = 0
    again_bytes: int = 0
    _plain: dict[tuple[int, int], int] = field(default_factory=dict)
    _codecs: dict[int, LogCodec] = field(default_factory=dict)
    _held: set[tuple[int, int, int]] = field(default_factory=set)

    def count(self, receiver: int, request: SendFrame, data_bytes: int) -> None:
        """Counts one frame that is sent to the process ``receiver``."""
        header = request.header
        self.frames += 1
        self.rows += header.rows
        self.data_bytes += data_bytes
        self.log_bytes += len(encode_header(header)) - len(encode_header(msgspec.structs.replace(header, delta=[])))
        for segment in header.delta:
            self._count_segment(receiver, segment)

    def _count_segment(self, receiver: int, segment: LogSegment) -> None:
        key = segment.log, segment.start
        if key not in self._plain:  # a task sends its own log first, and in order, so the codec can decode it
            codec = self._codecs.setdefault(segment.log, LogCodec())
            envelope = len(msgspec.msgpack.encode(segment)) - len(segment.payload)
            self._plain[key] = envelope + sum(plain_bytes(determinant) for determinant in codec.load(segment))
        self.plain_bytes += self._plain[key]
        if (receiver, *key) in self._held:
            self.again_bytes += len(msgspec.msgpack.encode(segment))
        self._held.add((receiver, *key))


def plain_bytes(determinant: Determinant) -> int:
    """The size of a determinant in the plain encoding: one array for each event."""
    if isinstance(determinant, Arrivals):
        return determinant.count * len(msgspec.msgpack.encode(Arrivals(determinant.channel, 1)))
    return len(msgspec.msgpack.encode(determinant))


class CountedConnections:
    """The connections of a process. Every frame is counted when it is sent."""

    def __init__(self, inner: DataConnections, count: Callable[[SendFrame], None]) -> None:
        self._inner, self._count = inner, count
        self.connect, self.disconnect, self.send_ack = inner.connect, inner.disconnect, inner.send_ack

    def send_frame(self, request: SendFrame) -> None:
        self._count(request)
        self._inner.send_frame(request)


def measure(query: str, events: int, settings: Settings) -> DeterminantTally:
    """Runs a query to its end and returns the totals."""
    planned = plan(build(query, QueryRun(query, events).source(settings), BlackholeSink()), settings)
    clock, store, tally, codec = RealTime(), MemoryStore(planned.job), DeterminantTally(), PassThrough()

    def count(request: SendFrame) -> None:
        connection = world.network.connections.get(request.connection)
        if connection is not None:
            tally.count(
                connection.receiver.number, request, codec.size_bytes(request.body) if request.body is not None else 0
            )

    world = World(
        planned,
        store,
        clock,
        local_environment(store),
        WorldSettings(policy(settings), limits(settings), settings.linger_us),
        layers=Layers(connections=lambda process, inner: CountedConnections(inner, count)),
    )
    raise_for(world.run())
    return tally


def rows(queries: tuple[str, ...], events: int, given: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """One line of the table for each query and sharing depth."""
    for query in queries:
        for depth in _DEPTHS:
            settings = resolved({"parallelism": 4, "standbys": 0}, {**given, "sharing_depth": depth})
            tally = measure(query, events, settings)
            sent = tally.data_bytes + tally.log_bytes
            yield (
                query,
                depth,
                f"{tally.frames:,}",
                *(f"{size / tally.rows:.4f}" for size in (tally.plain_bytes, tally.log_bytes)),
                *(f"{size / tally.frames:.1f}" for size in (tally.plain_bytes, tally.log_bytes)),
                f"{tally.again_bytes / max(tally.log_bytes, 1):.0%}",
                f"{tally.log_bytes / sent:.3%}",
                f"{tally.again_bytes / sent:.3%}",
            )


def run(queries: tuple[str, ...], events: int, **given: Any) -> None:
    """Measures and prints."""
    unknown = [query for query in queries if query not in _QUERIES]
    if unknown:
        raise click.BadParameter(f"{unknown[0]} is not a deep graph: choose from {', '.join(_QUERIES)}")
    each = ("plain B/row", "B/row", "plain B/frame", "B/frame")
    headings = ("query", "depth", "frames", *each, "again", "of all", "again of all")
    show("Determinants sent, 5 shuffles, 4 tasks each", headings, rows(queries or _QUERIES, events, given))


command = click.Command(
    "determinants",
    callback=run,
    params=[
        click.Argument(["queries"], nargs=-1),
        click.Option(["--events"], type=click.IntRange(1), default=2_000_000, show_default=True, help="Events read."),
        *setting_options("parallelism", "frame_rows", "linger", "checkpoint_interval"),
    ],
    help="Bytes of determinants per record and frame on a deep graph at depth 1, 2 and full, against a plain encoding.",
)
