"""Partial aggregation, which windows, sessions and tables share.

A partial batch has one row per group (of one input batch, or of many after merging): the keys and hidden columns. These
are ``rows`` (how many rows it stands for) and the accumulators of the aggregates: ``NAME:count``, ``NAME:sum``,
``NAME:min``, ``NAME:max``, ``NAME:distinct``, a list of values, ``NAME:moments``, those of a variance, ``NAME:values``
and ``NAME:registers``, sketches, ``NAME:first``, ``NAME:last``, ``NAME:collect`` and ``NAME:bounded``, values with
their arrival numbers, and ``NAME:user``, a user's accumulator as msgpack. Partial batches merge into partial batches.
``finish`` turns them into results.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns import arrivals, sketches
from clonos_py.columns.distinct import distinct_values, united
from clonos_py.columns.grouping import Groups, group
from clonos_py.columns.moments import MOMENTS, merged_moments, moments, variances
from clonos_py.columns.reduction import WIDE, count_rows, count_values, greatest, least, sums, wide_sums
from clonos_py.columns.views import Column, plain_type, take
from clonos_py.model.aggregates import Aggregate, accumulator_name
from clonos_py.model.errors import UserCodeError
from clonos_py.model.hidden import hidden
from clonos_py.operators.arrivals import ARRIVAL_COLUMN, TIME_COLUMN, with_arrivals
from clonos_py.operators.folding import fold_rows, merge_folds, results_of_folds
from clonos_py.operators.means import means, means_of_integers, whole_means

ROWS_COLUMN = hidden("rows")
"""int64 column of every partial batch: how many rows a partial result stands for."""

_SUM_DIGITS = 38
_STARTED_BY: Mapping[str, Callable[[Column, Groups], Any]] = {
    "count": count_values, "min": least, "max": greatest, "distinct": distinct_values, "moments": moments,
    "values": sketches.value_counts, "registers": sketches.registers,
}  # fmt: skip
_MERGED_BY: Mapping[str, Callable[[Column, Groups], Any]] = {
    "count": sums, "min": least, "max": greatest, "distinct": united, "first": arrivals.first,
    "last": arrivals.last, "collect": arrivals.joined, "moments": merged_moments, "values": sketches.added_counts,
    "registers": sketches.united_registers,
}  # fmt: skip
_STARTED_BY_ARRIVAL: Mapping[str, Callable[[Column, Groups], Any]] = {
    "first": arrivals.first, "last": arrivals.last, "collect": arrivals.collected
}  # fmt: skip

_FIXED = {"moments": MOMENTS, "values": sketches.SKETCH, "registers": sketches.SKETCH}
"""By kind: the type of accumulators of any column."""


class Accumulator(NamedTuple):
    """One column of a partial batch."""

    name: str
    kind: str
    aggregate: Aggregate


class Partials:
    """Creates, merges and finishes partial batches of ``aggregates`` by ``keys``."""

    def __init__(self, keys: Sequence[str], aggregates: Sequence[Aggregate]) -> None:
        self.keys = tuple(keys)
        self.aggregates = tuple(aggregates)
        self.accumulators = tuple(a for aggregate in aggregates for a in accumulators_of(aggregate))

    def combine(self, rows: pa.RecordBatch, groups: Groups, extra: Mapping[str, Any]) -> pa.RecordBatch:
        """Aggregates input rows to one partial row per group. ``extra``: further columns, with one value per group."""
        columns = self._keys_of(rows, groups) | dict(extra) | {ROWS_COLUMN: count_rows(groups)}
        for name, kind, aggregate in self.accumulators:
            columns[name] = started(kind, aggregate, rows, groups)
        return pa.record_batch(columns)

    def merge(
        self, partial: pa.RecordBatch, groups: Groups, extra: Mapping[str, Any] = MappingProxyType({})
    ) -> pa.RecordBatch:
        """Merges partial rows to one partial row per group. A further column is taken from ``extra``, or else from the
        group's first row."""
        columns: dict[str, Any] = {}
        merged = {a.name: a for a in self.accumulators}
        for name in partial.schema.names:
            column = partial.column(name)
            if name in extra:
                columns[name] = extra[name]
            elif name in merged:
                columns[name] = _merge(merged[name], column, groups)
            else:
                columns[name] = sums(column, groups) if name == ROWS_COLUMN else take(column, groups.first)
        return pa.record_batch(columns)

    def combine_by_key(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Aggregates input rows to one partial row per key."""
        return self.combine(rows, self.groups(rows), {})

    def merge_by_key(self, partial: pa.RecordBatch) -> pa.RecordBatch:
        """Merges partial rows to one partial row per key."""
        return self.merge(partial, self.groups(partial))

    def groups(self, rows: pa.RecordBatch) -> Groups:
        """Groups rows by equal keys."""
        return group([rows.column(key) for key in self.keys], rows.num_rows)

    def finish(self, partial: pa.RecordBatch, schema: pa.Schema, extra: Mapping[str, Any]) -> pa.RecordBatch:
        """Results with the columns of ``schema``, filled by name from ``extra``, the keys and the aggregates."""
        found = {aggregate.name: aggregate for aggregate in self.aggregates}
        columns: list[Any] = []
        for field in schema:
            if field.name in extra:
                column: Any = extra[field.name]
            elif field.name in found:
                column = _finish(found[field.name], partial)
            else:
                column = partial.column(field.name)
            columns.append(column if column.type == field.type else column.cast(field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def fields(self, schema: pa.Schema, extra: Sequence[Any]) -> list[Any]:
        """The fields, in order, of a partial batch of rows with ``schema``."""
        keys = [pa.field(key, plain_type(schema.field(key).type)) for key in self.keys]
        accumulators = [pa.field(name, accumulator_type(kind, a, schema)) for name, kind, a in self.accumulators]
        return [*keys, *extra, pa.field(ROWS_COLUMN, pa.int64()), *accumulators]

    def stored_schema(self, rows: pa.Schema, extra: Sequence[str]) -> pa.Schema:
        """The columns of partial rows of rows with ``rows``, as ``combine`` makes them. ``extra``: int64 columns."""
        empty = pa.RecordBatch.from_pylist([], schema=with_arrivals(rows))
        return self.combine(empty, self.groups(empty), {name: constant(0, 0) for name in extra}).schema

    def _keys_of(self, rows: pa.RecordBatch, groups: Groups) -> dict[str, Any]:
        keys = {key: take(rows.column(key), groups.first) for key in self.keys}
        return {k: v.dictionary_decode() if isinstance(v, pa.DictionaryArray) else v for k, v in keys.items()}


def constant(value: int, rows: int) -> Column:
    """An int64 column that repeats one value."""
    return pa.array(np.full(rows, value, np.int64))


def accumulators_of(aggregate: Aggregate) -> list[Accumulator]:
    """The columns of partial batches that an aggregate needs, besides the number of rows."""
    kinds = {
        "mean": ("sum", "count"),
        "count": () if aggregate.column is None else ("count",),
        "count_distinct": ("distinct",),
        "var": ("moments",),
        "std": ("moments",),
        "approx_quantile": ("values",),
        "approx_count_distinct": ("registers",),
        "collect": ("collect" if aggregate.option is None else "bounded",),
    }
    return [
        Accumulator(accumulator_name(aggregate.name, kind), kind, aggregate)
        for kind in kinds.get(aggregate.function, (aggregate.function,))
    ]


def started(kind: str, aggregate: Aggregate, rows: pa.RecordBatch, groups: Groups) -> Any:
    """An accumulator of each group of rows."""
    if kind == "user":
        return fold_rows(aggregate, rows, groups)
    assert aggregate.column is not None
    if kind == "bounded":
        times = rows.column(TIME_COLUMN)
        values = arrivals.timed(rows.column(aggregate.column), times, rows.column(ARRIVAL_COLUMN))
        return arrivals.earliest(values, groups.ids, groups.size, _most(aggregate))
    if kind in _STARTED_BY_ARRIVAL:
        values = arrivals.numbered(rows.column(aggregate.column), rows.column(ARRIVAL_COLUMN))
        return _STARTED_BY_ARRIVAL[kind](values, groups)
    column = rows.column(aggregate.column)
    if kind == "sum":
        whole = aggregate.function == "mean" and pa.types.is_integer(plain_type(column.type))
        return _summed(wide_sums if whole else sums, aggregate, column, groups)
    return _STARTED_BY[kind](column, groups)


def _merge(accumulator: Accumulator, column: Column, groups: Groups) -> Any:
    if accumulator.kind == "user":
        return merge_folds(accumulator.aggregate, column, groups)
    if accumulator.kind == "sum":
        return _summed(sums, accumulator.aggregate, column, groups)
    if accumulator.kind == "bounded":
        return arrivals.joined_earliest(column, groups, _most(accumulator.aggregate))
    return _MERGED_BY[accumulator.kind](column, groups)


def _summed(add: Callable[[Column, Groups], Any], aggregate: Aggregate, column: Column, groups: Groups) -> Any:
    """The sums. Raises UserCodeError naming the aggregate if a sum overflows."""
    try:
        return add(column, groups)
    except UserCodeError as error:
        raise UserCodeError(f"{aggregate.function} {aggregate.name!r}: {error.text}") from error


def _finish(aggregate: Aggregate, partial: pa.RecordBatch) -> Any:
    name, function = aggregate.name, aggregate.function
    if function == "count" and aggregate.column is None:
        return partial.column(ROWS_COLUMN)
    if function == "mean":
        return _means(aggregate, *(partial.column(accumulator_name(name, kind)) for kind in ("sum", "count")))
    if function == "count_distinct":
        return pc.list_value_length(partial.column(accumulator_name(name, "distinct")))
    column = partial.column(accumulators_of(aggregate)[0].name)
    if function in ("var", "std"):
        found = variances(column, int(aggregate.option or 0))
        return found if function == "var" else pc.sqrt(found)
    if function == "approx_quantile":
        return sketches.quantiles(column, aggregate.option or 0.0)
    if function == "approx_count_distinct":
        return sketches.distinct_counts(column)
    if function == "collect":
        return arrivals.lists_of(column, aggregate.type)
    if function in ("first", "last"):
        return arrivals.values_of(column)
    return results_of_folds(aggregate, column) if function == "user" else column


def _most(aggregate: Aggregate) -> int:
    return int(aggregate.option or 0)


def _means(aggregate: Aggregate, total: Any, counts: Any) -> Any:
    if pa.types.is_integer(aggregate.type):
        return whole_means(total, counts)
    of_integers = pa.types.is_decimal(total.type) and pa.types.is_floating(aggregate.type)
    return (means_of_integers if of_integers else means)(total, counts)


def accumulator_type(kind: str, aggregate: Aggregate, schema: pa.Schema) -> Any:
    if kind in ("count", "user"):
        return pa.int64() if kind == "count" else pa.binary()
    if kind in _FIXED:
        return _FIXED[kind]
    assert aggregate.column is not None
    taken = plain_type(schema.field(aggregate.column).type)
    if kind in ("min", "max", "distinct"):
        return pa.list_(taken) if kind == "distinct" else taken
    if aggregate.function == "mean" and pa.types.is_integer(taken):
        return WIDE
    if isinstance(taken, pa.Decimal128Type):
        return pa.decimal128(_SUM_DIGITS, taken.scale)
    return pa.float64() if pa.types.is_floating(taken) else pa.int64()
