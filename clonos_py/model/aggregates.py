"""Aggregates as values, created by the DSL and computed by operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from clonos_py.model.hidden import hidden, is_hidden

ORDERED = ("first", "last", "collect")
"""Functions whose result depends on the order of the rows."""
RUNNING = (
    "count",
    "sum",
    "min",
    "max",
    "mean",
    "var",
    "std",
    "approx_quantile",
    "approx_count_distinct",
    "first",
    "last",
)
"""Functions whose result after one more row takes no longer the more rows there were."""
_ACCUMULATORS = (
    "count",
    "sum",
    "min",
    "max",
    "distinct",
    "moments",
    "values",
    "registers",
    "bounded",
    "user",
    *ORDERED,
)


@dataclass(frozen=True)
class UserAggregate:
    """An aggregate of the user: a fold over the rows of a group, with a mergeable accumulator of plain data."""

    create: Callable[[], Any]
    add: Callable[[Any, Any], Any]
    merge: Callable[[Any, Any], Any]
    result: Callable[[Any], Any]


@dataclass(frozen=True)
class Aggregate:
    """``function`` is one of count, count_distinct, sum, min, max, mean, var, std, approx_quantile,
    approx_count_distinct, first, last, collect, user. ``column`` is its input (None for count of rows); ``name`` and
    ``type`` are its output field. A mean that is an integer is rounded towards zero. ``option``: the degrees of freedom
    that var and std take off, the share of an approximate quantile, the most values of collect."""

    function: str
    column: str | None
    name: str
    type: pa.DataType
    user: UserAggregate | None = None
    option: float | None = None

    @property
    def ordered(self) -> bool:
        """Whether it depends on the order in which rows reach the operator."""
        return self.function in ORDERED

    @property
    def retractable(self) -> bool:
        """Whether it can take back a value without the others."""
        return self.function in ("count", "sum", "mean")

    @property
    def recomputed(self) -> bool:
        """Whether it is computed again from all rows of a table when one of them changes."""
        return self.function in ("var", "std", "approx_quantile", "approx_count_distinct", "user")

    @property
    def mergeable(self) -> bool:
        """Whether partial results of batches may be merged in any order with the same result (D14). Integer and decimal
        sums, counts, extremes and sketches may; float sums, variances, user folds and functions that depend on the
        order of rows may not."""
        if self.function in ("count", "count_distinct", "min", "max", "approx_quantile", "approx_count_distinct"):
            return True
        return self.function in ("sum", "mean") and not pa.types.is_floating(self.type)


NEWEST = hidden("newest")
"""The name of an aggregate of tables with a time to live: the time of the newest row of a key."""


def accumulator_name(aggregate: str, kind: str) -> str:
    """The hidden column of partial results with an aggregate's accumulator of one kind, such as its sum."""
    return hidden(f"{aggregate}:{kind}")


def aggregate_of(column: str) -> str | None:
    """The aggregate whose accumulator a column of partial results holds; None if it holds none."""
    name, colon, kind = column.rpartition(":")
    return name[1:] if colon and is_hidden(name) and kind in _ACCUMULATORS else None
