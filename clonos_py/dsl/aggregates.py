"""Aggregates of a job: ``count()``, ``col("price").max()``, ``count().where(col("price") > 100)``,
``aggregate_by(fold, "price")``.

An aggregate describes what to compute over the rows of a group. Bound to the input's schema and the name of its output
column it becomes the ``Aggregate`` that operators run. Null inputs do not count, as in SQL; a group with only nulls
gives null.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass, replace
from typing import Protocol

import pyarrow as pa

from clonos_py.expressions.literals import column_type
from clonos_py.expressions.tree import Case, Cast, Column, ExpressionNode, Literal
from clonos_py.model.aggregates import Aggregate, UserAggregate
from clonos_py.model.errors import GraphError

_SUM_PRECISION = 38
_NEVER_NULL = ("count", "count_distinct", "approx_count_distinct", "collect", "user")
_DEVIATIONS = ("var", "std")


class Expression(Protocol):
    """A column expression as users write it: an ``Expr``, whose methods return aggregates."""

    @property
    def node(self) -> ExpressionNode: ...


@dataclass(frozen=True)
class AggregateExpr:
    """``function`` over ``argument``; an argument of None means whole rows."""

    function: str
    argument: ExpressionNode | None = None
    user: UserAggregate | None = None
    returns: pa.DataType | None = None
    option: float | None = None
    """See ``Aggregate``."""

    def __str__(self) -> str:
        return "count()" if self.argument is None else f"{self.argument}.{self.function}()"

    def where(self, condition: Expression) -> AggregateExpr:
        """Limits the aggregate to the rows of the group for which a condition is true; null is not true."""
        if self.user is not None:
            raise GraphError("aggregate_by takes no where(): let its `add` pass over the rows that do not count")
        chosen = Literal(True) if self.argument is None else self.argument
        nothing = Cast(Literal(None), pa.bool_()) if self.argument is None else Literal(None)
        return replace(self, argument=Case(condition.node, chosen, nothing))

    def field(self, name: str, schema: pa.Schema) -> pa.Field[pa.DataType]:
        """The column that it makes. Raises GraphError for an unknown column, or a type that does not fit."""
        if self.function == "count" and self.argument is None:
            return pa.field(name, pa.int64(), nullable=False)
        taken = pa.field("rows", pa.null()) if self.argument is None else self.argument.field(name, schema)
        whole = self.function == "mean" and self.returns is not None
        result = self.returns or _result(self.function, taken.type)
        if whole and not pa.types.is_integer(taken.type):
            raise GraphError(f"{self}: {self.argument} is {taken.type}; whole=True is for integers")
        if result is None:
            raise GraphError(f"{self}: {self.argument} is {taken.type}, which {self.function} does not take")
        nullable = taken.nullable or (self.function in _DEVIATIONS and self.option != 0)  # of one row it is null
        return pa.field(name, result, nullable=nullable and self.function not in _NEVER_NULL)

    def bound(self, name: str, column: str | None, output: pa.DataType) -> Aggregate:
        """The aggregate over ``column``, which holds its argument, into a column ``name`` of type ``output``."""
        return Aggregate(self.function, column, name, output, self.user, self.option)


def count() -> AggregateExpr:
    """The number of rows in the group."""
    return AggregateExpr("count")


def aggregate_by(fold: UserAggregate, column: str | Expression | None = None, returns: object = None) -> AggregateExpr:
    """The user's own fold over a column, an expression, or (None) the whole rows of a group, as dicts.

    ``returns``: the type of the results; the default is the return annotation of ``fold.result``. Raises GraphError
    without either.
    """
    annotated = returns or getattr(fold.result, "__annotations__", {}).get("return")
    if isinstance(annotated, str):
        annotated = typing.get_type_hints(fold.result)["return"]
    if annotated is None:
        raise GraphError("aggregate_by: say the type of its results: annotate `result`, or give returns=")
    node = Column(column) if isinstance(column, str) else None if column is None else column.node
    return AggregateExpr("user", node, fold, column_type(annotated))


def _result(function: str, taken: pa.DataType) -> pa.DataType | None:
    """The type of a function's result over a column; None if the function does not take such a column."""
    if function == "count":
        return pa.int64()
    if function in ("count_distinct", "approx_count_distinct"):
        return None if pa.types.is_nested(taken) else pa.int64()
    if function == "collect":
        return pa.list_(pa.field("item", taken, nullable=False))
    if function in ("first", "last"):
        return taken
    if function in ("min", "max"):
        return None if pa.types.is_nested(taken) else taken
    if function in (*_DEVIATIONS, "approx_quantile"):
        numeric = pa.types.is_integer(taken) or pa.types.is_floating(taken) or pa.types.is_decimal(taken)
        return pa.float64() if numeric else None
    if isinstance(taken, pa.Decimal128Type):
        return pa.decimal128(_SUM_PRECISION, taken.scale) if function == "sum" else taken
    if pa.types.is_floating(taken) or (pa.types.is_integer(taken) and function == "mean"):
        return pa.float64()
    return pa.int64() if pa.types.is_integer(taken) else None
