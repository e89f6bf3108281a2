"""``stream.lookup(function, on=..., cache=...)``: checks the function, the key and the columns of the result."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.changelogs import refuse_changes
from clonos_py.dsl.functions import Shape, Signature, record_of, returned, signature_of
from clonos_py.dsl.joining import LOOKS_UP, comparable, join_type, result_columns
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.shapes import listed, readable
from clonos_py.dsl.waiting import WaitingOptions, async_options
from clonos_py.model.calls import LookUpOptions
from clonos_py.model.errors import GraphError
from clonos_py.model.record import DeadLetter, column_type, schema_of, split_optional
from clonos_py.model.times import Duration, micros
from clonos_py.model.user_functions import underlying
from clonos_py.plan.logical import LookUpRows

_RATE_MAX = 100_000


class AskingOptions(WaitingOptions, total=False):
    """``retries``: how often a question is asked again that has failed with a ServiceError, 0 by default; the first
    time after 100 ms, each next time after twice as long. ``rate``: how many calls per second begin in a task at most;
    0.5 is one in two seconds. ``concurrency``, ``ordered``, ``timeout``: as for a map, of questions; a ``timeout``
    covers all tries of one."""

    retries: int
    rate: float


def with_answers(
    rows: OutputPort,
    function: Callable[..., Any],
    on: str | list[str],
    into: Shape | None,
    cache: Duration,
    how: str,
    returns: Shape | None,
    options: Mapping[str, Any],
    site: CallSite,
) -> OutputPort:
    """Adds the lookup; output 1 has the rows whose question failed. Rows keep the event time of the stream."""
    refuse_changes(rows, instead="look up before what makes the table")
    keys = _keys(on, rows.schema)
    signature = _signature(function, keys, rows.schema, site)
    kind = join_type(how)
    if kind.unmatched[1]:
        raise GraphError(f"how={how!r}: an answer alone is no row of the result; {LOOKS_UP}")
    answers = schema_of(returned(signature, returns, many=False))
    schema, columns = result_columns(rows.schema, answers, [(key, key) for key in keys], into, {}, kind)
    asking = _options(signature, cache, options)
    work = LookUpRows(keys, function, signature.wants_ctx, answers, columns, asking, kind)
    time = rows.time if rows.time is not None and (rows.time.name, 0, rows.time.name) in columns else None
    records = (None if into is None else record_of(into), DeadLetter)
    return rows.followed("lookup", work, (schema, DeadLetter.schema()), site, records, (time,))


def _keys(on: str | list[str], schema: pa.Schema) -> tuple[str, ...]:
    keys = (on,) if isinstance(on, str) else tuple(on)
    if not keys or not all(isinstance(key, str) for key in keys):
        raise GraphError(f"on={on!r}: it takes the name of a column, or a list of names")
    for key in keys:
        if key not in schema.names:
            raise GraphError(f"on: no column {key!r}; there are {listed(schema.names)}")
        if not comparable(kind := schema.field(key).type):
            raise GraphError(f"the key {key!r} is {kind}, which cannot be compared: use numbers, text, bytes or times")
    return keys


def _signature(function: Callable[..., Any], keys: Sequence[str], schema: pa.Schema, site: CallSite) -> Signature:
    """That of a function of the key. A result that may be None is one that may be missing."""
    signature = signature_of(
        function, site.names, async_allowed=True, takes=keys, spelled=f"the key ({', '.join(keys)})"
    )
    if not signature.asynchronous or inspect.isasyncgenfunction(underlying(function)):
        raise GraphError(f"{signature.name} is no `async def` function that returns an answer; a lookup needs one")
    for key, annotation in zip(keys, signature.arguments, strict=False):
        declared, found = column_type(annotation), schema.field(key).type
        if declared is not None and not readable(found, declared):
            raise GraphError(f"{signature.name} takes {key} as {declared}, the stream's column is {found}")
    return replace(signature, result=split_optional(signature.result)[0])


def _options(signature: Signature, cache: Duration, options: Mapping[str, Any]) -> LookUpOptions:
    if (cache_us := micros(cache)) <= 0:
        raise GraphError(f"cache={cache!r}: it must be more than 0; without a cache, use map")
    if unknown := sorted(set(options) - AskingOptions.__annotations__.keys() - WaitingOptions.__annotations__.keys()):
        known = ", ".join([*WaitingOptions.__annotations__, "retries", "rate"])
        raise GraphError(f"{unknown[0]}= is not an option of it; the options are {known}")
    retries, rate = options.get("retries", 0), options.get("rate")
    if type(retries) is not int or retries < 0:
        raise GraphError(f"retries={retries!r}: it must be a number of tries, at least 0")
    if rate is not None and not (type(rate) in (int, float) and 0 < rate <= _RATE_MAX):
        raise GraphError(f"rate={rate!r}: it must be a number of calls per second, more than 0, at most {_RATE_MAX:,}")
    waiting = async_options(signature, {name: options[name] for name in options if name not in ("retries", "rate")})
    assert waiting is not None, "the function is asynchronous"
    return LookUpOptions(waiting, cache_us, retries, rate)
