"""Column expressions as users write them: ``col("price") > 100``, ``col("name").lower().contains("o")``,
``when(col("b") != 0).then(col("a") // col("b")).otherwise(0)``.

Each operator and method returns a new ``Expr`` around a node of ``expressions.tree``. ``expressions.kernels`` defines
the results for nulls, overflow and division by zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from clonos_py.dsl.aggregates import AggregateExpr
from clonos_py.dsl.callsite import refused
from clonos_py.expressions.calendar import DAY_US, UNITS, UTC, check_zone
from clonos_py.expressions.literals import column_type
from clonos_py.expressions.time_patterns import check_written, time_pattern
from clonos_py.expressions.tree import Apply, Case, Cast, Column, ExpressionNode, IsIn, KernelCall, Literal
from clonos_py.model.errors import SettingError
from clonos_py.model.times import micros


@dataclass(frozen=True, eq=False)
class Expr:
    """A column expression. ``alias_name`` is its alias, if it has one."""

    node: ExpressionNode
    alias_name: str | None = None

    def __str__(self) -> str:
        return str(self.node)

    @property
    def name(self) -> str | None:
        """The name of its column: the alias, else the name of the column itself, None for a computed one."""
        return self.alias_name or self.node.name

    def alias(self, name: str) -> Expr:
        """The same expression under another name."""
        return Expr(self.node, name)

    def cast(self, target: object) -> Expr:
        """As another type: int, float, str, bool, datetime, date, Money, Instant or a pyarrow type. A value that does
        not fit raises. Whole numbers become times as microseconds UTC, text as ISO 8601. Floats become the text that
        Python writes, such as ``1.0`` and ``1e-05``."""
        return Expr(Cast(self.node, column_type(target)), self.alias_name)

    def is_null(self) -> Expr:
        return self._call("is_null")

    def is_not_null(self) -> Expr:
        return self._call("is_not_null")

    def fill_null(self, value: object) -> Expr:
        """Replaces nulls by ``value``, a plain value or an expression."""
        return Expr(coalesce(self, value).node, self.name)

    def is_in(self, values: Iterable[object]) -> Expr:
        """Whether it equals one of some plain values."""
        return Expr(IsIn(self.node, tuple(values)))

    def between(self, low: object, high: object) -> Expr:
        """Whether ``low <= self <= high``."""
        return (self >= low) & (self <= high)

    def abs(self) -> Expr:
        return self._call("abs")

    def round(self, digits: int = 0) -> Expr:
        """Rounded half to even, to this many decimal places; before the point if negative. Floats as by Python's
        ``round``."""
        if not isinstance(digits, int):
            raise refused(f"round({digits!r}): it takes a whole number of decimal places")
        return self._call("round", digits)

    def floor(self) -> Expr:
        """Rounded down to a whole number, of the same type."""
        return self._call("floor")

    def ceil(self) -> Expr:
        """Rounded up to a whole number, of the same type."""
        return self._call("ceil")

    def sign(self) -> Expr:
        """-1, 0 or 1."""
        return self._call("sign")

    def sqrt(self) -> Expr:
        """The square root, a float; NaN of a negative number."""
        return self._call("sqrt")

    def exp(self) -> Expr:
        """e to the power of the number, a float. Like ``log`` and ``**`` of floats, its last digit may differ between
        kinds of processors: do not compare such values for equality."""
        return self._call("exp")

    def log(self, base: float | None = None) -> Expr:
        """The logarithm, a float: the natural one without ``base``. NaN of a negative number."""
        if base is not None and not (isinstance(base, int | float) and base > 0 and base != 1):
            raise refused(f"log({base!r}): a base is a number above 0 other than 1")
        return self._call("log", base)

    def clip(self, low: object, high: object) -> Expr:
        """The value, but at least ``low`` and at most ``high``; null stays."""
        bounded = least(greatest(self, low), high)
        return when(self.is_not_null()).then(bounded).otherwise(None)

    def null_if(self, value: object) -> Expr:
        """Null where it equals ``value``, a plain value or an expression."""
        return when(self == value).then(None).otherwise(self)

    def lower(self) -> Expr:
        return self._call("lower")

    def upper(self) -> Expr:
        return self._call("upper")

    def strip(self) -> Expr:
        """The text without leading and trailing white space."""
        return self._call("strip")

    def length(self) -> Expr:
        """The number of characters."""
        return self._call("length")

    def contains(self, text: str) -> Expr:
        return self._call("contains", _text("contains", text))

    def starts_with(self, text: str) -> Expr:
        return self._call("starts_with", _text("starts_with", text))

    def ends_with(self, text: str) -> Expr:
        return self._call("ends_with", _text("ends_with", text))

    def matches(self, pattern: str) -> Expr:
        """Whether the regular expression matches anywhere in the text. It is one of RE2, in which ``\\d`` and ``\\w``
        match ASCII only."""
        return self._call("matches", _text("matches", pattern))

    def replace(self, old: str, new: str) -> Expr:
        """The text with ``new`` in place of each ``old``, which is not empty."""
        if not _text("replace", old):
            raise refused("replace('', ...): it takes the text to replace, which is not empty")
        return self._call("replace", old, _text("replace", new))

    def slice(self, start: int, stop: int | None = None) -> Expr:
        """Characters ``start`` up to ``stop``, counted from 0, or from the end if negative."""
        if not isinstance(start, int) or not isinstance(stop, int | None):
            raise refused(f"slice({start!r}, {stop!r}): it takes whole numbers")
        return self._call("slice", start, stop)

    def split_part(self, separator: str, index: int) -> Expr:
        """Part ``index``, from 0, of the text split at ``separator``; null if it has fewer parts."""
        if not isinstance(index, int) or index < 0 or not _text("split_part", separator):
            raise refused(f"split_part({separator!r}, {index}): it takes a separator and an index from 0")
        return self._call("split", separator)._call("part", index)

    def extract(self, pattern: str, group: int = 1) -> Expr:
        """The text of a group at the first match of a regular expression; group 0 is the whole match. Null without a
        match, and where the group is no part of it. The expression is one of Rust, in which ``\\d`` and ``\\w`` match
        digits and letters of all scripts."""
        if not isinstance(group, int) or group < 0:
            raise refused(f"extract(..., {group!r}): it takes the number of a group, from 0")
        return self._call("extract", _text("extract", pattern), group)

    def strptime(self, pattern: str, *, zone: str = UTC, strict: bool = True) -> Expr:
        """Parses text as a datetime: ``strptime("%d/%m/%Y %H:%M")``. Directives are those of Python: ``.%f`` is a
        fraction of a second, ``%z`` a zone. Text without one is of the time zone ``zone``; of two moments with the same
        text, when a clock is set back, it is the first. ``%y`` from 70 is in the last century. A pattern without a year
        is refused; other missing parts have their least value. Text that does not fit the pattern, or that no clock of
        the zone shows, fails the job with an error that names it, or gives null if not ``strict``."""
        if not isinstance(pattern, str) or "%" not in pattern:
            raise refused(f"strptime({pattern!r}): it takes a pattern such as '%d/%m/%Y %H:%M'")
        try:
            time_pattern(pattern)
        except ValueError as error:
            raise refused(f"strptime({pattern!r}): {error}") from error
        return self._call("strptime" if strict else "try_strptime", pattern, *_zone("strptime", zone, pattern))

    def strftime(self, pattern: str, *, zone: str = UTC) -> Expr:
        """Formats a datetime, a date or an Instant as text, as a clock in the time zone shows it:
        ``strftime("%Y-%m-%d %H:%M", zone="Europe/Berlin")``. Directives are those of Python; years have four digits. An
        unknown one is refused."""
        try:
            check_written(pattern)
        except (TypeError, ValueError) as error:
            raise refused(f"strftime({pattern!r}): {error}") from error
        return self._call("strftime", pattern, *_zone("strftime", zone, pattern))

    def truncate(self, every: str, *, zone: str = UTC) -> Expr:
        """A datetime, a date or an Instant rounded down to the beginning of its ``"year"``, ``"quarter"``, ``"month"``,
        ``"week"`` (Monday), ``"day"``, ``"hour"``, ``"minute"`` or ``"second"``, or to a duration that divides a day,
        such as ``"15m"``, as a clock in the time zone shows it."""
        return self._in_zone("truncate", zone, _unit(every))

    def year(self, *, zone: str = UTC) -> Expr:
        """The year of a datetime, a date or an Instant, in the time zone. So are the other parts."""
        return self._in_zone("year", zone)

    def quarter(self, *, zone: str = UTC) -> Expr:
        """1 to 4."""
        return self._in_zone("quarter", zone)

    def month(self, *, zone: str = UTC) -> Expr:
        """1 to 12."""
        return self._in_zone("month", zone)

    def week(self, *, zone: str = UTC) -> Expr:
        """The week of ISO 8601, 1 to 53: week 1 has the year's first Thursday."""
        return self._in_zone("week", zone)

    def day(self, *, zone: str = UTC) -> Expr:
        """The day of the month, 1 to 31."""
        return self._in_zone("day", zone)

    def weekday(self, *, zone: str = UTC) -> Expr:
        """The day of the week of ISO 8601: 1 is Monday, 7 Sunday."""
        return self._in_zone("weekday", zone)

    def day_of_year(self, *, zone: str = UTC) -> Expr:
        """1 to 366."""
        return self._in_zone("day_of_year", zone)

    def hour(self, *, zone: str = UTC) -> Expr:
        """0 to 23."""
        return self._in_zone("hour", zone)

    def minute(self, *, zone: str = UTC) -> Expr:
        """0 to 59."""
        return self._in_zone("minute", zone)

    def second(self, *, zone: str = UTC) -> Expr:
        """0 to 59."""
        return self._in_zone("second", zone)

    def field(self, name: str) -> Expr:
        """A field of a nested record; null where the record is."""
        return self._call("field", _text("field", name))

    def list_length(self) -> Expr:
        """The number of elements of a list."""
        return self._call("list_length")

    def list_get(self, index: int) -> Expr:
        """Element ``index`` of a list, from 0, or from its end if negative; null if the list is shorter."""
        if type(index) is not int:
            raise refused(f"list_get({index!r}): it takes a whole number")
        return self._call("list_get", index)

    def list_contains(self, value: object) -> Expr:
        """Whether one of the elements of a list is a plain value."""
        if value is None or isinstance(value, Expr):
            raise refused(f"list_contains({value}): it takes a plain value")
        return self._call("list_contains", value)

    def json_value(self, path: str) -> Expr:
        """The value at a path of text with JSON, as text: ``json_value("$.user.names[0]")``. Null where there is none,
        and where the text is no JSON. ``cast`` makes numbers of it."""
        return self._call("json_value", _text("json_value", path))

    def count(self) -> AggregateExpr:
        """The number of rows of the group in which the value is not null."""
        return AggregateExpr("count", self.node)

    def count_distinct(self) -> AggregateExpr:
        """The number of distinct values; null does not count."""
        return AggregateExpr("count_distinct", self.node)

    def sum(self) -> AggregateExpr:
        """The sum of the values that are not null; NaN if one of them is NaN."""
        return AggregateExpr("sum", self.node)

    def min(self) -> AggregateExpr:
        """The least value that is not null. As in Polars, NaN does not count unless all values are NaN."""
        return AggregateExpr("min", self.node)

    def max(self) -> AggregateExpr:
        """The greatest value that is not null. As in Polars, NaN does not count unless all values are NaN."""
        return AggregateExpr("max", self.node)

    def mean(self, *, whole: bool = False) -> AggregateExpr:
        """The mean of the values that are not null; NaN if one of them is NaN. ``whole``: the mean of integers as an
        integer, rounded towards zero, as in SQL."""
        return AggregateExpr("mean", self.node, returns=pa.int64() if whole else None)

    def var(self, *, ddof: int = 1) -> AggregateExpr:
        """The variance of the values that are not null: of a sample, or with ``ddof=0`` of all there are. NaN if one of
        them is NaN, null if there are no more than ``ddof``."""
        return AggregateExpr("var", self.node, option=_degrees("var", ddof))

    def std(self, *, ddof: int = 1) -> AggregateExpr:
        """The standard deviation, the root of ``var``."""
        return AggregateExpr("std", self.node, option=_degrees("std", ddof))

    def approx_quantile(self, share: float) -> AggregateExpr:
        """About the least value that at least this share of the values, 0 to 1, does not exceed: 0.5 is the median. It
        is at most 0.4% closer to 0 than that value. NaN is the greatest value. A sketch of the values is kept, not the
        values: at most 256 numbers for each power of two between them."""
        if not isinstance(share, int | float) or not 0 <= share <= 1:
            raise refused(f"approx_quantile({share!r}): it takes a share of the values, 0 to 1")
        return AggregateExpr("approx_quantile", self.node, option=float(share))

    def approx_count_distinct(self) -> AggregateExpr:
        """About the number of distinct values; null does not count. The standard error is 1.6%. At most 4,096 numbers
        are kept, whatever the number of values (HyperLogLog)."""
        return AggregateExpr("approx_count_distinct", self.node)

    def first(self) -> AggregateExpr:
        """The first value that is not null. Rows count in the order in which they reach the operator, regardless of
        event time; recovery after a failure repeats that order."""
        return AggregateExpr("first", self.node)

    def last(self) -> AggregateExpr:
        """The last value that is not null; for the order see ``first``."""
        return AggregateExpr("last", self.node)

    def collect(self, *, limit: int | None = None) -> AggregateExpr:
        """All values that are not null, in order of arrival; see ``first``. The state holds the whole list.

        ``limit``: only the first so many, in the order of event time, then of arrival; without event time, and in count
        windows and tables, in order of arrival."""
        if limit is not None and (type(limit) is not int or limit < 1):
            raise refused(f"collect(limit={limit!r}): it takes a number of values, at least 1")
        return AggregateExpr("collect", self.node, option=limit)

    def asc(self) -> SortOrder:
        """Ascending; nulls and NaN last."""
        return SortOrder(self)

    def desc(self) -> SortOrder:
        """Descending; nulls and NaN last."""
        return SortOrder(self, descending=True)

    def __add__(self, other: object) -> Expr:
        return _binary("+", self, other)

    def __radd__(self, other: object) -> Expr:
        return _binary("+", other, self)

    def __sub__(self, other: object) -> Expr:
        return _binary("-", self, other)

    def __rsub__(self, other: object) -> Expr:
        return _binary("-", other, self)

    def __mul__(self, other: object) -> Expr:
        return _binary("*", self, other)

    def __rmul__(self, other: object) -> Expr:
        return _binary("*", other, self)

    def __truediv__(self, other: object) -> Expr:
        return _binary("/", self, other)

    def __rtruediv__(self, other: object) -> Expr:
        return _binary("/", other, self)

    def __floordiv__(self, other: object) -> Expr:
        return _binary("//", self, other)

    def __rfloordiv__(self, other: object) -> Expr:
        return _binary("//", other, self)

    def __mod__(self, other: object) -> Expr:
        return _binary("%", self, other)

    def __rmod__(self, other: object) -> Expr:
        return _binary("%", other, self)

    def __pow__(self, other: object) -> Expr:
        return _binary("**", self, other)

    def __rpow__(self, other: object) -> Expr:
        return _binary("**", other, self)

    def __neg__(self) -> Expr:
        return self._call("negate")

    def __gt__(self, other: object) -> Expr:
        return _binary(">", self, other)

    def __ge__(self, other: object) -> Expr:
        return _binary(">=", self, other)

    def __lt__(self, other: object) -> Expr:
        return _binary("<", self, other)

    def __le__(self, other: object) -> Expr:
        return _binary("<=", self, other)

    def __eq__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary("==", self, other)

    def __ne__(self, other: object) -> Expr:  # type: ignore[override]
        return _binary("!=", self, other)

    __hash__ = object.__hash__

    def __and__(self, other: object) -> Expr:
        return _binary("&", self, other)

    def __rand__(self, other: object) -> Expr:
        return _binary("&", other, self)

    def __or__(self, other: object) -> Expr:
        return _binary("|", self, other)

    def __ror__(self, other: object) -> Expr:
        return _binary("|", other, self)

    def __invert__(self) -> Expr:
        return self._call("~")

    def __bool__(self) -> bool:
        raise refused(f"{self} has no value yet: write & for and, | for or, ~ for not, between() for a < x < b")

    def _call(self, kernel: str, *options: object) -> Expr:
        return Expr(KernelCall(kernel, (self.node,), options))

    def _in_zone(self, kernel: str, zone: str, *options: object) -> Expr:
        """A call of a kernel whose last option is a time zone, but for UTC."""
        return self._call(kernel, *options, *_zone(kernel, zone))


@dataclass(frozen=True)
class SortOrder:
    """The sort order of rows: ``col("price").desc()``."""

    by: Expr
    descending: bool = False


SortOrders = str | SortOrder | Sequence[str | SortOrder]
"""Sort orders as users may write them: a column stands for its ascending order."""


def col(name: str) -> Expr:
    """The column of that name."""
    if not isinstance(name, str):
        raise refused(f"col({name!r}): it takes the name of a column; a plain value is lit({name!r})")
    return Expr(Column(name))


def lit(value: object) -> Expr:
    """A plain value as an expression."""
    return Expr(Literal(value))


def apply(function: Callable[..., Any], *columns: str | Expr, returns: object) -> Expr:
    """A user's function over whole columns. It takes pyarrow arrays and returns one with as many values, of the type
    ``returns``. The result for a row must depend on that row alone (see ``deterministic``)."""
    arguments = tuple(Column(column) if isinstance(column, str) else node_of(column) for column in columns)
    if not callable(function) or not arguments:
        raise refused(f"apply({function!r}, ...): it takes a function and at least one column")
    return Expr(Apply(function, arguments, column_type(returns)))


def coalesce(*values: object) -> Expr:
    """The first of some values that is not null. Each is an expression or a plain value."""
    if not values:
        raise refused("coalesce(): it takes at least one value")
    *others, last = map(node_of, values)
    for value in reversed(others):
        last = Case(KernelCall("is_not_null", (value,)), value, last)
    return Expr(last)


def least(*values: object) -> Expr:
    """The least of some values of each row; nulls do not count."""
    return _extreme("least", values)


def greatest(*values: object) -> Expr:
    """The greatest of some values of each row; nulls do not count."""
    return _extreme("greatest", values)


def _extreme(kernel: str, values: Sequence[object]) -> Expr:
    if len(values) < 2:
        raise refused(f"{kernel}(...): it takes two values or more")
    return Expr(KernelCall(kernel, tuple(map(node_of, values))))


def node_of(value: object) -> ExpressionNode:
    """The tree of an expression; a plain value is a literal. Raises GraphError for what is neither."""
    if isinstance(value, When | Then):
        raise refused("when(...) lacks its end: write .otherwise(...) behind .then(...); it may be .otherwise(None)")
    if isinstance(value, AggregateExpr):
        raise refused(f"{value} is an aggregate: it stands in aggregate(...), not inside another expression")
    return value.node if isinstance(value, Expr) else Literal(value)


def _degrees(method: str, ddof: object) -> int:
    if type(ddof) is not int or ddof not in (0, 1):
        raise refused(f"{method}(ddof={ddof!r}): it is 1 for a sample, or 0 for all there are")
    return ddof


def _text(method: str, value: object) -> str:
    """The plain text that a method takes. Raises GraphError for anything else."""
    if not isinstance(value, str):
        raise refused(f"{method}({value}): it takes plain text; apply() calls your own function of several columns")
    return value


def _zone(method: str, zone: object, pattern: str = "") -> tuple[str, ...]:
    """The option for a time zone; none for UTC. Raises GraphError for what is no zone, and for a pattern that has one
    itself."""
    if zone == UTC:
        return ()
    if "%z" in pattern or "%Z" in pattern:
        raise refused(f"{method}({pattern!r}, zone={zone!r}): the pattern has a zone itself")
    if not isinstance(zone, str):
        raise refused(f"{method}(zone={zone!r}): it takes the name of a time zone, such as 'Europe/Berlin'")
    try:
        check_zone(zone)
    except ValueError as error:
        raise refused(f"{method}(zone={zone!r}): {error}") from error
    return (zone,)


def _unit(every: object) -> str | int:
    """What times are rounded to: a unit of the calendar, or microseconds. Raises GraphError."""
    if every in UNITS:
        return str(every)
    clock = {"hour": "1h", "minute": "1m", "second": "1s"}
    try:
        found = micros(clock.get(every, every) if isinstance(every, str) else every)  # type: ignore[arg-type]
    except SettingError as error:
        units = ", ".join((*UNITS, *clock))
        raise refused(f"truncate({every!r}): it takes {units}, or a duration such as '15m'") from error
    if found <= 0 or DAY_US % found:
        raise refused(f"truncate({every!r}): it takes a duration that divides a day, or a unit such as 'week'")
    return found


def _binary(kernel: str, left: object, right: object) -> Expr:
    return Expr(KernelCall(kernel, (node_of(left), node_of(right))))


@dataclass(frozen=True)
class Then:
    """``when(...).then(...)``, to be followed by further cases or ``otherwise``."""

    cases: tuple[tuple[ExpressionNode, ExpressionNode], ...]

    def when(self, condition: Expr) -> When:
        return When(node_of(condition), self.cases)

    def otherwise(self, value: object) -> Expr:
        """The value where no case holds."""
        result = node_of(value)
        for condition, then in reversed(self.cases):
            result = Case(condition, then, result)
        return Expr(result)


@dataclass(frozen=True)
class When:
    """``when(...)``, to be followed by ``then``."""

    condition: ExpressionNode
    before: tuple[tuple[ExpressionNode, ExpressionNode], ...] = ()

    def then(self, value: object) -> Then:
        return Then((*self.before, (self.condition, node_of(value))))


def when(condition: Expr) -> When:
    """A conditional: ``when(a).then(1).when(b).then(2).otherwise(0)``. The first true case decides; null is false."""
    return When(node_of(condition))
