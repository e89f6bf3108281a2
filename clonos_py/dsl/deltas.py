"""Joins of streams of deltas. The column ``weight`` says how many rows are added, or, below 0, how many are removed."""

from __future__ import annotations

from typing import Any, TypeVar

from clonos_py.dsl.callsite import located
from clonos_py.dsl.streams import Stream
from clonos_py.model.record import Record, schema_of
from clonos_py.model.tables import DELTA_WEIGHT
from clonos_py.plan.logical import JoinDeltas

S = TypeVar("S", bound=Record)


def join_deltas(left: Stream[Any], right: Stream[Any], on: str, into: type[S]) -> Stream[S]:
    """Pairs of rows with equal ``on``, as deltas: deleting a row on one side retracts its pairs. The fields of ``into``
    are filled by name, from the left side where both have the field. ``weight`` is its last field."""
    with located("join") as site:
        left._check_partner(right)
        names = [[name for name in stream.schema.names if name != DELTA_WEIGHT] for stream in (left, right)]
        schema = schema_of(into)
        columns = tuple((name, int(name not in names[0]), name) for name in schema.names if name != DELTA_WEIGHT)
        work = JoinDeltas((on,), (on,), (tuple(names[0]), tuple(names[1])), columns)
        return Stream(left._output.followed("join", work, (schema,), site, (into,), (None,), (right._output,)))
