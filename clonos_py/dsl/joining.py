"""``left.join(right, on=..., within=..., into=...)``: resolves the keys and the columns of the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.times import MOMENT
from clonos_py.columns.views import plain
from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.changelogs import refuse_changes
from clonos_py.dsl.functions import Shape, record_of
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.shapes import filled, listed
from clonos_py.dsl.timing import EVENT_TIME_COLUMN, timed, window_bounds
from clonos_py.dsl.windows import AsOf, Between, Forever, Until
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.record import schema_of
from clonos_py.model.windows import Bounds, Hopping, JoinColumns, Tumbling
from clonos_py.plan.logical import JOINING, EnrichRows, EventTimeColumn, JoinHistory, JoinVersions, JoinWindows

Keys = str | tuple[str, str] | list[str | tuple[str, str]]
"""One name for both sides, a pair of names (left, right), or a list of these."""

Within = Tumbling | Hopping | Between | Until | AsOf | Forever

Sources = dict[str, tuple[int, str]]
"""Side and column of the input, by name in the result."""


def joined(
    left: OutputPort, right: OutputPort, on: Keys, within: Any, into: Shape | None, site: CallSite
) -> OutputPort:
    """Adds the join. A result of a window join belongs to its window, so ``window_end`` is its event time."""
    refuse_changes(left, right, instead="join the rows that the table is made of")
    pairs = _pairs(on, left.schema, right.schema)
    keys = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    windowed = isinstance(within, Tumbling | Hopping)
    if not windowed and not isinstance(within, Between | Until | AsOf | Forever):
        raise GraphError(
            f"within={within!r}: a match may take tumbling(...), hopping(...), between(...), until(...), as_of(...) or "
            "forever(...)"
        )
    bounds_made = window_bounds(left, into) if windowed else {}
    schema, columns = _result(left.schema, right.schema, pairs, into, bounds_made)
    work: JOINING
    time = None
    if isinstance(within, Between | Until | Forever):
        bounds, left_time, right_time = _bounds(within, left.schema), None, None
        if bounds is not None:
            (left, left_time), (right, right_time) = _timed(left, right, site)
        work = JoinHistory(*keys, left_time, right_time, columns, bounds)
        time = _later(work)
    elif isinstance(within, AsOf):
        (left, left_time), (right, right_time) = _timed(left, right, site)
        work = JoinVersions(*keys, left_time, right_time, columns, within.oldest_us)
        time = _carried(columns, 0, left_time)
    elif within.processing_time:
        work = JoinWindows(*keys, within, None, None, columns)
    else:
        (left, left_time), (right, right_time) = _timed(left, right, site)
        work = JoinWindows(*keys, within, left_time, right_time, columns)
        time = EventTimeColumn("window_end", -1) if "window_end" in schema.names else None
    record = None if into is None else record_of(into)
    return left.followed("join", work, (schema,), site, (record,), (time,), others=(right,))


def enriched(stream: OutputPort, side: SourceDefinition, on: Keys, into: Shape | None, site: CallSite) -> OutputPort:
    """Adds the join with a bounded side input. Rows keep the event time of the stream."""
    (side_schema,) = side.schemas
    pairs = _pairs(on, stream.schema, side_schema)
    schema, columns = _result(stream.schema, side_schema, pairs, into, {})
    work = EnrichRows(side, tuple(a for a, _ in pairs), tuple(b for _, b in pairs), columns)
    record = None if into is None else record_of(into)
    time = stream.time if stream.time is not None and (stream.time.name, 0, stream.time.name) in columns else None
    return stream.followed("enrich", work, (schema,), site, (record,), (time,))


def _later(work: JoinHistory) -> EventTimeColumn | None:
    """The event time of a pair: that of its later row, if that is always on one side and in the result."""
    if work.bounds is None:
        return None
    lower, upper = work.bounds
    side = 1 if lower >= 0 else 0 if isinstance(upper, int) and upper <= 0 else None
    return None if side is None else _carried(work.columns, side, (work.left_time, work.right_time)[side])


def _carried(columns: JoinColumns, side: int, time: str | None) -> EventTimeColumn | None:
    """The column of the result that carries a side's event time, if there is one."""
    names = [name for name, from_side, column in columns if (from_side, column) == (side, time)]
    return EventTimeColumn(names[0]) if names and time != EVENT_TIME_COLUMN else None


def _bounds(within: Between | Until | Forever, left: pa.Schema) -> Bounds | None:
    """The bounds of ``right.time - left.time``, or the column of the left row with the last time."""
    match within:
        case Between(lower_us, upper_us):
            return lower_us, upper_us
        case Until(column):
            kind = _type(left, column, "left", "until")
            if kind not in (pa.int64(), MOMENT):
                raise GraphError(f"until: column {column!r} is {kind}; cast() makes it a datetime or an Instant")
            return 0, column
        case Forever(ttl_us):
            return None if ttl_us is None else (-ttl_us, ttl_us)


def _timed(
    left: OutputPort, right: OutputPort, site: CallSite
) -> tuple[tuple[OutputPort, str], tuple[OutputPort, str]]:
    return timed(left, site, "the left stream"), timed(right, site, "the right stream")


def _pairs(on: Keys, left: pa.Schema, right: pa.Schema) -> list[tuple[str, str]]:
    """The (left, right) names of the keys, checked to exist and to have comparable types."""
    each: Any = on if isinstance(on, list) else [on]
    pairs = [(key, key) if isinstance(key, str) else key for key in each]
    if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise GraphError(f"on={on!r}: it takes a name, a pair of names (left, right), or a list of these")
    for first, second in pairs:
        types = [_type(schema, key, side) for schema, key, side in ((left, first, "left"), (right, second, "right"))]
        if types[0] != types[1] and not all(map(pa.types.is_integer, types)):
            raise GraphError(f"the key {first!r} is {types[0]} on the left, {second!r} is {types[1]} on the right")
        if not _comparable(types[0]):
            raise GraphError(
                f"the key {first!r} is {types[0]}, which cannot be compared: use numbers, text, bytes or times"
            )
    return pairs


def _comparable(kind: pa.DataType) -> bool:
    values: Any = pa.array([], kind)
    try:
        pc.equal(plain(values), plain(values))
    except pa.ArrowNotImplementedError:
        return False
    return True


def _type(schema: pa.Schema, key: str, side: str, asked: str = "on") -> pa.DataType:
    if schema.get_field_index(key) < 0:
        raise GraphError(f"{asked}: no column {key!r} on the {side}; there are {listed(schema.names)}")
    found: pa.DataType = schema.field(key).type
    return found


def _sources(left: pa.Schema, right: pa.Schema, pairs: list[tuple[str, str]]) -> Sources:
    """The origin of each name of the result. A key with the same name on both sides is the left one. Other names on
    both sides are ambiguous and marked (-1, name)."""
    found: Sources = {name: (0, name) for name in left.names}
    for name in right.names:
        if name not in found:
            found[name] = (1, name)
        elif (name, name) not in pairs:
            found[name] = (-1, name)
    return found


def _result(
    left: pa.Schema,
    right: pa.Schema,
    pairs: list[tuple[str, str]],
    into: Shape | None,
    bounds: Mapping[str, pa.Field[Any]],
) -> tuple[pa.Schema, JoinColumns]:
    """The result's schema, and (name, side, column) for each column that the join takes from its inputs.

    Raises GraphError for an ambiguous or missing column.
    """
    sources = _sources(left, right, pairs)
    target = None if into is None else schema_of(into)
    names = list(sources) if target is None else [name for name in target.names if name in sources]
    if taken := [name for name in names if name in bounds]:
        raise GraphError(
            f"{taken[0]!r} is a bound of the window, and a column of a stream: give the column another name by "
            "select() before the join"
        )
    ambiguous = [name for name in names if sources[name][0] < 0]
    if ambiguous:
        raise GraphError(
            f"both sides have a column {ambiguous[0]!r}: give one another name by select() before the join"
        )
    available: dict[str, pa.Field[Any]] = {}
    for name in names:
        side, column = sources[name]
        available[name] = (left, right)[side].field(column)
    available.update(bounds)
    schema = filled(target, available, (), getattr(into, "__name__", "the schema"))
    return schema, tuple((name, *sources[name]) for name in names)
