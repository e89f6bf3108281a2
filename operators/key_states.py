"""The per-key state of a process function (cells), and its snapshots.

A snapshot is a log of encoded cells. Each snapshot appends the keys touched since the last one as a chunk, and a key
that has become empty as a tombstone. Small chunks are merged eight at a time until they are large. When the log has
twice as many entries as there are keys, it is rewritten.

The order of entries does not depend on whether the task was restored before: a replay can compare chunks.
"""

from __future__ import annotations

import typing
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from decimal import Decimal
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from clonos_py.columns.canonical import canonical
from clonos_py.columns.grouping import group
from clonos_py.columns.views import concat, plain
from clonos_py.model.errors import ClonosError, GraphError, UserCodeError, shown
from clonos_py.model.moments import python_values
from clonos_py.model.numpy_values import plain_value
from clonos_py.model.record import Record, field_types
from clonos_py.model.state import GROUP_COLUMN, Chunk, unchanged
from clonos_py.operators.keyed_chunks import mergeable
from clonos_py.operators.process_functions import KeyedFunction
from clonos_py.operators.process_state import Cell, CollectionState
from clonos_py.operators.timed_collections import TimedList, TimedMap

_SLACK_ROWS = 1_024
_LOOSE = (Any, object, list, dict, set, frozenset, tuple)
"""Types that do not declare the types of their contents."""
_REFUSED = (TypeError, ValueError, OverflowError, RecursionError)
"""What the encoder raises for a value that it does not take."""
_FIELDS: list[pa.Field[Any]] = [
    pa.field(GROUP_COLUMN, pa.int32()),
    pa.field("key", pa.binary()),
    pa.field("state", pa.binary()),
]
_SCHEMA = pa.schema(_FIELDS)


class EncodedCell(msgspec.Struct, array_like=True):
    """The state of a key, as it is stored in the column ``state``."""

    values: dict[str, msgspec.Raw]
    written: dict[str, int | list[int]]
    """The time of writing of a value with a ttl; of each entry, if its entries expire one by one."""
    timers: dict[str, int]


class KeyStates:
    """Cells by encoded key, in the order in which the keys arrived."""

    def __init__(self, process: type[KeyedFunction]) -> None:
        self._process = process
        self._types = value_types(process)
        self._loose = {name for name, type_ in self._types.items() if _has(type_, _LOOSE)}
        self._put_back = self._loose | {
            name for name, type_ in self._types.items() if _has(type_, (datetime,), inside=True)
        }
        self._records = {name for name, type_ in self._types.items() if _holds_records(type_)}
        declared = process.declared_states
        self._collections = {name for name, found in declared.items() if isinstance(found, CollectionState)}
        self.cells: dict[bytes, Cell] = {}
        self._touched: dict[bytes, Cell] = {}
        self._chunks: list[Chunk] = []
        self._outdated = False
        """Whether the chunks hold attributes, fields of records or timers that are not declared any more."""
        self._as_stored = True

    def cell(self, key: bytes, group: int) -> Cell:
        """The cell of a key, created if necessary. Marks it as changed."""
        cell = self.cells.get(key)
        if cell is None:
            cell = self.cells[key] = Cell(key, group)
        self.touch(cell)
        return cell

    def touch(self, cell: Cell) -> None:
        """Marks a cell as changed, before the change."""
        self._touched[cell.key] = cell
        self._as_stored = False

    def expire(self, now: int) -> None:
        """Removes values whose ttl has expired."""
        limited = [state for state in self._process.declared_states.values() if state.ttl_us is not None]
        expired = []
        for cell in self.cells.values() if limited else ():
            dropped = [state.drop_expired(cell, now) for state in limited]
            if any(dropped):
                expired.append(cell)
        for cell in sorted(expired, key=attrgetter("key")):
            self.touch(cell)

    def chunks(self) -> list[Chunk]:
        """The snapshot. Raises UserCodeError naming an attribute whose value cannot be stored, and the key. A value is
        not looked at before, unless failures are caught: a check costs more than most functions."""
        changed = [cell for cell in self._touched.values() if cell.stored or not cell.empty]
        for cell in self._touched.values():
            if cell.empty:
                del self.cells[cell.key]
        self._touched = {}
        logged = sum(chunk.rows.num_rows for chunk in self._chunks) + len(changed)
        if self._outdated or logged > 2 * len(self.cells) + _SLACK_ROWS:
            self._chunks, self._outdated = [], False
            changed = [cell for _, cell in sorted(self.cells.items())]
        if changed:
            self._chunks.append(self._chunk(changed))
        while count := mergeable(self._chunks):
            self._chunks[-count:] = [_last_of_each_key(self._chunks[-count:])]
        return list(self._chunks)

    def load(self, chunks: Iterable[Chunk]) -> None:
        """Replaces all keys by those of a snapshot, whose chunks come in the order in which they were written. Chunks
        that are already loaded are reused: a standby loads every checkpoint. If attributes or fields of records were
        removed, the next snapshot holds all keys without them, so that they do not come back if they are declared once
        more."""
        loaded = list(chunks)
        same = unchanged(self._chunks, loaded) if self._as_stored else 0
        if 0 < same < len(self._chunks) and not _keys(self._chunks[same:]) <= _keys(loaded[same:]):
            same = 0  # a key of a dropped chunk is not in the new ones: load everything
        if not same:
            self.cells.clear()
            self._outdated = False
        for chunk in loaded[same:]:
            columns = (chunk.rows.column(name).to_pylist() for name in _SCHEMA.names)
            for key_group, key, state in zip(*columns, strict=True):
                self.cells.pop(key, None)
                if state is not None:
                    self.cells[key] = self._decoded(key, key_group, state)
        self._chunks, self._touched, self._as_stored = loaded, {}, True

    def encoded(self, cell: Cell) -> bytes:
        """Encodes a whole cell. Raises UserCodeError naming an attribute whose value cannot be stored."""
        values = {name: self._checked(cell, name) for name in cell.values}
        written: dict[str, Any] = dict(cell.written)
        for name in self._collections & cell.values.keys():
            if isinstance(value := cell.values[name], TimedList | TimedMap):
                written[name] = value.times
        return msgspec.msgpack.encode((values, written, cell.timers))

    def revert(self, cell: Cell, state: bytes) -> dict[str, int]:
        """Resets a cell to its values when it was encoded. Returns its timers of that time; the caller sets them."""
        before = self._decoded(cell.key, cell.group, state)
        cell.values, cell.written = before.values, before.written
        return before.timers

    def _chunk(self, cells: list[Cell]) -> Chunk:
        columns: list[pa.Array[Any]] = [
            pa.array([cell.group for cell in cells], pa.int32()),
            pa.array([cell.key for cell in cells], pa.binary()),
            pa.array([None if cell.empty else self._stored(cell) for cell in cells], pa.binary()),
        ]
        for cell in cells:
            cell.stored = True
        return Chunk(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA))

    def _stored(self, cell: Cell) -> bytes:
        try:
            return self.encoded(cell)
        except UserCodeError as error:
            key = shown(msgspec.msgpack.decode(cell.key))
            raise UserCodeError(
                f"{error.text}; found at a checkpoint, in the state of key {key:.200}: with .catch() the row that "
                "puts it there becomes a dead letter"
            ) from error

    def _checked(self, cell: Cell, name: str) -> msgspec.Raw:
        """Encodes a value, if it can be read back as its declared type."""
        value = cell.values[name]
        try:
            msgspec.convert(value, self._types[name], builtin_types=(bytes, Decimal))
            raw = msgspec.Raw(msgspec.msgpack.encode(value))
            if name in self._put_back:  # datetimes are decoded in UTC; use the decoded value from now on
                stored = self._value(name, raw)
                self._check_whole(value, name, stored)
                cell.values[name] = self._put(value, name, stored)
            return raw
        except _REFUSED as error:
            if (encoded := self._without_numpy(cell, name)) is not None:
                return encoded
            where = f"{self._process.__name__}.{name}"
            message = f"{where} holds {shown(value):.200}, which cannot be stored as it is declared: {error}"
            raise UserCodeError(message) from error

    def _put(self, value: Any, name: str, stored: Any) -> Any:
        """The stored value to use from now on, with the times of the present one."""
        return self._collection(name, stored, value.times) if isinstance(value, TimedList | TimedMap) else stored

    def _collection(self, name: str, value: Any, written: Any) -> Any:
        declared = self._process.declared_states[name]
        return declared.restored(value, written) if isinstance(declared, CollectionState) else value

    def _check_whole(self, value: Any, name: str, stored: Any) -> None:
        """Raises UserCodeError if a value of a type that is not fully declared would be decoded as a different value,
        such as a tuple as a list. (NaN is not equal to itself.)"""
        if name in self._loose and stored != value and repr(stored) != repr(value):
            where = f"{self._process.__name__}.{name}"
            raise UserCodeError(
                f"{where} holds {shown(value):.200}, which a checkpoint gives back as {shown(stored):.200}: declare "
                f"its type with those of what is in it, such as {name}: list[tuple[int, str]]"
            )

    def _without_numpy(self, cell: Cell, name: str) -> msgspec.Raw | None:
        """Encodes a value with plain values in place of NumPy's; None if it still does not have its declared type. The
        cell is changed to the decoded value, which a replacement would read from the checkpoint."""
        try:
            encoded = msgspec.Raw(msgspec.msgpack.encode(cell.values[name], enc_hook=plain_value))
            cell.values[name] = self._put(cell.values[name], name, self._value(name, encoded))
        except (*_REFUSED, ClonosError):
            return None
        return encoded

    def _decoded(self, key: bytes, group: int, state: bytes) -> Cell:
        encoded = msgspec.msgpack.decode(state, type=EncodedCell)
        cell = Cell(key, group)
        for name, raw in encoded.values.items():
            if name in self._process.declared_states:
                cell.values[name] = value = self._value(name, raw)
                if name in self._records and not self._outdated:
                    self._outdated = msgspec.msgpack.encode(value) != bytes(raw)
        for name, at in encoded.written.items():
            if name in cell.values and name not in self._collections and isinstance(at, int):
                cell.written[name] = at
        for name in self._collections & cell.values.keys():
            cell.values[name] = self._collection(name, cell.values[name], encoded.written.get(name))
        cell.timers = {name: at for name, at in encoded.timers.items() if name in self._process.declared_timers}
        cell.stored = True
        if len(cell.values) < len(encoded.values) or len(cell.timers) < len(encoded.timers):
            self._outdated = True
        return cell

    def _value(self, name: str, raw: msgspec.Raw) -> Any:
        try:
            return msgspec.msgpack.decode(raw, type=self._types[name])
        except msgspec.ValidationError as error:
            where = f"{self._process.__name__}.{name}"
            raise GraphError(f"{where} is declared as another type than the checkpoint holds: {error}") from error


def _has(type_: Any, types: Collection[Any], inside: bool = False, outer: tuple[Any, ...] = ()) -> bool:
    """Whether a type is in ``types`` or contains such a type, where an assignment cannot detect it. ``inside``: check
    only contained types. ``outer``: the enclosing types, since a record can have fields of its own class."""
    if not inside and type_ in types:
        return True
    parts = typing.get_args(type_)
    if isinstance(type_, type) and issubclass(type_, Record):
        parts = tuple(field_types(type_).values())
    around = (*outer, type_)
    return any(part not in around and _has(part, types, outer=around) for part in parts)


def _holds_records(type_: Any, outer: tuple[Any, ...] = ()) -> bool:
    """Whether a type is a record or contains one."""
    if isinstance(type_, type) and issubclass(type_, Record):
        return True
    return any(part not in outer and _holds_records(part, (*outer, type_)) for part in typing.get_args(type_))


def live_cells(chunks: Sequence[Chunk]) -> list[pa.RecordBatch]:
    """The entries of the keys that have state, of a snapshot's chunks in the order in which they were written."""
    if not chunks:
        return []
    rows = _last_of_each_key(chunks).rows
    return [rows.filter(rows.column("state").is_valid())]


def _last_of_each_key(chunks: Sequence[Chunk]) -> Chunk:
    """Merges chunks: the last entry of each key."""
    rows = concat([chunk.rows for chunk in chunks])
    keys = group([rows.column("key")], rows.num_rows)
    return Chunk(rows.take(np.sort(keys.last())))


def _keys(chunks: Iterable[Chunk]) -> set[Any]:
    return {key for chunk in chunks for key in chunk.rows.column("key").to_pylist()}


def encoded_keys(rows: pa.RecordBatch, keys: Sequence[str]) -> list[bytes]:
    """The key of each row as bytes, equal for equal keys. As in the key hash, -0.0 equals 0.0 and all
    NaN are equal, also within lists and records."""
    if not keys:
        return [msgspec.msgpack.encode(())] * rows.num_rows
    columns = [_key_values(rows.column(key)) for key in keys]
    return list(map(msgspec.msgpack.encode, zip(*columns, strict=True)))


def _key_values(column: pa.Array[Any]) -> list[Any]:
    return python_values(canonical(plain(column)))


def value_types(process: type[KeyedFunction]) -> dict[str, Any]:
    """The type of each attribute: its annotation, or else the type of its default."""
    try:
        hints = typing.get_type_hints(process)
    except NameError as error:
        raise GraphError(
            f"{process.__name__}: {error}; define the types of its state at the top of the module"
        ) from error
    defaults = {name: state.default for name, state in process.declared_states.items()}
    return {name: hints.get(name, Any if value is None else type(value)) for name, value in defaults.items()}
