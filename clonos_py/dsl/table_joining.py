"""Joins with tables: ``table.join(other, on=..., into=..., how=...)``, and that of a stream with a table.

A row of the result belongs to a row of each table, and to the values by which they are joined. These are its keys,
without those that follow from the others: where each row of a table has at most one match in the other, the keys of the
other are not needed. The joined columns are keys, too, since a row that moves to other values leaves a task while
another task gets it: these are two rows, which may change in any order."""

from __future__ import annotations

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.changelogs import refuse_changes
from clonos_py.dsl.functions import Shape, record_of
from clonos_py.dsl.joining import LOOKS_UP, Keys, carried_time, join_type, key_pairs, result_columns
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.tables import UpdatingRows, updating_rows
from clonos_py.model.errors import GraphError
from clonos_py.model.joins import JoinColumns, JoinType
from clonos_py.model.tables import WEIGHT_COLUMN, weighted_schema
from clonos_py.plan.logical import JoinDeltas, JoinTable

Pairs = list[tuple[str, str]]


def joined_tables(
    left: UpdatingRows, right: UpdatingRows, on: Keys, into: Shape | None, how: str, site: CallSite
) -> UpdatingRows:
    """Adds the join."""
    kind = join_type(how)
    pairs = key_pairs(on, left.schema, right.schema)
    schema, columns = result_columns(left.schema, right.schema, pairs, into, {}, kind)
    joined = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    sides = left.identified(), right.identified()
    single = _single(sides, joined)
    keys = _keys(sides, pairs, columns, kind, single)
    work = JoinDeltas(*joined, sides, columns, kind, weight=WEIGHT_COLUMN)
    record = None if into is None else record_of(into)
    output = left.deltas().followed("join", work, (weighted_schema(schema),), site, (record,), others=(right.deltas(),))
    shrinks = left.shrinks or right.shrinks or not _stays(sides, pairs, kind, single)
    return updating_rows(output, keys, shrinks, schema)


def joined_with_table(
    stream: OutputPort, table: UpdatingRows, on: Keys, into: Shape | None, how: str, load_first: bool, site: CallSite
) -> OutputPort:
    """Adds the join of each row of a stream with the rows that a table has when it comes. ``load_first``: the rows wait
    until the sources of the table have ended, or have been idle. Raises GraphError for a join that also gives rows of
    the table alone."""
    if stream.draft is not table.output.draft:
        raise GraphError("the stream and the table belong to different jobs")
    kind = join_type(how)
    if kind.unmatched[1]:
        raise GraphError(f"how={how!r}: a row of a table is looked up for each row of the stream; {LOOKS_UP}")
    refuse_changes(stream, instead="join the two tables")
    pairs = key_pairs(on, stream.schema, table.schema)
    schema, columns = result_columns(stream.schema, table.schema, pairs, into, {}, kind)
    keys, table_keys = tuple(a for a, _ in pairs), tuple(b for _, b in pairs)
    identity = table.identified()
    rows = table.upserts(tuple(key for key in table_keys if key not in identity), site)
    work = JoinTable(keys, table_keys, identity, columns, kind, load_first)
    record = None if into is None else record_of(into)
    return stream.followed("join", work, (schema,), site, (record,), (carried_time(stream, columns),), others=(rows,))


def _single(sides: tuple[tuple[str, ...], ...], joined: tuple[tuple[str, ...], ...]) -> tuple[bool, bool]:
    """By side: whether a row of the other side has at most one match there."""
    left, right = (set(keys) <= set(on) for keys, on in zip(sides, joined, strict=True))
    return left, right


def _keys(
    sides: tuple[tuple[str, ...], ...], pairs: Pairs, columns: JoinColumns, how: JoinType, single: tuple[bool, bool]
) -> tuple[str, ...]:
    """The names in the result of the columns that identify its rows; the name in its table for one that is not
    there."""
    of_left, of_right = (
        [_name(key, side, pairs, columns, how) for key in (*(pair[side] for pair in pairs), *keys)]
        for side, keys in enumerate(sides)
    )
    left_given, right_given = (not nullable for nullable in how.nullable)
    if not how.pairs or (single[1] and left_given) or (all(single) and _coalesced(pairs)):
        kept = of_left
    elif single[0] and right_given:
        kept = of_right
    else:
        kept = [*of_left, *of_right]
    return tuple(dict.fromkeys(kept))


def _coalesced(pairs: Pairs) -> bool:
    """Whether the joined columns have the same names: then a full join takes each from the row that is there."""
    return all(a == b for a, b in pairs)


def _name(key: str, side: int, pairs: Pairs, columns: JoinColumns, how: JoinType) -> str:
    """The name in the result of a column of a side. A joined column is equal on both sides, if both are there."""
    names = {(from_side, column): name for name, from_side, column in columns}
    if (side, key) in names:
        return names[(side, key)]
    other = next((pair[1 - side] for pair in pairs if pair[side] == key), None)
    equal = other == key or not how.nullable[1 - side]
    return names.get((1 - side, other), key) if other is not None and equal else key


def _stays(sides: tuple[tuple[str, ...], ...], pairs: Pairs, how: JoinType, single: tuple[bool, bool]) -> bool:
    """Whether no row of the result is ever deleted, if none of the tables is."""
    moves = any(pair[side] not in keys for pair in pairs for side, keys in enumerate(sides))
    if moves or how is JoinType.ANTI or (how is JoinType.FULL and not _coalesced(pairs)):
        return False
    left, right = how.unmatched
    return (not left or single[1]) and (not right or single[0])
