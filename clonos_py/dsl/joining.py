"""``left.join(right, on=..., within=..., into=...)``: which columns pair up, which go into the result, from where."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.expressions import col
from clonos_py.dsl.functions import Shape, record_of, schema_of
from clonos_py.dsl.projection import node_with
from clonos_py.dsl.shapes import filled, listed
from clonos_py.dsl.stream import Keys, Stream
from clonos_py.dsl.timing import timed
from clonos_py.dsl.tree import Node
from clonos_py.dsl.windows import Forever
from clonos_py.model.errors import GraphError
from clonos_py.model.windows import Tumbling
from clonos_py.plan.logical import EventTimeColumn, JoinHistory, JoinWindows, Port

_TIME = "_join_time"
_BOUNDS = ("window_start", "window_end")

Sources = dict[str, tuple[int, str]]
"""By name of the result: side and column."""


def joined(
    left: Stream[Any], right: Stream[Any], on: Keys, within: Any, into: Shape | None, site: CallSite
) -> Stream[Any]:
    """Adds the join, and after a window join the columns for the window's bounds where they are wanted."""
    pairs = _pairs(on, left.schema, right.schema)
    sources = _sources(left.schema, right.schema, pairs)
    match within:
        case Tumbling(processing_time=False):
            return _in_windows(left, right, pairs, sources, within, into, site)
        case Forever(ttl_us=ttl_us):
            schema, used = _result(left.schema, right.schema, sources, into, ())
            columns = tuple((name, *used[name]) for name in schema.names)
            work = JoinHistory(tuple(a for a, _ in pairs), tuple(b for _, b in pairs), columns, ttl_us)
            records = (None if into is None else record_of(into),)
            node = left._draft.add("join", work, (left._port, right._port), (schema,), site, records)
            return Stream(left._draft, Port(node.id))
    raise GraphError(f"within={within!r}: a match may take tumbling(...) in event time, or forever(...)")


def _in_windows(
    left: Stream[Any], right: Stream[Any], pairs: list[tuple[str, str]], sources: Sources, window: Tumbling,
    into: Shape | None, site: CallSite,
) -> Stream[Any]:  # fmt: skip
    schema, used = _result(left.schema, right.schema, sources, into, _BOUNDS)
    left, left_time = timed(left, site, "the left stream")
    right, right_time = timed(right, site, "the right stream")
    bounds = [name for name in schema.names if name in _BOUNDS and name not in used]
    columns = [(name, *used[name]) for name in schema.names if name in used]
    fields = [schema.field(name) for name, _, _ in columns]
    if bounds:
        columns.append((_TIME, 0, left_time))
        fields.append(pa.field(_TIME, pa.int64()))
    keys = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    work = JoinWindows(*keys, window, left_time, right_time, tuple(columns))
    record = None if into is None else record_of(into)
    node = left._draft.add(
        "join", work, (left._port, right._port), (pa.schema(fields),), site, (None if bounds else record,)
    )
    result: Stream[Any] = Stream(left._draft, Port(node.id))
    if not bounds:
        return result
    made = [(name, _bound(name, window) if name in bounds else node_with(name)) for name in schema.names]
    result = result._projected("select", made, site, record)
    if "window_end" in bounds:
        left._draft.change(result._port.node, times=(EventTimeColumn("window_end", -1),))
    return Stream(left._draft, result._port, subject=node.id)


def _bound(name: str, window: Tumbling) -> Node:
    start = col(_TIME) // window.size_us * window.size_us
    return (start if name == "window_start" else start + window.size_us).node


def _pairs(on: Keys, left: pa.Schema, right: pa.Schema) -> list[tuple[str, str]]:
    """(left, right) names of the keys, known and of comparable types."""
    each: Any = on if isinstance(on, list) else [on]
    pairs = [(key, key) if isinstance(key, str) else key for key in each]
    if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise GraphError(f"on={on!r}: it takes a name, a pair of names (left, right), or a list of these")
    for first, second in pairs:
        types = [_type(schema, key, side) for schema, key, side in ((left, first, "left"), (right, second, "right"))]
        if types[0] != types[1] and not all(map(pa.types.is_integer, types)):
            raise GraphError(f"the key {first!r} is {types[0]} on the left, {second!r} is {types[1]} on the right")
    return pairs


def _type(schema: pa.Schema, key: str, side: str) -> pa.DataType:
    if schema.get_field_index(key) < 0:
        raise GraphError(f"on: no column {key!r} on the {side}; there are {listed(schema.names)}")
    found: pa.DataType = schema.field(key).type
    return found


def _sources(left: pa.Schema, right: pa.Schema, pairs: list[tuple[str, str]]) -> Sources:
    """Where a name of the result comes from. A key of the same name is the left one; other names on both sides are
    ambiguous, and left out: (-1, name)."""
    found: Sources = {name: (0, name) for name in left.names}
    for name in right.names:
        if name not in found:
            found[name] = (1, name)
        elif (name, name) not in pairs:
            found[name] = (-1, name)
    return found


def _result(
    left: pa.Schema, right: pa.Schema, sources: Sources, into: Shape | None, bounds: tuple[str, ...]
) -> tuple[pa.Schema, Sources]:
    """The result's schema and where its columns come from. Raises GraphError for an ambiguous or missing one."""
    target = None if into is None else schema_of(into)
    wanted = sources if target is None else [name for name in target.names if name in sources]
    ambiguous = [name for name in wanted if sources[name][0] < 0]
    if ambiguous:
        raise GraphError(
            f"both sides have a column {ambiguous[0]!r}: give one another name by select() before the join"
        )
    used = {name: sources[name] for name in wanted}
    available: dict[str, pa.Field[Any]] = {
        name: (left, right)[side].field(column) for name, (side, column) in used.items()
    }
    if target is not None:
        available.update({name: pa.field(name, pa.int64(), nullable=False) for name in bounds if name not in used})
    return filled(target, available, (), getattr(into, "__name__", "the schema")), used
