"""The tree of an expression: columns, literals and kernels, immutable and picklable.

A node has the columns that it reads and, given a schema, a type. A missing column, or types that do not fit together,
raise a GraphError that names them. A tree compiles to an ``Evaluate`` on record batches, without Python work per row.
The planner moves nodes with ``substitute``; users write them with the operators of ``dsl.expressions``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import pyarrow as pa

from clonos_py.expressions import kernels
from clonos_py.expressions.kernels import Bound
from clonos_py.expressions.literals import fitted, natural
from clonos_py.model.errors import GraphError, UserCodeError
from clonos_py.model.moments import shown_rows
from clonos_py.model.places import blamed

_INFIX = frozenset(["+", "-", "*", "**", "/", "//", "%", ">", ">=", "<", "<=", "==", "!=", "&", "|"])
_COMPARISONS = frozenset([">", ">=", "<", "<=", "==", "!="])


@dataclass(frozen=True)
class Compiled:
    """A compiled expression: an ``Evaluate``. Raises UserCodeError naming operator, expression and row."""

    text: str
    operator: str
    type: pa.DataType
    evaluate: Callable[[pa.RecordBatch], kernels.Values]

    def __call__(self, rows: pa.RecordBatch) -> pa.Array[Any]:
        try:
            return kernels.as_array(self.evaluate(rows), rows.num_rows)
        except (UserCodeError, pa.ArrowException) as error:
            row, problem = self._culprit(rows, error)
            text = problem.text if isinstance(problem, UserCodeError) else problem
            raise blamed(f"operator {self.operator!r}: {self.text}: {text}, at {row}", error) from error

    def _culprit(self, rows: pa.RecordBatch, problem: Exception) -> tuple[str, Exception]:
        """The first row that fails on its own, and its problem. It is found by bisection, since a user's function may
        be slow. ``problem``: that of all rows."""
        while rows.num_rows > 1:
            half = rows.num_rows // 2
            if (found := self._problem(rows.slice(0, half))) is not None:
                rows, problem = rows.slice(0, half), found
            elif (found := self._problem(rows.slice(half))) is not None:
                rows, problem = rows.slice(half), found
            else:
                return f"one of {rows.num_rows} rows", problem
        return f"row {shown_rows(rows)[0]}", problem

    def _problem(self, rows: pa.RecordBatch) -> Exception | None:
        try:
            self.evaluate(rows)
        except (UserCodeError, pa.ArrowException) as error:
            return error
        return None


@dataclass(frozen=True)
class ExpressionNode:
    """Base of all nodes."""

    def inputs(self) -> frozenset[str]:
        """The columns it reads."""
        return frozenset(name for child in self.children() for name in child.inputs())

    def functions(self) -> tuple[Callable[..., Any], ...]:
        """The user's functions that it calls, in order."""
        return tuple(function for child in self.children() for function in child.functions())

    def bind(self, schema: pa.Schema) -> Bound:
        """Resolves the types of the whole tree. Raises GraphError."""
        raise NotImplementedError

    def substitute(self, columns: Mapping[str, ExpressionNode]) -> ExpressionNode:
        """The same tree with other nodes in place of the named columns."""
        return self.rebuilt(lambda child: child.substitute(columns))

    def field(self, name: str, schema: pa.Schema) -> pa.Field[Any]:
        """The column that the expression gives for rows of ``schema``."""
        bound = self.bind(schema)
        return pa.field(name, bound.type, nullable=bound.nullable)

    def compile(self, schema: pa.Schema, operator: str) -> Compiled:
        """The compiled form that an operator evaluates; errors name ``operator``."""
        bound = self.bind(schema)
        return Compiled(str(self), operator, bound.type, bound.evaluate)

    def children(self) -> Iterator[ExpressionNode]:
        """The direct child nodes."""
        for field in fields(self):
            value = getattr(self, field.name)
            yield from (
                each for each in (value if isinstance(value, tuple) else (value,)) if isinstance(each, ExpressionNode)
            )

    def rebuilt(self, change: Callable[[ExpressionNode], ExpressionNode]) -> ExpressionNode:
        """The same node with each child replaced by ``change(child)``."""

        def changed(value: Any) -> Any:
            if isinstance(value, tuple):
                return tuple(map(changed, value))
            return change(value) if isinstance(value, ExpressionNode) else value

        return replace(self, **{field.name: changed(getattr(self, field.name)) for field in fields(self)})

    @property
    def name(self) -> str | None:
        """The default name of its column; None if it has none."""
        return None


@dataclass(frozen=True)
class Column(ExpressionNode):
    """A column of the input, by name."""

    column: str

    def __str__(self) -> str:
        return self.column

    @property
    def name(self) -> str:
        return self.column

    def inputs(self) -> frozenset[str]:
        return frozenset([self.column])

    def bind(self, schema: pa.Schema) -> Bound:
        if schema.get_field_index(self.column) < 0:
            raise GraphError(f"no column {self.column!r}; there are {', '.join(schema.names) or 'none'}")
        found = schema.field(self.column)
        return Bound(found.type, found.nullable, False, partial(kernels.column, self.column))

    def substitute(self, columns: Mapping[str, ExpressionNode]) -> ExpressionNode:
        return columns.get(self.column, self)


@dataclass(frozen=True)
class Literal(ExpressionNode):
    """A plain value. Its type depends on the argument beside it: 100 beside a decimal is a decimal."""

    value: object

    def __str__(self) -> str:
        return repr(self.value)

    def bind(self, schema: pa.Schema) -> Bound:
        return self.bind_as(natural(self.value))

    def bind_beside(self, other: pa.DataType, compared: bool) -> Bound:
        return self.bind_as(fitted(self.value, other, compared))

    def bind_as(self, value: pa.Scalar[Any]) -> Bound:
        return Bound(value.type, self.value is None, False, partial(kernels.constant, value))

    def substitute(self, columns: Mapping[str, ExpressionNode]) -> ExpressionNode:
        return self


@dataclass(frozen=True)
class KernelCall(ExpressionNode):
    """A kernel over other expressions."""

    kernel: str
    arguments: tuple[ExpressionNode, ...]
    options: tuple[Any, ...] = ()

    def __str__(self) -> str:
        if self.kernel in _INFIX:
            return f"({self.arguments[0]} {self.kernel} {self.arguments[1]})"
        first, *rest = [str(argument) for argument in self.arguments]
        return f"{first}.{self.kernel}({', '.join([*rest, *map(repr, self.options)])})"

    def bind(self, schema: pa.Schema) -> Bound:
        bound = _bind_together(self.arguments, schema, self.kernel in _COMPARISONS)
        text = self.kernel == "+" and pa.types.is_string(bound[0].type)
        try:
            return kernels.bind_call("concat" if text else self.kernel, bound, self.options)
        except pa.ArrowException as error:
            raise GraphError(_mismatch(self, self.arguments, bound, error)) from error


@dataclass(frozen=True)
class Apply(ExpressionNode):
    """A user's function of whole columns."""

    function: Callable[..., Any]
    arguments: tuple[ExpressionNode, ...]
    returns: pa.DataType

    def __str__(self) -> str:
        return f"{self._name}({', '.join(map(str, self.arguments))})"

    @property
    def _name(self) -> str:
        return getattr(self.function, "__name__", type(self.function).__name__)

    def functions(self) -> tuple[Callable[..., Any], ...]:
        return self.function, *super().functions()

    def bind(self, schema: pa.Schema) -> Bound:
        bound = [argument.bind(schema) for argument in self.arguments]
        evaluate = tuple(argument.evaluate for argument in bound)
        nullable = any(argument.nullable for argument in bound)
        return Bound(
            self.returns, nullable, True, partial(kernels.applied, self.function, self._name, self.returns, evaluate)
        )


@dataclass(frozen=True)
class Case(ExpressionNode):
    """``then`` where the condition holds, else ``otherwise``. Each branch is evaluated only for its own rows."""

    condition: ExpressionNode
    then: ExpressionNode
    alternative: ExpressionNode

    def __str__(self) -> str:
        return f"when({self.condition}).then({self.then}).otherwise({self.alternative})"

    def bind(self, schema: pa.Schema) -> Bound:
        condition = self.condition.bind(schema)
        if not pa.types.is_boolean(condition.type):
            raise GraphError(f"{self}: the condition {self.condition} is {condition.type}, not bool")
        then, otherwise = _bind_together((self.then, self.alternative), schema, True)
        if pa.types.is_null(then.type):
            then = Literal(None).bind_beside(otherwise.type, True)
        elif pa.types.is_null(otherwise.type):
            otherwise = Literal(None).bind_beside(then.type, True)
        then, otherwise = _fitting(self.then, then, otherwise), _fitting(self.alternative, otherwise, then)
        if then.type != otherwise.type:
            raise GraphError(f"{self}: one branch is {then.type}, the other {otherwise.type}; cast one of them")
        return kernels.bind_case(condition, then, otherwise)


def _fitting(branch: ExpressionNode, bound: Bound, other: Bound) -> Bound:
    """A branch that is a plain value, in the type of the other branch if it fits: 0 beside amounts of money."""
    whole = pa.types.is_integer(bound.type) or pa.types.is_decimal(bound.type)
    if not isinstance(branch, Literal) or not whole or not pa.types.is_decimal(other.type):
        return bound
    value = natural(branch.value)
    try:
        found = kernels.as_type(value, other.type)
    except pa.ArrowException:
        return bound
    return branch.bind_as(found) if found.as_py() == value.as_py() else bound


@dataclass(frozen=True)
class Cast(ExpressionNode):
    """Casts an expression to another type."""

    argument: ExpressionNode
    target: pa.DataType

    def __str__(self) -> str:
        return f"{self.argument}.cast({self.target})"

    @property
    def name(self) -> str | None:
        return self.argument.name

    def bind(self, schema: pa.Schema) -> Bound:
        bound = self.argument.bind(schema)
        try:
            if isinstance(self.argument, Literal):
                if self.argument.value is None:
                    return self.argument.bind_as(pa.scalar(None, self.target))
                return self.argument.bind_as(kernels.as_type(natural(self.argument.value), self.target))
            return kernels.bind_cast(bound, self.target)
        except pa.ArrowException as error:
            raise GraphError(f"{self}: {self.argument} is {bound.type}, which cannot become {self.target}") from error


@dataclass(frozen=True)
class IsIn(ExpressionNode):
    """Membership in a list of plain values."""

    argument: ExpressionNode
    values: tuple[object, ...]

    def __str__(self) -> str:
        return f"{self.argument}.is_in({list(self.values)!r})"

    def bind(self, schema: pa.Schema) -> Bound:
        bound = self.argument.bind(schema)
        scalars = [fitted(value, bound.type, True) for value in self.values]
        others = [scalar for scalar in scalars if scalar.type != bound.type]
        for scalar in others:
            try:
                kernels.KERNELS["=="].compute(pa.array([], bound.type), scalar)
            except pa.ArrowException as error:
                raise GraphError(
                    f"{self}: {self.argument} is {bound.type}, {scalar.as_py()!r} is {scalar.type}, and the two cannot "
                    "be compared; cast() changes types"
                ) from error
        known = kernels.equal_to_known([scalar for scalar in scalars if scalar.type == bound.type], bound.type)
        evaluate = partial(kernels.is_in, known, tuple(others), bound.evaluate)
        return Bound(pa.bool_(), bound.nullable, bound.fallible, evaluate)


def _bind_together(arguments: Sequence[ExpressionNode], schema: pa.Schema, compared: bool) -> list[Bound]:
    """Binds arguments. A literal takes its type from the first argument that is not a literal."""
    bound = {i: argument.bind(schema) for i, argument in enumerate(arguments) if not isinstance(argument, Literal)}
    beside = next(iter(bound.values())).type if bound else None
    for i, argument in enumerate(arguments):
        if isinstance(argument, Literal):
            bound[i] = argument.bind(schema) if beside is None else argument.bind_beside(beside, compared)
    return [bound[i] for i in range(len(arguments))]


def _mismatch(call: KernelCall, arguments: Sequence[ExpressionNode], bound: Sequence[Bound], error: Exception) -> str:
    types = " and ".join(f"{argument} is {b.type}" for argument, b in zip(arguments, bound, strict=True))
    if isinstance(error, pa.ArrowNotImplementedError):
        return f"{call}: {types}, and there is no {call.kernel} for that; cast() changes types"
    remedy = "" if call.options else "; cast to a smaller type first"
    return f"{call}: {types}: {error}{remedy}"
