"""``left.join(right, on=..., within=..., into=..., how=...)``: resolves the keys and the columns of the result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.columns.times import MOMENT
from clonos_py.columns.views import plain, plain_type
from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.changelogs import refuse_changes
from clonos_py.dsl.functions import Shape, record_of
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.shapes import assignable, filled, listed
from clonos_py.dsl.timing import EVENT_TIME_COLUMN, timed, window_bounds, window_closed
from clonos_py.dsl.windows import AsOf, Between, Forever, Until
from clonos_py.model.connectors import SourceDefinition
from clonos_py.model.errors import GraphError
from clonos_py.model.joins import Bounds, JoinColumns, JoinType
from clonos_py.model.record import schema_of
from clonos_py.model.windows import Hopping, Session, Tumbling
from clonos_py.plan.logical import JOINING, EnrichRows, EventTimeColumn, JoinHistory, JoinVersions, JoinWindows

Keys = str | tuple[str, str] | list[str | tuple[str, str]]
"""One name for both sides, a pair of names (left, right), or a list of these."""

Within = Tumbling | Hopping | Session | Between | Until | AsOf | Forever

How = Literal["inner", "left", "right", "full", "semi", "anti"]
"""Which rows a join gives: ``JoinType``."""

LOOKS_UP = "take how='inner', 'left', 'semi' or 'anti'"

Sources = dict[str, tuple[int, str]]
"""Side and column of the input, by name in the result."""


def joined(
    left: OutputPort, right: OutputPort, on: Keys, within: Any, into: Shape | None, how: str, site: CallSite
) -> OutputPort:
    """Adds the join. A result of a window join belongs to its window, so ``window_end`` is its event time."""
    refuse_changes(left, right, instead="join the rows that the table is made of")
    pairs = key_pairs(on, left.schema, right.schema)
    keys = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    windowed = isinstance(within, Tumbling | Hopping | Session)
    if not windowed and not isinstance(within, Between | Until | AsOf | Forever):
        raise GraphError(
            f"within={within!r}: a match may take tumbling(...), hopping(...), session(...), between(...), until(...), "
            "as_of(...) or forever(...)"
        )
    kind = join_type(how)
    _check(within, kind)
    if isinstance(within, Session):
        _check_session(within, left.schema, right.schema, pairs)
    bounds_made = window_bounds(left, into) if windowed else {}
    schema, columns = result_columns(left.schema, right.schema, pairs, into, bounds_made, kind)
    work: JOINING
    time = None
    if isinstance(within, Between | Until | Forever):
        bounds, left_time, right_time = _bounds(within, left.schema), None, None
        if bounds is not None:
            (left, left_time), (right, right_time) = _timed(left, right, site)
        work = JoinHistory(*keys, left_time, right_time, columns, bounds, kind)
        time = _event_time(work)
    elif isinstance(within, AsOf):
        (left, left_time), (right, right_time) = _timed(left, right, site)
        work = JoinVersions(*keys, left_time, right_time, columns, within.oldest_us, kind)
        time = None if kind.unmatched[1] else _carried(columns, 0, left_time)
    elif within.processing_time:
        work = JoinWindows(*keys, within, None, None, columns, kind)
    else:
        (left, left_time), (right, right_time) = _timed(left, right, site)
        work = JoinWindows(*keys, within, left_time, right_time, columns, kind)
        time = window_closed(schema)
    record = None if into is None else record_of(into)
    return left.followed("join", work, (schema,), site, (record,), (time,), others=(right,))


def enriched(
    stream: OutputPort, side: SourceDefinition, on: Keys, into: Shape | None, how: str, site: CallSite
) -> OutputPort:
    """Adds the join with a bounded side input. Rows keep the event time of the stream."""
    kind = join_type(how)
    if kind.unmatched[1]:
        raise GraphError(
            f"how={how!r}: each task reads the side input, so no row of it is in the result alone; {LOOKS_UP}"
        )
    (side_schema,) = side.schemas
    pairs = key_pairs(on, stream.schema, side_schema)
    schema, columns = result_columns(stream.schema, side_schema, pairs, into, {}, kind)
    work = EnrichRows(side, tuple(a for a, _ in pairs), tuple(b for _, b in pairs), columns, kind)
    record = None if into is None else record_of(into)
    return stream.followed("enrich", work, (schema,), site, (record,), (carried_time(stream, columns),))


def carried_time(stream: OutputPort, columns: JoinColumns) -> EventTimeColumn | None:
    """The event time of the stream on the left, if the result has it under its name."""
    time = stream.time
    return time if time is not None and (time.name, 0, time.name) in columns else None


def join_type(how: str) -> JoinType:
    """Raises GraphError for an unknown one."""
    try:
        return JoinType(how)
    except ValueError:
        names = ", ".join(repr(each.value) for each in JoinType)
        raise GraphError(f"how={how!r}: a join is one of {names}") from None


def _check(within: Within, how: JoinType) -> None:
    """Raises GraphError where it is never known that a row has no match."""
    if within == Forever(None) and any(how.unmatched):
        raise GraphError(
            f"how={how.value!r}: with forever() a match may always come, so that no row is ever without one; give it a "
            "ttl, or take how='inner' or 'semi'"
        )


def _check_session(within: Session, left: pa.Schema, right: pa.Schema, pairs: list[tuple[str, str]]) -> None:
    """Raises GraphError for sessions in processing time, and for keys of which one session cannot be made."""
    if within.processing_time:
        raise GraphError(
            "a join takes sessions in event time only: leave processing_time out, or take tumbling(..., "
            "processing_time=True)"
        )
    for first, second in pairs:
        types = [plain_type(schema.field(key).type) for schema, key in ((left, first), (right, second))]
        if types[0] != types[1]:
            raise GraphError(
                f"the key {first!r} is {types[0]} on the left, {second!r} is {types[1]} on the right: a session needs "
                "the same type on both sides, cast() gives it"
            )


def _event_time(work: JoinHistory) -> EventTimeColumn | None:
    """The event time of a result, if it is in the result: that of the later row of a pair, if that is always on one
    side; with rows without a match, that of the side that is always there."""
    if work.bounds is None:
        return None
    lower, upper = work.bounds
    match work.how:
        case JoinType.INNER:
            side = 1 if lower >= 0 else 0 if isinstance(upper, int) and upper <= 0 else None
        case JoinType.FULL:
            side = None
        case JoinType.RIGHT:
            side = 1
        case _:
            side = 0 if isinstance(upper, int) else None
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


def key_pairs(on: Keys, left: pa.Schema, right: pa.Schema) -> list[tuple[str, str]]:
    """The (left, right) names of the keys, checked to exist and to have comparable types."""
    each: Any = on if isinstance(on, list) else [on]
    pairs = [(key, key) if isinstance(key, str) else key for key in each]
    if not pairs or not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise GraphError(f"on={on!r}: it takes a name, a pair of names (left, right), or a list of these")
    for first, second in pairs:
        types = [_type(schema, key, side) for schema, key, side in ((left, first, "left"), (right, second, "right"))]
        if types[0] != types[1] and not all(map(pa.types.is_integer, types)):
            raise GraphError(f"the key {first!r} is {types[0]} on the left, {second!r} is {types[1]} on the right")
        if not comparable(types[0]):
            raise GraphError(
                f"the key {first!r} is {types[0]}, which cannot be compared: use numbers, text, bytes or times"
            )
    return pairs


def comparable(kind: pa.DataType) -> bool:
    """Whether values of a type can be keys of a join."""
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


def _sources(left: pa.Schema, right: pa.Schema, pairs: list[tuple[str, str]], how: JoinType) -> Sources:
    """The origin of each name of the result. A key with the same name on both sides is the left one, and in a right
    join the right one. Other names on both sides are ambiguous and marked (-1, name)."""
    found: Sources = {name: (0, name) for name in left.names}
    for name in right.names if how.pairs else ():
        if name not in found:
            found[name] = (1, name)
        elif (name, name) not in pairs:
            found[name] = (-1, name)
        elif how is JoinType.RIGHT:
            found[name] = (1, name)
    return found


def result_columns(
    left: pa.Schema,
    right: pa.Schema,
    pairs: list[tuple[str, str]],
    into: Shape | None,
    bounds: Mapping[str, pa.Field[Any]],
    how: JoinType,
) -> tuple[pa.Schema, JoinColumns]:
    """The result's schema, and (name, side, column) for each column that the join takes from its inputs.

    Raises GraphError for an ambiguous or missing column, and for a field that takes no null where the row may be
    missing.
    """
    sources = _sources(left, right, pairs, how)
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
        field: pa.Field[Any] = (left, right)[side].field(column)
        if how is JoinType.FULL and (name, name) in pairs:
            available[name] = _of_either(field, right.field(name))
        else:
            available[name] = field.with_nullable(field.nullable or how.nullable[side])
    available.update(bounds)
    shape = getattr(into, "__name__", "the schema")
    schema = filled(target, available, (), shape)
    for name in names if any(how.unmatched) else ():
        if available[name].nullable and not schema.field(name).nullable:
            raise GraphError(
                f"{shape}.{name} is {schema.field(name).type}, but how={how.value!r} gives rows in which it is null: "
                "declare it with '| None'"
            )
    return schema, tuple((name, *sources[name]) for name in names)


def _of_either(left: pa.Field[Any], right: pa.Field[Any]) -> pa.Field[Any]:
    """The key of a full join, which is that of the row that is there."""
    kind = next((b for a, b in ((left.type, right.type), (right.type, left.type)) if assignable(a, b)), None)
    if kind is None:
        raise GraphError(
            f"how='full': the key {left.name!r} is {left.type} on the left, {right.type} on the right: cast() one"
        )
    return left.with_type(kind).with_nullable(left.nullable or right.nullable)
