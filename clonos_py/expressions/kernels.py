"""The kernels of expressions: named functions over Arrow columns, and the binding of a call to column types.

A kernel takes arrays or scalars and returns an array or a scalar. Its output type is that of its result for empty
input, so Arrow's own kernels are the only source of types. All kernels are single-threaded and deterministic.

Semantics: null in, null out (``&`` and ``|`` are Kleene's); integer overflow and division of integers or decimals by
zero raise; floats follow IEEE 754; ``//`` and ``%`` round down, as in Python, and ``/`` of integers gives a float.
"""

from __future__ import annotations

import functools
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.casting import floats_as_text, is_text
from clonos_py.columns.decimals import as_floats, integers_times
from clonos_py.columns.grouping import group_integers
from clonos_py.columns.rounding import rounded
from clonos_py.columns.sampling import sampled
from clonos_py.columns.times import DURATION, MOMENT, from_iso, instants, moments, to_iso
from clonos_py.columns.views import fixed, valid
from clonos_py.expressions.calendar import PARTS, UTC, local, moment, of_local, part, truncated
from clonos_py.expressions.nested import json_value, list_contains, list_element, list_length, struct_field
from clonos_py.expressions.numbers import (
    exponential,
    extreme,
    logarithm,
    power,
    rounded_down,
    rounded_up,
    sign,
    square_root,
)
from clonos_py.expressions.time_patterns import around_microseconds, time_pattern
from clonos_py.model.errors import Interrupted, UserCodeError, shown
from clonos_py.model.places import blamed, place_of_function

Values = Any
"""A pyarrow Array or Scalar; the stubs have no common type for the two."""


_ZERO: Values = pa.scalar(0)
_ONE: Values = pa.scalar(1)
_MINUS_ONE: Values = pa.scalar(-1)
_SECOND_US: Values = pa.scalar(1_000_000)
_FIRST_TEXTS = 1_024
_COARSE = frozenset("YmdHMyjBbAae%")
"""Directives of strftime that do not depend on seconds."""


@dataclass(frozen=True)
class Kernel:
    """A kernel: ``compute(*values)`` or, with options, ``compute(*values, *options)``."""

    compute: Callable[..., Values]
    gives_null: bool | None = None
    """True: may give null for non-null input. False: never gives null. None: gives null for null input only."""
    fallible: bool = False
    """It may raise for some values; so a conditional evaluates it only for the rows of its branch."""


@dataclass(frozen=True)
class Bound:
    """An expression with all types resolved. ``evaluate`` is picklable and returns an array or a scalar of ``type``."""

    type: pa.DataType
    nullable: bool
    fallible: bool
    evaluate: Callable[[pa.RecordBatch], Values]


def bind_call(name: str, arguments: Sequence[Bound], options: tuple[Any, ...]) -> Bound:
    """Binds a kernel to its arguments. Raises pyarrow's exception if the kernel does not take these types."""
    kernel = KERNELS[name]
    result = kernel.compute(*(pa.array([], argument.type) for argument in arguments), *options)
    nullable = any(argument.nullable for argument in arguments) if kernel.gives_null is None else kernel.gives_null
    return Bound(
        type=result.type,
        nullable=nullable,
        fallible=kernel.fallible or any(argument.fallible for argument in arguments),
        evaluate=partial(_evaluate, name, tuple(argument.evaluate for argument in arguments), options),
    )


def bind_cast(argument: Bound, target: pa.DataType) -> Bound:
    """Binds a checked cast, which raises for values that do not fit. Raises pyarrow's exception if there is none."""
    if argument.type == target:
        return argument
    as_type(pa.array([], argument.type), target)
    return Bound(target, argument.nullable, True, partial(_cast, argument.evaluate, target))


def bind_case(condition: Bound, then: Bound, otherwise: Bound) -> Bound:
    """Binds a conditional whose branches have one type; null counts as false."""
    nullable = then.nullable or otherwise.nullable
    fallible = condition.fallible or then.fallible or otherwise.fallible
    choose = _choose_guarded if then.fallible or otherwise.fallible else _choose
    return Bound(then.type, nullable, fallible, partial(choose, condition.evaluate, then.evaluate, otherwise.evaluate))


def as_array(values: Values, rows: int) -> pa.Array[Any]:
    """Values as a column of ``rows`` rows; a scalar is repeated."""
    return values if isinstance(values, pa.Array) else pa.repeat(values, rows)


def column(name: str, rows: pa.RecordBatch) -> Values:
    return rows.column(name)


def constant(value: pa.Scalar[Any], rows: pa.RecordBatch) -> Values:
    return value


def is_in(
    known: pa.Array[Any],
    others: tuple[Values, ...],
    argument: Callable[[pa.RecordBatch], Values],
    rows: pa.RecordBatch,
) -> Values:
    """Whether ``==`` holds for one of the values ``known``, which have the argument's type, or of ``others``,
    which have other types; null in, null out."""
    values = argument(rows)
    found: Values = pc.is_in(values, value_set=known)
    for value in others:
        equal: Values = compared("==", values, value)
        found = pc.or_(found, pc.fill_null(equal, pa.scalar(False)))
    return pc.if_else(pc.is_valid(values), found, pa.scalar(None, pa.bool_()))


def equal_to_known(known: Sequence[pa.Scalar[Any]], kind: pa.DataType) -> pa.Array[Any]:
    """The set of values for which ``is_in`` of Arrow, which compares bits, gives what ``==`` gives: both zeros are
    equal, and NaN equals nothing."""
    values = [scalar.as_py() for scalar in known]
    if pa.types.is_floating(kind):
        values = [value for value in values if value is None or value == value]
        values += [0.0, -0.0] if 0.0 in values else []
    return pa.array(values, kind)


def applied(
    function: Callable[..., Any],
    name: str,
    target: pa.DataType,
    arguments: tuple[Callable[[pa.RecordBatch], Values], ...],
    rows: pa.RecordBatch,
) -> Values:
    """Calls a user's function of arrays. Raises UserCodeError for its errors, and for a result that does not fit."""
    given = [as_array(argument(rows), rows.num_rows) for argument in arguments]
    try:
        result = function(*given)
    except Interrupted:
        raise
    except BaseException as error:
        raise blamed(f"{name} raised {shown(error)}", error, function) from error
    if not isinstance(result, pa.Array) or len(result) != rows.num_rows:
        found = f"{len(result)} values" if isinstance(result, pa.Array) else type(result).__name__
        message = f"{name} gave {found}: it takes and gives pyarrow arrays of {rows.num_rows} values"
        raise UserCodeError(message, place_of_function(function))
    return result if result.type == target else result.cast(target)


def _evaluate(
    name: str,
    arguments: tuple[Callable[[pa.RecordBatch], Values], ...],
    options: tuple[Any, ...],
    rows: pa.RecordBatch,
) -> Values:
    return KERNELS[name].compute(*(argument(rows) for argument in arguments), *options)


def _cast(argument: Callable[[pa.RecordBatch], Values], target: pa.DataType, rows: pa.RecordBatch) -> Values:
    return as_type(argument(rows), target)


def as_type(values: Values, target: pa.DataType) -> Values:
    """A checked cast. Decimals are rounded half to even to fewer places, as Money is. Whole numbers become times as
    microseconds UTC, as an Instant does, and text as ISO 8601. Times are rounded down to a coarser unit. Floats become
    the text that Python writes."""
    if target == pa.int64() and pa.types.is_timestamp(values.type):
        return instants(values)
    if isinstance(target, pa.TimestampType):
        return _as_timestamp(values, target)
    if target == pa.string() and pa.types.is_timestamp(values.type):
        return to_iso(values)
    if isinstance(target, pa.Decimal128Type) and pa.types.is_integer(values.type):
        return values.cast(pa.decimal128(38, target.scale)).cast(target)
    if isinstance(target, pa.Decimal128Type) and pa.types.is_decimal(values.type) and values.type.scale > target.scale:
        return _round(values, target.scale).cast(target)
    if pa.types.is_decimal(values.type) and pa.types.is_floating(target):
        return as_floats(values, target)
    if pa.types.is_floating(values.type) and is_text(target):
        return floats_as_text(values, target)
    return values.cast(target)


def _as_timestamp(values: Values, target: pa.TimestampType[Any, Any]) -> Values:
    if pa.types.is_string(values.type):
        return from_iso(values).cast(target)
    if pa.types.is_integer(values.type):
        values = values.cast(pa.int64()).cast(MOMENT)
    finer = not pa.types.is_timestamp(values.type) or values.type.unit != target.unit
    return (_floor_to(values, target.unit) if finer else values).cast(target)


def _floor_to(values: Values, unit: str) -> Values:
    names: dict[str, Any] = {"s": "second", "ms": "millisecond", "us": "microsecond", "ns": "nanosecond"}
    return pc.floor_temporal(values, unit=names[unit])


def _choose(
    condition: Callable[[pa.RecordBatch], Values],
    then: Callable[[pa.RecordBatch], Values],
    otherwise: Callable[[pa.RecordBatch], Values],
    rows: pa.RecordBatch,
) -> Values:
    return pc.if_else(pc.fill_null(condition(rows), False), then(rows), otherwise(rows))


def _choose_guarded(
    condition: Callable[[pa.RecordBatch], Values],
    then: Callable[[pa.RecordBatch], Values],
    otherwise: Callable[[pa.RecordBatch], Values],
    rows: pa.RecordBatch,
) -> Values:
    """Evaluates each branch on its own rows only, so that ``when(b != 0).then(a // b)`` cannot divide by zero."""
    chosen = as_array(pc.fill_null(condition(rows), False), rows.num_rows)
    yes, no = rows.filter(chosen), rows.filter(pc.invert(chosen))
    values = pa.concat_arrays([as_array(then(yes), yes.num_rows), as_array(otherwise(no), no.num_rows)])
    # The position of each row's value: the chosen rows come first, in order, then the others, in order.
    before = pc.subtract(pc.cumulative_sum(pc.cast(chosen, pa.int64())), 1)
    other = pc.add(pc.cumulative_sum(pc.cast(pc.invert(chosen), pa.int64())), yes.num_rows - 1)
    return values.take(pc.if_else(chosen, before, other))


def _arrow(function: str) -> Callable[..., Values]:
    return partial(_call, function)


def _call(function: str, *values: Values) -> Values:
    return pc.call_function(function, list(values))


def compared(comparison: str, left: Values, right: Values) -> Values:
    """Compares two columns. Numbers are compared exactly, as in Python, also integers beyond 2**53 with floats and
    beyond 2**63 with signed integers, which Arrow refuses to compare. A decimal beside a float counts as the nearest
    float."""
    compare, function = _COMPARISONS[comparison]
    if pa.types.is_decimal(left.type) or pa.types.is_decimal(right.type):
        left, right = _alike(left, right)
    try:
        return pc.call_function(function, [left, right])
    except pa.ArrowInvalid:
        if not all(pa.types.is_integer(side.type) or pa.types.is_floating(side.type) for side in (left, right)):
            raise
    rows = next((len(side) for side in (left, right) if isinstance(side, pa.Array)), 1)
    pairs = zip(*(as_array(side, rows).to_pylist() for side in (left, right)), strict=True)
    found = pa.array([None if a is None or b is None else compare(a, b) for a, b in pairs], pa.bool_())
    return found if isinstance(left, pa.Array) or isinstance(right, pa.Array) else found[0]


_COMPARISONS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    ">": (operator.gt, "greater"),
    ">=": (operator.ge, "greater_equal"),
    "<": (operator.lt, "less"),
    "<=": (operator.le, "less_equal"),
    "==": (operator.eq, "equal"),
    "!=": (operator.ne, "not_equal"),
}


def _alike(left: Values, right: Values) -> tuple[Values, Values]:
    """The two sides. A number beside a float becomes the nearest float, as in Python: Arrow refuses integers beyond
    2**53, and gives neighbours for decimals."""
    kind = _common_float(left.type, right.type)
    return (left, right) if kind is None else (_nearest(left, kind), _nearest(right, kind))


@functools.cache
def _common_float(left: pa.DataType, right: pa.DataType) -> pa.DataType | None:
    """The type of the results for two numbers of which one only is a float; None for other types."""
    if pa.types.is_floating(left) == pa.types.is_floating(right) or not (_is_number(left) and _is_number(right)):
        return None
    found: pa.DataType = pc.add(pa.array([], left), pa.array([], right)).type
    return found


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _nearest(values: Values, kind: pa.DataType) -> Values:
    return as_floats(values, kind) if pa.types.is_decimal(values.type) else values.cast(kind, safe=False)


def _sum(left: Values, right: Values) -> Values:
    total = pc.add_checked(*_alike(left, right))
    return _day_of(total) if pa.types.is_date(left.type) or pa.types.is_date(right.type) else total


def _difference(left: Values, right: Values) -> Values:
    """The difference of dates is a duration in microseconds, as of datetimes; a date minus a duration is a date."""
    found = pc.subtract_checked(*_alike(left, right))
    if not pa.types.is_date(left.type):
        return found
    return found.cast(DURATION) if pa.types.is_duration(found.type) else _day_of(found)


def _day_of(times: Values) -> Values:
    return pc.floor_temporal(times, unit="day").cast(pa.date32())


def _product(left: Values, right: Values) -> Values:
    integers, factor = (left, right) if isinstance(right, pa.Scalar) else (right, left)
    if isinstance(factor, pa.Decimal128Scalar) and factor.is_valid and _whole(integers):
        found = integers_times(integers, factor)
        if found is not None:
            return found
    return pc.multiply_checked(*_alike(left, right))


def _whole(values: Values) -> bool:
    return isinstance(values, pa.Array) and pa.types.is_integer(values.type) and values.null_count == 0


def _ratio(left: Values, right: Values) -> Values:
    if pa.types.is_integer(left.type) and pa.types.is_integer(right.type):
        return pc.divide(left.cast(pa.float64(), safe=False), _no_zero(right).cast(pa.float64(), safe=False))
    if pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
        return pc.divide(*_alike(left, right))
    return pc.divide_checked(left, right)


def _no_zero(divisor: Values) -> Values:
    if pc.any(pc.equal(divisor, _ZERO)).as_py():
        raise pa.ArrowInvalid("divide by zero")
    return divisor


def _floor_divide(left: Values, right: Values) -> Values:
    if pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
        return _of_floats(np.floor_divide, left, right)
    quotient = _integer(pc.divide_checked(left, right))
    rest = pc.subtract(left, pc.multiply(quotient, right))
    rounded_up = pc.and_(pc.not_equal(rest, _ZERO), pc.xor(pc.less(rest, _ZERO), pc.less(right, _ZERO)))
    return pc.subtract(quotient, rounded_up.cast(quotient.type))


def _modulo(left: Values, right: Values) -> Values:
    if pa.types.is_floating(left.type) or pa.types.is_floating(right.type):
        return _of_floats(np.remainder, left, right)
    try:
        quotient = pc.divide_checked(left, right)
    except pa.ArrowInvalid:  # by zero, which raises again, or -2**63 by -1, whose rest is that by 1
        right = pc.if_else(pc.equal(right, _MINUS_ONE), _ONE.cast(right.type), right)
        quotient = pc.divide_checked(left, right)
    rest = pc.subtract(left, pc.multiply(_integer(quotient), right))
    other_sign = pc.and_(pc.not_equal(rest, _ZERO), pc.xor(pc.less(rest, _ZERO), pc.less(right, _ZERO)))
    return pc.if_else(other_sign, pc.add(rest, right), rest)


def _of_floats(function: np.ufunc, left: Values, right: Values) -> Values:
    """``//`` and ``%`` of floats as in Python: the rest is exact, although the quotient may not be."""
    kind = pc.add(pa.array([], left.type), pa.array([], right.type)).type
    sides = [_nearest(values, kind) for values in (left, right)]
    scalar = all(isinstance(values, pa.Scalar) for values in sides)
    sides = [pa.array([side.as_py()], kind) if isinstance(side, pa.Scalar) else side for side in sides]
    known = [mask for side in sides if (mask := valid(side)) is not None]
    with np.errstate(all="ignore"):
        found = function(*map(fixed, sides))
    missing = None if not known else ~np.logical_and.reduce([np.broadcast_to(mask, found.shape) for mask in known])
    result: Values = pa.array(found, kind, mask=missing)
    return result[0] if scalar else result


def _integer(quotient: Values) -> Values:
    if not pa.types.is_integer(quotient.type):
        raise pa.ArrowNotImplementedError("whole-number division takes integers and floats")
    return quotient


def _length(text: Values) -> Values:
    return pc.utf8_length(text).cast(pa.int64())


def _concat(*parts: Values) -> Values:
    return pc.binary_join_element_wise(*parts, pa.scalar("", parts[0].type))


def _split(text: Values, separator: str) -> Values:
    """Lists of parts, read by ``_part`` only. If texts repeat, only the dictionary is split."""
    if isinstance(text, pa.Array) and _repeats(text):
        encoded: Values = text.dictionary_encode()
        return pa.DictionaryArray.from_arrays(encoded.indices, pc.split_pattern(encoded.dictionary, separator))
    return pc.split_pattern(text, separator)


def _extract(text: Values, pattern: str, number: int) -> Values:
    """Group ``number`` of the first match of a regular expression; null without a match."""
    import polars as pl

    if isinstance(text, pa.Scalar):
        return _extract(pa.array([text.as_py()], text.type), pattern, number)[0]
    try:  # polars does not check the pattern on an empty column, and gives null for a group that there is not
        groups = len(pl.Series([""]).str.extract_groups(pattern).struct.fields)
        if number > groups:
            raise pa.ArrowInvalid(f"the pattern has no group {number}, only {groups}")
        if _repeats(text):
            encoded: Values = text.dictionary_encode()
            return _extract(encoded.dictionary, pattern, number).take(encoded.indices)
        found = pl.Series(pl.from_arrow(text)).str.extract(pattern, number)
    except pl.exceptions.PolarsError as error:
        raise pa.ArrowInvalid(_reason(error)) from error
    return found.to_arrow().cast(text.type)


def _reason(error: Exception) -> str:
    """What is wrong with a regular expression. The text of Polars has several lines, of which one says it."""
    lines = str(error).splitlines()
    return next((line for line in lines if line.startswith("error: ")), lines[0]).removeprefix("error: ")


def _repeats(text: Values) -> bool:
    """Whether most of the first texts are repeated; then processing each distinct text once is faster."""
    first = text.slice(0, _FIRST_TEXTS)
    return len(text) > _FIRST_TEXTS and 2 * pc.count_distinct(first).as_py() < _FIRST_TEXTS


def _strftime(times: Values, pattern: str, zone: str = UTC) -> Values:
    """Formats times as text, with the digits of the microsecond for each ``%f``."""
    if isinstance(times, pa.Scalar):
        return _strftime(pa.array([times.as_py()], times.type), pattern, zone)[0]
    times = moment(times) if zone == UTC else local(times, zone).cast(MOMENT)
    parts = around_microseconds(pattern)
    if len(parts) == 1:
        return _formatted(times, pattern)
    digits = _modulo(moment(times), _SECOND_US).cast(pa.string())
    digits = pc.utf8_lpad(digits, 6, "0")
    written = [_formatted(times, part) if part else pa.scalar("") for part in parts]
    return pc.binary_join_element_wise(*written, digits) if len(parts) > 1 else written[0]


def _formatted(times: Values, pattern: str) -> Values:
    """Formats times as text, once for each minute, or for each second if the pattern has seconds."""
    unit_us = 60_000_000 if set(re.findall("%(.)", pattern)) <= _COARSE else 1_000_000
    units = fixed(pc.fill_null(moment(times), _ZERO)) // unit_us
    moments = group_integers(units)
    seconds: Values = pa.array(units[moments.first] * (unit_us // 1_000_000))
    written: Values = pc.strftime(seconds.cast(pa.timestamp("s", "UTC")), pattern)
    known = valid(times)
    return written.take(pa.array(moments.ids, mask=None if known is None else ~known))


def _strptime(text: Values, pattern: str, zone: str = UTC, *, strict: bool) -> Values:
    """Parses text as times; text without a zone is of this one. ``%f`` is a fraction of a second, as in Python."""
    import polars as pl

    if isinstance(text, pa.Scalar):
        return _strptime(pa.array([text.as_py()], text.type), pattern, zone, strict=strict)[0]
    if not pa.types.is_string(text.type):
        raise pa.ArrowNotImplementedError("strptime reads text")
    spelled, rest = time_pattern(pattern)
    whole = pc.binary_join_element_wise(text, rest, "") if rest else text
    try:
        found: Values = (
            pl.Series(pl.from_arrow(whole)).str.strptime(pl.Datetime("us"), spelled, strict=False).to_arrow()
        )
    except pl.exceptions.PolarsError as error:
        raise pa.ArrowInvalid(str(error)) from error
    if zone != UTC:
        found = of_local(found, zone)
    if strict and found.null_count > text.null_count:
        misread = pc.and_(pc.is_null(found), pc.is_valid(text))
        raise pa.ArrowInvalid(f"{text.filter(misread)[0].as_py()!r} is not a time of the form {pattern!r}")
    return moments(found)


def _contains(text: Values, pattern: str) -> Values:
    return pc.match_substring(text, pattern)


def _starts_with(text: Values, pattern: str) -> Values:
    return pc.starts_with(text, pattern)


def _ends_with(text: Values, pattern: str) -> Values:
    return pc.ends_with(text, pattern)


def _matches(text: Values, pattern: str) -> Values:
    if isinstance(text, pa.Array) and not len(text):  # Arrow does not check the pattern on an empty column
        pc.match_substring_regex(pa.scalar(""), pattern)
    return pc.match_substring_regex(text, pattern)


def _replace(text: Values, old: str, new: str) -> Values:
    return pc.replace_substring(text, old, new)


def _slice(text: Values, start: int, stop: int | None) -> Values:
    return pc.utf8_slice_codeunits(text, start, stop)


def _round(values: Values, digits: int) -> Values:
    if pa.types.is_floating(values.type):
        if isinstance(values, pa.Scalar):
            return _round(pa.array([values.as_py()], values.type), digits)[0]
        return rounded(values, digits)
    return pc.round(values, digits, round_mode="half_to_even")


def _sampled(*values: Values) -> Values:
    """Of columns, and last of all a fraction and a seed: which rows are in the sample."""
    *columns, fraction, seed = values
    return pa.array(sampled(columns, fraction, seed))


KERNELS: dict[str, Kernel] = {
    "+": Kernel(_sum, fallible=True),
    "-": Kernel(_difference, fallible=True),
    "*": Kernel(_product, fallible=True),
    "/": Kernel(_ratio, fallible=True),
    "//": Kernel(_floor_divide, fallible=True),
    "%": Kernel(_modulo, fallible=True),
    "negate": Kernel(_arrow("negate_checked"), fallible=True),
    "abs": Kernel(_arrow("abs_checked"), fallible=True),
    "round": Kernel(_round, fallible=True),
    **{comparison: Kernel(partial(compared, comparison)) for comparison in _COMPARISONS},
    "&": Kernel(_arrow("and_kleene")),
    "|": Kernel(_arrow("or_kleene")),
    "~": Kernel(_arrow("invert")),
    "is_null": Kernel(_arrow("is_null"), gives_null=False),
    "is_not_null": Kernel(_arrow("is_valid"), gives_null=False),
    "lower": Kernel(_arrow("utf8_lower")),
    "upper": Kernel(_arrow("utf8_upper")),
    "strip": Kernel(_arrow("utf8_trim_whitespace")),
    "length": Kernel(_length),
    "concat": Kernel(_concat),
    "contains": Kernel(_contains),
    "starts_with": Kernel(_starts_with),
    "ends_with": Kernel(_ends_with),
    "matches": Kernel(_matches),
    "replace": Kernel(_replace),
    "slice": Kernel(_slice),
    "extract": Kernel(_extract, gives_null=True),
    "strftime": Kernel(_strftime),
    **{name: Kernel(partial(part, name=name)) for name in PARTS},
    "truncate": Kernel(truncated),
    "strptime": Kernel(partial(_strptime, strict=True), fallible=True),
    "try_strptime": Kernel(partial(_strptime, strict=False), gives_null=True),
    "split": Kernel(_split),
    "part": Kernel(list_element, gives_null=True),
    "field": Kernel(struct_field, gives_null=True),
    "list_length": Kernel(list_length),
    "list_get": Kernel(list_element, gives_null=True),
    "list_contains": Kernel(list_contains),
    "json_value": Kernel(json_value, gives_null=True),
    "sqrt": Kernel(square_root),
    "exp": Kernel(exponential),
    "log": Kernel(logarithm),
    "floor": Kernel(rounded_down),
    "ceil": Kernel(rounded_up),
    "sign": Kernel(sign),
    "**": Kernel(power, fallible=True),
    "sampled": Kernel(_sampled, gives_null=False),
    "least": Kernel(partial(extreme, "min_element_wise")),
    "greatest": Kernel(partial(extreme, "max_element_wise")),
}
