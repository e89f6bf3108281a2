"""The answers of a lookup by key, each until it expires. That a key has no answer is an answer, too.

Time comes from callers, who ask the log for it: so a replay finds the same answers. The cache is keyed state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Ints, concat, fixed
from clonos_py.model.hidden import hidden
from clonos_py.model.state import OperatorState
from clonos_py.operators.keyed_chunks import grouped_schema, with_groups
from clonos_py.operators.keyed_rows import KeyedRows
from clonos_py.operators.pairs import NO_ROW

UNKNOWN = -2
"""In the place of an answer: none is cached. ``NO_ROW``: the key has no answer."""
_FOUND_COLUMN = hidden("found")
"""bool column of answers: true; null, like all others, where a key has no answer."""
_EXPIRES_COLUMN = hidden("expires")
_EXPIRES = pa.field(_EXPIRES_COLUMN, pa.int64())
"""When the answer expires, in microseconds."""
_SWEEPS = 4
"""Expired answers are removed so many times in the lifetime of an answer."""


class AnswerCache:
    """Answers with the columns of ``answers``, see ``answer_schema``, by ``keys``. No column is in both."""

    def __init__(self, table: str, keys: Sequence[str], answers: pa.Schema, lifetime_us: int, key_groups: int) -> None:
        self._keys, self._answers = list(keys), answers
        self._lifetime_us, self._key_groups = lifetime_us, key_groups
        self._rows = KeyedRows(keys, table)
        self._new: list[tuple[pa.RecordBatch, pa.RecordBatch | None, int]] = []
        """Answers that are not among the rows yet: adding many at once is cheaper."""
        self._swept_us = 0

    def add(self, key: pa.RecordBatch, answer: pa.RecordBatch | None, now_us: int) -> None:
        """Adds the answer for the key in a batch of one row; None if there is none. The key must be unknown."""
        self._new.append((key, answer, now_us + self._lifetime_us))

    def find(self, keys: pa.RecordBatch, now_us: int) -> tuple[pa.RecordBatch | None, Ints]:
        """Answers, and for each of these distinct keys the place of its answer there, ``NO_ROW`` or ``UNKNOWN``."""
        self._add_new()
        self._sweep(now_us)
        places = np.full(keys.num_rows, UNKNOWN)
        positions, numbers = self._rows.find(keys)
        if not len(numbers):
            return None, places
        entries = self._rows.take(numbers, [*self._answers.names, _EXPIRES_COLUMN])
        valid = fixed(entries.column(_EXPIRES_COLUMN)) > now_us
        self._rows.remove(np.sort(numbers[~valid]))
        places[positions] = places_of(entries)
        places[positions[~valid]] = UNKNOWN
        return of_schema(entries, self._answers), places

    def snapshot(self) -> OperatorState:
        self._add_new()
        return self._rows.snapshot({})

    def restore(self, parts: Sequence[OperatorState], groups: range) -> None:
        self._new, self._swept_us = [], 0
        self._rows.restore(parts, groups)

    def _add_new(self) -> None:
        if not self._new:
            return
        keys, answers, expires = zip(*self._new, strict=True)
        self._new = []
        none = nulls(self._answers, 1)
        rows = concat(keys)
        found = concat([none if answer is None else answer for answer in answers])
        columns = [*rows.columns, *found.columns, pa.array(expires, pa.int64())]
        schema = pa.schema([*rows.schema, *found.schema, _EXPIRES])
        whole = pa.RecordBatch.from_arrays(columns, schema=schema)
        self._rows.append(with_groups(whole, self._keys, self._key_groups))
        self._rows.compact()

    def _sweep(self, now_us: int) -> None:
        """Removes expired answers from time to time."""
        if not self._rows.rows or 0 <= now_us - self._swept_us < self._lifetime_us // _SWEEPS:
            return
        numbers = self._rows.all_numbers()
        self._rows.remove(numbers[fixed(self._rows.take(numbers, [_EXPIRES_COLUMN]).column(0)) <= now_us])
        self._rows.compact()
        self._swept_us = now_us


def cache_schema(keys: Sequence[str], answers: pa.Schema, rows: pa.Schema) -> pa.Schema:
    """The columns of the table of a cache. ``rows``: those of the rows that have the keys."""
    return grouped_schema(pa.schema([*(rows.field(key) for key in keys), *answers, _EXPIRES]))


def answer_schema(columns: Sequence[pa.Field[Any]]) -> pa.Schema:
    """The columns of answers: these, which may be null, and a hidden one."""
    return pa.schema([*(field.with_nullable(True) for field in columns), pa.field(_FOUND_COLUMN, pa.bool_())])


def answers_of(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Rows as answers."""
    return of_schema(rows.append_column(_FOUND_COLUMN, pa.repeat(True, rows.num_rows)), schema)


def places_of(rows: pa.RecordBatch) -> Ints:
    """For each row that may hold an answer: its place, or ``NO_ROW``."""
    found = rows.column(_FOUND_COLUMN).is_valid().to_numpy(zero_copy_only=False)
    return np.where(found, np.arange(rows.num_rows), NO_ROW)


def nulls(schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """So many rows of nulls."""
    return pa.RecordBatch.from_arrays([pa.nulls(rows, field.type) for field in schema], schema=schema)


def of_schema(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema, which takes null where the rows do."""
    return pa.RecordBatch.from_arrays([rows.column(name) for name in schema.names], schema=schema)
