"""User-defined aggregates. Their accumulators are stored in columns as msgpack, one row per group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from clonos_py.columns.grouping import Groups
from clonos_py.columns.ordering import stable_order
from clonos_py.columns.views import Column
from clonos_py.model.aggregates import Aggregate, UserAggregate
from clonos_py.model.errors import Interrupted, shown
from clonos_py.model.hidden import is_hidden
from clonos_py.model.moments import python_values
from clonos_py.model.places import blamed

_SLICE_ROWS = 4_096
"""Values are converted to Python objects in slices, since the conversion holds the interpreter lock (D8)."""


def fold_rows(aggregate: Aggregate, rows: pa.RecordBatch, groups: Groups) -> Column:
    """The accumulator of each group, to which its values are added in order. Values are whole rows as dicts if the
    aggregate has no column."""
    column = rows.column(aggregate.column) if aggregate.column is not None else _whole(rows)
    user = _user(aggregate)
    return _fold(aggregate, column, groups, lambda values: _added(user, values))


def _whole(rows: pa.RecordBatch) -> Any:
    """The rows as structs, without hidden columns."""
    return rows.select([name for name in rows.schema.names if not is_hidden(name)]).to_struct_array()


def merge_folds(aggregate: Aggregate, column: Column, groups: Groups) -> Column:
    """The accumulators of each group merged in their order."""
    user = _user(aggregate)
    return _fold(aggregate, column, groups, lambda packed: _merged(user, packed))


def results_of_folds(aggregate: Aggregate, column: Column) -> Any:
    """The result of the user's ``result`` for each accumulator."""
    user = _user(aggregate)
    results = [_call(aggregate, lambda packed: user.result(_unpack(packed)), packed) for packed in _values(column)]
    return pa.array(results, aggregate.type)


def _fold(aggregate: Aggregate, column: Any, groups: Groups, fold: Callable[[list[Any]], Any]) -> Column:
    order = stable_order(groups.ids)
    bounds = np.searchsorted(groups.ids[order], np.arange(groups.size + 1)).tolist()
    values = list(_values(column.take(pa.array(order))))
    folded = [_call(aggregate, fold, values[start:stop]) for start, stop in pairwise(bounds)]
    return pa.array([msgspec.msgpack.encode(accumulator) for accumulator in folded], pa.binary())


def _added(user: UserAggregate, values: list[Any]) -> Any:
    accumulator = user.create()
    for value in values:
        accumulator = user.add(accumulator, value)
    return accumulator


def _merged(user: UserAggregate, packed: list[bytes]) -> Any:
    accumulator = _unpack(packed[0])
    for other in packed[1:]:
        accumulator = user.merge(accumulator, _unpack(other))
    return accumulator


def _call(aggregate: Aggregate, fold: Callable[[Any], Any], values: Any) -> Any:
    try:
        return fold(values)
    except Interrupted:
        raise
    except BaseException as error:
        given = shown(values)
        given = given if len(given) <= 200 else f"{given[:200]}..."
        raise blamed(f"aggregate {aggregate.name!r} raised {shown(error)} over {given}", error) from error


def _values(column: Column) -> Iterator[Any]:
    for start in range(0, len(column), _SLICE_ROWS):
        yield from python_values(column.slice(start, _SLICE_ROWS))


def _unpack(packed: bytes) -> Any:
    return msgspec.msgpack.decode(packed)


def _user(aggregate: Aggregate) -> UserAggregate:
    assert aggregate.user is not None, f"aggregate {aggregate.name!r} has no fold"
    return aggregate.user
