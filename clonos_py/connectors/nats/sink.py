"""Exactly-once messages in a stream of NATS JetStream.

The rows between two checkpoints are kept in the checkpoint (``row_committer``). A commit publishes each with an id that
is the same whenever the commit is repeated (``Nats-Msg-Id``), by which the stream drops repetitions, and then stores
the checkpoint in a bucket of keys and values. So a commit that was done is not done again, and one that was interrupted
is repeated without duplicates within the ``duplicate_window`` of the stream.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa
import xxhash

from clonos_py.connectors.extras import need
from clonos_py.connectors.kafka.formats import format_of
from clonos_py.connectors.nats.security import NatsSecurity
from clonos_py.connectors.nats.source import FORMATS
from clonos_py.connectors.row_committer import CommitId, RowCommitter, TransactionalSink
from clonos_py.model.errors import GraphError, SinkError
from clonos_py.model.operators import Sink

if TYPE_CHECKING:
    from nats.aio.client import Client

    from clonos_py.connectors.nats.link import NatsPlace

BUCKET = "clonos-commits"
_TOGETHER = 256
"""So many messages are on their way to the server at once."""
_ANSWER_S = 10.0
_COMMIT_S = 600.0
_TRIES = 6


class NatsSink(TransactionalSink):
    """Publishes rows to ``subject``, which a stream of NATS JetStream takes, exactly once, when their checkpoint is
    complete. It needs the extra ``nats``.

    ``format`` is json, msgpack, text or bytes. Messages have ids (``Nats-Msg-Id``), and the bucket ``clonos-commits``
    has the last checkpoint of each task. If a task dies in the middle of a commit, this is repeated: the
    ``duplicate_window`` of the stream (two minutes, unless it says otherwise) must be longer than that takes.
    """

    def __init__(
        self,
        servers: str,
        subject: str,
        format: Literal["json", "msgpack", "text", "bytes"] = "json",
        *,
        security: NatsSecurity | None = None,
    ) -> None:
        need("NatsSink", "nats", "nats")
        if format not in FORMATS:
            raise GraphError(f"NatsSink: unknown format {format!r}; choose one of {', '.join(FORMATS)}")
        self._servers, self._security = tuple(servers.split(",")), security or NatsSecurity()
        self._subject, self._format = subject, format
        self.place = f"subject {subject}"

    def create(self, schema: pa.Schema) -> Sink:
        format_of(self._format, schema, self._subject)
        return super().create(schema)

    def open(self, schema: pa.Schema) -> RowCommitter:
        from clonos_py.connectors.nats.link import NatsPlace

        return _Publisher(NatsPlace(self._servers, self._security), self._subject, self._format, schema)


class _Publisher(RowCommitter):
    def __init__(self, place: NatsPlace, subject: str, format: str, schema: pa.Schema) -> None:
        from clonos_py.connectors.nats.link import NatsLink, reason

        self._what = f"{place}, subject {subject}"
        self._subject, self._format = subject, format_of(format, schema, subject)
        try:
            self._link = NatsLink(place)
        except Exception as error:
            raise SinkError(f"{self._what}: cannot be reached ({reason(error)})") from error

    def commit(self, commit: CommitId, rows: pa.Table) -> None:
        from clonos_py.connectors.nats.link import reason

        values = [value for batch in rows.to_batches() for value in self._format.encode(batch)]
        try:
            self._link.call(lambda client: self._publish(client, commit, values), _COMMIT_S)
        except Exception as error:
            raise SinkError(
                f"{self._what}: cannot be published ({reason(error)}): is there a stream that takes this subject, and "
                "may the user write to it and to the bucket clonos-commits?"
            ) from error

    def close(self) -> None:
        self._link.close()

    async def _publish(self, client: Client, commit: CommitId, values: list[bytes]) -> None:
        owner = xxhash.xxh3_128_hexdigest(commit.owner.encode())
        marks = await _bucket(client)
        if await _mark(marks, owner) >= commit.checkpoint:
            return
        for start in range(0, len(values), _TOGETHER):
            part = values[start : start + _TOGETHER]
            ids = [f"{owner}.{commit.checkpoint}.{start + number}" for number in range(len(part))]
            await asyncio.gather(*(self._sent(client, value, id) for value, id in zip(part, ids, strict=True)))
        await marks.put(owner, b"%d" % commit.checkpoint)

    async def _sent(self, client: Client, value: bytes, id: str) -> None:
        """Waits for the answer of the stream. Without one the message is sent again, with the same id."""
        from nats.errors import TimeoutError

        for tried in range(_TRIES):
            try:
                await client.jetstream().publish(self._subject, value, _ANSWER_S, headers={"Nats-Msg-Id": id})
                return
            except TimeoutError:
                if tried == _TRIES - 1:
                    raise


async def _bucket(client: Client) -> Any:
    from nats.js.errors import NotFoundError

    try:
        return await client.jetstream().key_value(BUCKET)
    except NotFoundError:
        return await client.jetstream().create_key_value(bucket=BUCKET)


async def _mark(marks: Any, owner: str) -> int:
    from nats.js.errors import KeyNotFoundError

    try:
        return int((await marks.get(owner)).value)
    except KeyNotFoundError:
        return -1
