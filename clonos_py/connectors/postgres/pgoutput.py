"""The messages of logical replication (pgoutput, protocol version 1), decoded in columns.

A message is the change of one row. Those of a piece lie one after the other in one buffer; all that is done row by row
is to join them. The tuples of all of them are walked column by column: at each step the kind and the length of the
value are read for all rows at once.

Reference: PostgreSQL's documentation, "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.connectors.postgres.text_values import parsed
from clonos_py.model.errors import SourceError
from clonos_py.model.tables import CHANGE_COLUMN, DELETE, INSERT, UPDATE

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]

RELATION, BEGIN, COMMIT, TRUNCATE = b"R"[0], b"B"[0], b"C"[0], b"T"[0]
ROWS = frozenset(b"IUD")
_INSERT, _UPDATE = b"I"[0], b"U"[0]
_NEW, _OLD_KEY = b"N"[0], b"K"[0]
_NULL, _UNCHANGED = b"n"[0], b"u"[0]
_HEAD = struct.Struct(">cI")
_KINDS: Any = pa.array([INSERT, UPDATE, DELETE])


class Relation(NamedTuple):
    """A table as the messages behind this one have it. ``keys``: the columns that identify an old row."""

    id: int
    names: Sequence[str]
    keys: frozenset[str]


def relation_of(message: bytes) -> Relation:
    """Of a message that describes a table."""
    (_, id), at = _HEAD.unpack_from(message), 5
    for _ in range(2):  # the names of schema and table
        at = message.index(0, at) + 1
    (count,), at = struct.unpack_from(">h", message, at + 1), at + 3
    names: list[str] = []
    keys: list[str] = []
    for _ in range(count):
        end = message.index(0, at + 1)
        names.append(message[at + 1 : end].decode())
        keys += names[-1:] if message[at] & 1 else []
        at = end + 9
    return Relation(id, names, frozenset(keys))


def truncated_tables(message: bytes) -> Sequence[int]:
    (count,) = struct.unpack_from(">I", message, 1)
    return struct.unpack_from(f">{count}I", message, 6)


class _Tuples(NamedTuple):
    """Tuples of the same table: by column, the kind of each value, and where it lies."""

    kinds: list[Bytes]
    starts: list[Places]
    lengths: list[Places]
    ends: Places

    def with_unchanged(self, old: _Tuples, rows: Places) -> None:
        """Takes values that did not change, and so were not sent again, from the old tuples of these rows."""
        for number, kinds in enumerate(self.kinds):
            unchanged = kinds[rows] == _UNCHANGED
            if unchanged.any():
                which = rows[unchanged]
                kinds[which] = old.kinds[number][unchanged]
                self.starts[number][which] = old.starts[number][unchanged]
                self.lengths[number][which] = old.lengths[number][unchanged]


class RowChanges:
    """Decodes the changes of a table to rows of ``schema``, which ends with the kind of change.

    ``identity``: the columns that identify a row. A change of these deletes the old row and inserts the new one; so
    does each change of a row that nothing identifies."""

    def __init__(self, schema: pa.Schema, identity: frozenset[str], requested: Sequence[str]) -> None:
        self._schema, self._identity, self._requested = schema, identity, requested

    def decoded(self, messages: Sequence[bytes], relation: Relation) -> pa.RecordBatch:
        """The requested columns of the rows. Raises SourceError."""
        if lacking := sorted(self._identity.intersection(relation.names) - relation.keys):
            raise SourceError(
                f"the replica identity of the table has changed: the server does not send the old {lacking[0]!r} any "
                "more, by which rows are identified"
            )
        sizes = np.fromiter(map(len, messages), np.int64, len(messages))
        data = np.frombuffer(b"".join(messages), np.uint8)
        at = np.cumsum(sizes) - sizes
        has_old = (data[at] != _INSERT) & (data[at + 5] != _NEW)
        has_new = (data[at] == _INSERT) | (data[at] == _UPDATE)
        with_old, with_new = np.flatnonzero(has_old), np.flatnonzero(has_new)
        count = len(relation.names)
        old = _walked(data, at[with_old] + 6, count)
        starts = at + 6
        starts[with_old] = old.ends + 1
        new = _walked(data, starts[with_new], count)
        both = np.flatnonzero(has_old & has_new)
        old_of_both, new_of_both = np.searchsorted(with_old, both), np.searchsorted(with_new, both)
        whole = data[at[both] + 5] != _OLD_KEY
        new.with_unchanged(_some(old, old_of_both[whole]), new_of_both[whole])
        moved = np.zeros(len(messages), bool)
        moved[both] = self._moved(data, relation, _some(old, old_of_both), _some(new, new_of_both))
        deletes = np.flatnonzero(moved | ~has_new)
        kinds = np.where((data[at] == _UPDATE) & ~moved, 1, 0)[with_new]
        only_keys = data[at[deletes] + 5] == _OLD_KEY
        return self._rows(
            data, relation, _some(old, np.searchsorted(with_old, deletes)), new, only_keys, kinds,
            np.argsort(np.concatenate([2 * deletes, 2 * with_new + 1]), kind="stable"),
        )  # fmt: skip

    def _moved(self, data: Bytes, relation: Relation, old: _Tuples, new: _Tuples) -> Any:
        """Whether the columns that identify a row have changed."""
        if not self._identity:
            return np.ones(len(old.ends), bool)
        found = np.zeros(len(old.ends), bool)
        for number, name in enumerate(relation.names):
            if name in self._identity:
                before, after = _texts(data, old, number), _texts(data, new, number)
                found |= ~np.asarray(pc.equal(before, after).fill_null(False))
        return found

    def _rows(
        self,
        data: Bytes,
        relation: Relation,
        deleted: _Tuples,
        new: _Tuples,
        only_keys: Any,
        kinds: Any,
        order: Places,
    ) -> pa.RecordBatch:
        """``order``: the places of the rows among the deleted and then the new ones."""
        columns: list[Any] = []
        for name in self._requested:
            field = self._schema.field(name)
            if name == CHANGE_COLUMN:
                numbers = np.concatenate([np.full(len(only_keys), 2), kinds])
                columns.append(_KINDS.take(pa.array(numbers)).take(pa.array(order)))
                continue
            if name not in relation.names:
                raise SourceError(f"column {name!r} is gone: it was dropped or renamed")
            number = relation.names.index(name)
            if (new.kinds[number] == _UNCHANGED).any():
                raise SourceError(
                    f"column {name!r} has a large value that an update left as it was, and which the server then does "
                    "not send: give the table REPLICA IDENTITY FULL"
                )
            old = parsed(_texts(data, deleted, number), field.type, name)
            if not field.nullable and name not in relation.keys:
                old = _filled(old, only_keys, field.type)
            values: Any = pa.concat_arrays([old, parsed(_texts(data, new, number), field.type, name)])
            if values.null_count and not field.nullable:
                raise SourceError(f"column {name!r} has nulls: declare it '| None'")
            columns.append(values.take(pa.array(order)))
        schema = pa.schema([self._schema.field(name) for name in self._requested])
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def _filled(values: Any, which: Any, kind: Any) -> Any:
    """With zeros, or what corresponds to these, in place of values that are not known."""
    if not which.any():
        return values
    return pc.if_else(pa.array(which), _zero(kind), values)


def _zero(kind: Any) -> Any:
    if pa.types.is_string(kind):
        text = ""
    elif pa.types.is_binary(kind):
        text = "\\x"
    elif pa.types.is_boolean(kind):
        text = "f"
    elif pa.types.is_date32(kind):
        text = "1970-01-01"
    elif pa.types.is_timestamp(kind):
        text = "1970-01-01 00:00:00" + ("" if kind.tz is None else "+00")
    else:
        text = "0"
    return parsed(pa.array([text]), kind, "")[0]


def _some(tuples: _Tuples, rows: Places) -> _Tuples:
    return _Tuples(
        [kinds[rows] for kinds in tuples.kinds],
        [starts[rows] for starts in tuples.starts],
        [lengths[rows] for lengths in tuples.lengths],
        tuples.ends[rows],
    )


def _walked(data: Bytes, at: Places, count: int) -> _Tuples:
    """The tuples that begin at these places. Raises SourceError for another number of columns."""
    if len(at) and not ((data[at].astype(np.int64) << 8 | data[at + 1]) == count).all():
        raise SourceError("the server sent rows with other columns than it has described")
    found = _Tuples([], [], [], at + 2)
    place = at + 2
    for _ in range(count):
        kinds = data[place]
        sent = (kinds != _NULL) & (kinds != _UNCHANGED)
        lengths = np.zeros(len(place), np.int64)
        heads = place[sent]
        lengths[sent] = (
            data[heads + 1].astype(np.int64) << 24
            | data[heads + 2].astype(np.int64) << 16
            | data[heads + 3].astype(np.int64) << 8
            | data[heads + 4]
        )
        found.kinds.append(kinds)
        found.starts.append(place + 5)
        found.lengths.append(lengths)
        place = place + 1 + np.where(sent, 4 + lengths, 0)
    return found._replace(ends=place)


def _texts(data: Bytes, tuples: _Tuples, number: int) -> Any:
    """The values of a column as text."""
    starts, lengths = tuples.starts[number], tuples.lengths[number]
    valid = tuples.kinds[number] != _NULL
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    if total >= 1 << 31:
        raise SourceError("the values of a column in one piece have more than 2 GB")
    taken: Any = data[np.repeat(starts - ends + lengths, lengths) + np.arange(total)]
    offsets: Any = np.concatenate([[0], ends]).astype(np.int32)
    nulls: Any = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little").tobytes())
    return pa.Array.from_buffers(pa.string(), len(starts), [nulls, pa.py_buffer(offsets), pa.py_buffer(taken)])
