"""Rows of a stream of NATS JetStream.

A position is the sequence number of the last message that was read. A consumer can begin at any of them, so a replay
reads the same messages again, as long as the limits of the stream keep them.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
from typing_extensions import TypeVar

from clonos_py.connectors.extras import need
from clonos_py.connectors.kafka.formats import Malformed, format_of
from clonos_py.connectors.names import names_of
from clonos_py.connectors.nats.security import NatsSecurity
from clonos_py.connectors.row_reader import PartitionedSource, RowReader
from clonos_py.model.errors import GraphError, SourceError
from clonos_py.model.record import ArrowSchema, Record

if TYPE_CHECKING:
    from nats.aio.client import Client

    from clonos_py.connectors.nats.link import NatsPlace

R = TypeVar("R", bound=Record, default=Any)

FORMATS = ("json", "msgpack", "text", "bytes")
_AHEAD = 8_192
"""So many messages are read ahead at most, and a quarter of them with each request."""
_RETRY_S = 0.5
_MOMENT_S = 0.005


class NatsSource(PartitionedSource[R]):
    """Reads the stream ``stream`` of NATS JetStream at ``servers``, such as "nats://host:4222", several with commas
    between. It needs the extra ``nats``.

    ``schema`` is the class of the rows or their columns; ``format`` is json, msgpack, text or bytes. ``subjects`` are
    filters such as "orders.eu.*". Each is a partition, so that several tasks can read; no message may fit two of them.
    Without them the stream is one partition. ``start`` is the sequence number of the first message. With
    ``stop="latest"`` the source ends with the messages that there are when the job is submitted.

    Nothing is acknowledged: what was read is kept in checkpoints. So the stream must keep its messages (retention by
    limits) until a checkpoint covers them. Messages that are gone when a run resumes end the job, as does a malformed
    message, and servers that are away for longer than a minute.
    """

    def __init__(
        self,
        servers: str,
        stream: str,
        schema: type[R] | ArrowSchema,
        format: Literal["json", "msgpack", "text", "bytes"] = "json",
        *,
        subjects: str | Sequence[str] = (),
        start: int = 1,
        stop: Literal["latest"] | None = None,
        security: NatsSecurity | None = None,
    ) -> None:
        need("NatsSource", "nats", "nats")
        super().__init__(schema)
        if format not in FORMATS:
            raise GraphError(f"NatsSource: unknown format {format!r}; choose one of {', '.join(FORMATS)}")
        if stop not in (None, "latest"):
            raise GraphError(f"NatsSource: stop={stop!r}: it is 'latest' or omitted")
        if start < 1:
            raise GraphError(f"NatsSource: start={start}: sequence numbers begin with 1")
        format_of(format, self.schemas[0], owner="NatsSource")
        self._servers, self._security = tuple(servers.split(",")), security or NatsSecurity()
        self._stream, self._format, self._start, self._stop = stream, format, start, stop
        self._subjects = names_of(subjects)
        self._last: int | None = None
        """The last message to read, which is known once the job is submitted."""

    def partitions(self) -> Sequence[str]:
        from clonos_py.connectors.nats.link import NatsLink, reason

        try:
            link = NatsLink(self._place)
        except Exception as error:
            raise SourceError(f"{self._place}: cannot be reached ({reason(error)})") from error
        try:
            state = link.call(lambda client: client.jetstream().stream_info(self._stream)).state
        except Exception as error:
            raise SourceError(f"{self._place}: no stream {self._stream!r} can be read ({reason(error)})") from error
        finally:
            link.close()
        if self._stop is not None:
            self._last = state.last_seq
        return self._subjects or [">"]

    def open(self, partition: str) -> RowReader:
        return _StreamReader(
            self._place, self._stream, partition, self._format, self.schemas[0], self._start, self._last
        )

    @property
    def _place(self) -> NatsPlace:
        from clonos_py.connectors.nats.link import NatsPlace

        return NatsPlace(self._servers, self._security)


class _StreamReader(RowReader):
    """Reads messages ahead, in the thread of the connection."""

    def __init__(
        self, place: NatsPlace, stream: str, subject: str, format: str, schema: pa.Schema, start: int, last: int | None
    ) -> None:
        from clonos_py.connectors.nats.link import NatsLink

        self._stream, self._subject, self._first, self._last = stream, subject, start - 1, last
        self._what = f"{place}, stream {stream}"
        self._format = format_of(format, schema, owner="NatsSource")
        self._schema = schema
        self._link = NatsLink(place)
        self._stop_reading: Any = None
        self._at = -1
        """The position after the last message that was taken."""
        self._ahead = _Ahead()

    def read(self, position: int, rows_max: int) -> tuple[pa.RecordBatch, int] | None:
        position = max(position, self._first)
        if position != self._at:
            self._begin(position)
        found = self._ahead.take(rows_max, self._last)
        if found:
            self._at = found[-1][0]
            return self._decoded(found), self._at
        if self._last is not None and self._ahead.has_ended(self._last):
            return None
        return pa.RecordBatch.from_pylist([], schema=self._schema), position if position > self._first else 0

    def wait_for_rows(self) -> bool:
        time.sleep(_MOMENT_S)
        return self._ahead.awaits_messages()

    def close(self) -> None:
        if self._stop_reading is not None:
            self._stop_reading()
        self._link.close()

    def _begin(self, position: int) -> None:
        if self._stop_reading is not None:
            self._stop_reading()
        self._at, self._ahead = position, _Ahead()
        ahead = self._ahead
        self._stop_reading = self._link.start(lambda client: self._read_ahead(client, position, ahead))

    def _decoded(self, found: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
        try:
            return self._format.decode([value for _, value in found]).rows
        except Malformed as problem:
            raise SourceError(
                f"{self._what}: message {found[problem.message][0]} is malformed: {problem}; read it as bytes, or "
                "start behind it with --fresh"
            ) from problem

    async def _read_ahead(self, client: Client, position: int, ahead: _Ahead) -> None:
        """Reads on until it is cancelled. Servers may be away for a while, and forget the consumer."""
        from nats.errors import Error

        from clonos_py.connectors.nats.link import PATIENCE_S, reason

        at, failing_since = position, None
        loop = asyncio.get_running_loop()
        while True:
            try:
                await self._check(client, at)
                async for sequence, value in self._messages(client, at, ahead):
                    ahead.add(sequence, value)
                    at, failing_since = sequence, None
            except SourceError as problem:
                ahead.fail(problem)
                return
            except (Error, OSError) as error:
                failing_since = loop.time() if failing_since is None else failing_since
                if loop.time() - failing_since > PATIENCE_S:
                    ahead.fail(SourceError(f"{self._what}: cannot be read ({reason(error)})"))
                    return
                await asyncio.sleep(_RETRY_S)

    async def _check(self, client: Client, at: int) -> None:
        """Raises SourceError if messages that were to be read are gone."""
        state = (await client.jetstream().stream_info(self._stream)).state
        if at > self._first and state.first_seq > at + 1:
            raise SourceError(
                f"{self._what}: the messages after {at} are gone, the first one is {state.first_seq}: keep them for "
                "longer than the job may lag behind (limits of the stream), and start over with --fresh"
            )

    async def _messages(self, client: Client, at: int, ahead: _Ahead) -> AsyncIterator[tuple[int, bytes]]:
        from nats.errors import TimeoutError
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        begin = ConsumerConfig(
            deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
            opt_start_seq=at + 1,
            ack_policy=AckPolicy.NONE,
            inactive_threshold=300.0,
            mem_storage=True,
        )
        pulled = await client.jetstream().pull_subscribe(self._subject, stream=self._stream, config=begin)
        try:
            while True:
                await ahead.wait_for_room()
                try:
                    messages = await pulled.fetch(_AHEAD // 4, timeout=0.5)
                except TimeoutError:
                    ahead.idle((await pulled.consumer_info()).num_pending == 0)
                    continue
                for message in messages:
                    yield message.metadata.sequence.stream, message.data
        finally:
            await pulled.unsubscribe()


class _Ahead:
    """Messages that were read ahead. One thread adds, the other takes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._messages: deque[tuple[int, bytes]] = deque()
        self._problem: SourceError | None = None
        self._reached, self._is_at_end = 0, False

    def add(self, sequence: int, value: bytes) -> None:
        with self._lock:
            self._messages.append((sequence, value))
            self._reached, self._is_at_end = sequence, False

    def idle(self, at_end: bool) -> None:
        """There are no messages for now; ``at_end``: the server has no others."""
        self._is_at_end = at_end

    def fail(self, problem: SourceError) -> None:
        self._problem = problem

    async def wait_for_room(self) -> None:
        while len(self._messages) > _AHEAD:
            await asyncio.sleep(0.005)

    def take(self, count: int, last: int | None) -> list[tuple[int, bytes]]:
        """The next messages, none behind ``last``. Raises SourceError."""
        with self._lock:
            found: list[tuple[int, bytes]] = []
            while self._messages and len(found) < count and (last is None or self._messages[0][0] <= last):
                found.append(self._messages.popleft())
        if not found and self._problem is not None:
            raise self._problem
        return found

    def awaits_messages(self) -> bool:
        """Whether there may be messages that were not taken. A problem is raised with the next ``take``."""
        with self._lock:
            return bool(self._messages) or self._problem is not None or not self._is_at_end

    def has_ended(self, last: int) -> bool:
        with self._lock:
            behind = bool(self._messages) and self._messages[0][0] > last
            return behind or (not self._messages and (self._reached >= last or self._is_at_end))
