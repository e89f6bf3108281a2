"""One connection that follows a slot: pieces of transactions, as messages of the server.

psycopg has no interface to the replication protocol. It gives access to libpq, which has what is needed: to receive
messages (``get_copy_data``) and to send some (``put_copy_data``).
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Iterator
from typing import NamedTuple

import psycopg
from psycopg import pq, sql

from clonos_py.connectors.postgres.log_place import PIECE_ROWS, LogPlace
from clonos_py.connectors.postgres.pgoutput import (
    BEGIN,
    COMMIT,
    RELATION,
    ROWS,
    TRUNCATE,
    Relation,
    relation_of,
    truncated_tables,
)
from clonos_py.connectors.postgres.server import Connection, PostgresAddress
from clonos_py.connectors.postgres.slot import as_text
from clonos_py.model.errors import SourceError

_DATA, _KEEPALIVE = b"w"[0], b"k"[0]
_BODY = 25
"""Where the message of the plugin begins in one of the protocol."""
_STATUS = struct.Struct(">cQQQQ?")
_ADDRESS = struct.Struct(">Q")
_REPORT_S = 5.0
"""How often the server gets a status; it ends connections from which it hears nothing for wal_sender_timeout (60 s)."""
_PIECE_BYTES = 8 << 20
_MESSAGES_AT_ONCE = 2_000


class Piece(NamedTuple):
    """Changes of one transaction, in order. ``committed``: where its commit is in the log; ``end``: where that ends, or
    0 if further pieces follow."""

    messages: list[bytes]
    relation: Relation
    committed: int
    end: int

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self.messages))


class Replication:
    """Receives the changes of ``table``, an id, from a place on. Those that belong to transactions which were committed
    at or behind ``stop`` are left out."""

    def __init__(self, address: PostgresAddress, name: str, table: int, place: LogPlace, stop: int | None) -> None:
        """``name``: what the server shows the connection as. Raises psycopg.Error."""
        self._connection: Connection = address.connect(name, replication="database")
        self._libpq = self._connection.pgconn
        self._table, self._stop = struct.pack(">I", table), stop
        self._skipped = place.pieces
        """The number of pieces to leave out: they were read before."""
        self._messages: list[bytes] = []
        self._size_bytes = 0
        self._relation: Relation | None = None
        self._within = False
        """Whether a transaction has begun, of which there is more to come."""
        self._committed = 0
        self._went_on = False
        """Whether pieces of the transaction came before."""
        self._reported_s = 0.0
        self.reached = place.lsn
        """All transactions that end before this place in the log have been received."""
        self.log_end = place.lsn
        """The end of the server's log, as far as it has said."""
        self.ended = False
        """Whether all transactions before the stop have been received."""

    @property
    def process(self) -> int:
        """The id of the server's process."""
        return self._libpq.backend_pid

    def start(self, slot: str, publication: str, place: LogPlace) -> None:
        """Raises psycopg.Error."""
        names = sql.Literal('"' + publication.replace('"', '""') + '"').as_string(self._connection)
        options = f"(proto_version '1', publication_names {names})"
        command = f'START_REPLICATION SLOT "{slot}" LOGICAL {as_text(place.lsn)} {options}'
        result = self._libpq.exec_(command.encode())
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise psycopg.errors.error_from_result(result)

    def close(self) -> None:
        self._connection.close()

    def pieces(self) -> Iterator[Piece]:
        """The pieces that have arrived. Raises psycopg.Error if the connection is lost, SourceError for a change that
        cannot be followed."""
        for _ in range(_MESSAGES_AT_ONCE):
            size, message = self._libpq.get_copy_data(1)
            if size == 0:
                self._libpq.consume_input()
                size, message = self._libpq.get_copy_data(1)
            if size == 0 or self.ended:
                return
            if size < 0:
                self._raise_the_end()
            if message[0] == _DATA:
                yield from self._change(bytes(message))
            elif message[0] == _KEEPALIVE:
                self._alive(bytes(message))

    def wait(self, seconds: float, other: int) -> bool:
        """Waits until there is something to receive, or ``other`` can be read, which it returns."""
        return other in select.select([self._libpq.socket, other], [], [], seconds)[0]

    def report(self, confirmed: int, ask: bool = False) -> None:
        """Sends the status: changes before ``confirmed`` are not needed any more. ``ask``: the server is to say at once
        how far it has come. Raises psycopg.Error."""
        self._reported_s = time.monotonic()
        clock_us = round((time.time() - 946_684_800) * 1e6)
        self._libpq.put_copy_data(_STATUS.pack(b"r", self.reached, confirmed, confirmed, clock_us, ask))
        self._libpq.flush()

    @property
    def report_is_due(self) -> bool:
        return time.monotonic() - self._reported_s > _REPORT_S

    def _raise_the_end(self) -> None:
        result = self._libpq.get_result()
        if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
            raise psycopg.errors.error_from_result(result)
        raise psycopg.OperationalError("the server has ended the stream of changes")

    def _alive(self, message: bytes) -> None:
        (self.log_end,) = _ADDRESS.unpack_from(message, 1)
        if not self._within:
            self.reached = max(self.reached, self.log_end)
            self.ended = self._stop is not None and self.reached >= self._stop
        if message[17]:
            self._reported_s = 0.0

    def _change(self, message: bytes) -> Iterator[Piece]:
        kind = message[_BODY]
        if kind in ROWS:
            if message[_BODY + 1 : _BODY + 5] == self._table:
                self._messages.append(message[_BODY:])
                self._size_bytes += len(message)
                if len(self._messages) >= PIECE_ROWS or self._size_bytes >= _PIECE_BYTES:
                    yield from self._cut(0)
        elif kind == BEGIN:
            (self._committed,) = _ADDRESS.unpack_from(message, _BODY + 1)
            self._within = True
            self.ended = self._stop is not None and self._committed >= self._stop
        elif kind == COMMIT:
            (end,) = _ADDRESS.unpack_from(message, _BODY + 10)
            self._within = False
            yield from self._cut(end)
            self.reached = end
        elif kind == RELATION and message[_BODY + 1 : _BODY + 5] == self._table:
            relation = relation_of(message[_BODY:])
            if self._messages and relation != self._relation:
                yield from self._cut(0)
            self._relation = relation
        elif kind == TRUNCATE and struct.unpack(">I", self._table)[0] in truncated_tables(message[_BODY:]):
            raise SourceError("the table was truncated, which does not say which rows are gone: use DELETE instead")
        (self.log_end,) = _ADDRESS.unpack_from(message, 9)

    def _cut(self, end: int) -> Iterator[Piece]:
        """The piece of the messages so far. The last one of a large transaction may have none."""
        if self._messages or (end and self._went_on):
            assert self._relation is not None
            piece = Piece(self._messages, self._relation, self._committed, end)
            self._messages, self._size_bytes = [], 0
            if self._skipped:
                self._skipped -= 1
            else:
                yield piece
        self._went_on = end == 0
