"""``stream.key_by(...).process(...)``: reads the row types of a process function from ``Process[Txn, Alert | Audit]``
or ``CoProcess[Order, Payment, Alert]``, and checks them against its inputs."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from clonos_py.dsl.callsite import CallSite
from clonos_py.dsl.functions import is_record
from clonos_py.dsl.outputs import OutputPort
from clonos_py.dsl.projection import carried
from clonos_py.dsl.shapes import check_row
from clonos_py.dsl.timing import timed
from clonos_py.model.errors import GraphError
from clonos_py.model.processes import ProcessInput
from clonos_py.model.record import DeadLetter, Record, schema_of
from clonos_py.plan.logical import EventTimeColumn, GatherRows, RunProcess


class KeyedRowsOf(NamedTuple):
    """Rows and their key columns. ``broadcast``: every task gets all of them, and they have no key."""

    rows: OutputPort
    keys: tuple[str, ...]
    broadcast: bool = False


def processed(
    process: Any, inputs: Sequence[KeyedRowsOf], in_order: bool, site: CallSite, verb: str = "process"
) -> OutputPort:
    """Adds a process function over these inputs."""
    if not all(found.keys or found.broadcast for found in inputs):
        raise GraphError(f"a {verb} keeps its state by key: write key_by before it")
    if in_order and any(found.broadcast for found in inputs):
        raise GraphError("rows of a broadcast stream come in the order of arrival: leave in_order out")
    row_types, outputs = _types(process, *_form(inputs))
    for found, row_type in zip(inputs, row_types, strict=True):
        check_row(schema_of(row_type), found.rows.schema, row_type.__name__)
        if in_order and found.rows.time is None:
            raise GraphError("in_order=True needs event time: say which column it is at job.source(event_time=...)")
    taken = [timed(found.rows, site) if found.rows.time else (found.rows, None) for found in inputs]
    given = tuple(
        ProcessInput(_key(found), row_type, time, found.broadcast)
        for found, row_type, (_, time) in zip(inputs, row_types, taken, strict=True)
    )
    work = RunProcess(process, given, outputs, in_order)
    records: tuple[type[Record], ...] = (*outputs, DeadLetter)
    times = tuple(_event_time(inputs, schema_of(output)) for output in outputs)
    first, *others = (rows for rows, _ in taken)
    schemas = tuple(schema_of(record) for record in records)
    return first.followed(verb, work, schemas, site, records, times, others=tuple(others))


def broadcast(rows: OutputPort, site: CallSite) -> KeyedRowsOf:
    """The rows, all of which go through one task: it gives them one order, which is the same for all receivers."""
    gathered = rows.same_rows("broadcast", GatherRows(), site)
    return KeyedRowsOf(gathered.changed(parallelism=1), (), True)


def connected(left: KeyedRowsOf, right: Any) -> KeyedRowsOf:
    """Returns ``right`` if its keys can be matched with those of ``left``."""
    if not isinstance(right, KeyedRowsOf):
        raise GraphError(f"{right!r} is not a keyed stream: write key_by before it")
    if left.rows.draft is not right.rows.draft:
        raise GraphError(
            f"the other stream belongs to job {right.rows.draft.job!r}, this one to {left.rows.draft.job!r}"
        )
    if right.broadcast:
        return right
    if len(left.keys) != len(right.keys):
        raise GraphError(f"one is keyed by {len(left.keys)} columns, the other by {len(right.keys)}")
    for one, other in zip(_key(left), _key(right), strict=True):
        if one.type != other.type and not all(pa.types.is_integer(field.type) for field in (one, other)):
            raise GraphError(
                f"the key {one.name!r} is {one.type} on the left, {other.name!r} is {other.type} on the right"
            )
    return right


def _key(found: KeyedRowsOf) -> pa.Schema:
    return pa.schema([found.rows.schema.field(key) for key in found.keys])


def _event_time(inputs: Sequence[KeyedRowsOf], output: pa.Schema) -> EventTimeColumn | None:
    """The output's event-time column: that of the first input whose event-time column the output has."""
    times = (carried(found.rows.time, output) for found in inputs)
    return next((time for time in times if time is not None), None)


def _form(inputs: Sequence[KeyedRowsOf]) -> tuple[type[Any], str, str]:
    """The base class of a process function of these inputs, how it is written, and what it is."""
    from clonos_py.operators.process import BroadcastProcess, CoProcess, Process

    if any(found.broadcast for found in inputs):
        return BroadcastProcess, "BroadcastProcess[In, Rule, Out]", "process with a broadcast input"
    if len(inputs) == 2:
        return CoProcess, "CoProcess[Left, Right, Out]", "process of two inputs"
    return Process, "Process[In, Out]", "process"


def _types(
    process: Any, origin: type[Any], form: str, what: str
) -> tuple[tuple[type[Record], ...], tuple[type[Record], ...]]:
    """The row classes of each input, and those of the results. Raises GraphError if they are not Records."""
    kind = process if isinstance(process, type) else type(process)
    if not issubclass(kind, origin):
        raise GraphError(f"{process!r} is not a {what}: give a class derived from {form}, or an object of one")
    if kind is process:
        _check_no_arguments(kind)
    for base in (base for cls in kind.__mro__ for base in getattr(cls, "__orig_bases__", ())):
        if typing.get_origin(base) is origin:
            *rows, result = typing.get_args(base)
            outputs = _parts(result)
            if outputs and all(map(is_record, (*rows, *outputs))):
                return tuple(rows), outputs
    raise GraphError(f"{kind.__name__}: say what it takes and yields, as {form} with Record classes")


def _check_no_arguments(kind: type[Any]) -> None:
    try:
        inspect.signature(kind).bind()
    except TypeError as error:
        raise GraphError(f"{kind.__name__} has {error}: give an object, process({kind.__name__}(...))") from error


def _parts(annotation: Any) -> tuple[Any, ...]:
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    return typing.get_args(annotation) if union else (annotation,)
