"""Joins of streams of deltas, whose column ``weight`` says how many more times there is a row, or how many fewer."""

from __future__ import annotations

from typing import Any, TypeVar

from clonos_py.dsl.callsite import located
from clonos_py.dsl.streams import Stream
from clonos_py.model.record import Record
from clonos_py.operators.delta_join import DELTA_WEIGHT
from clonos_py.plan.logical import JoinDeltas

S = TypeVar("S", bound=Record)


def join_deltas(left: Stream[Any], right: Stream[Any], on: str, into: type[S]) -> Stream[S]:
    """Pairs of rows with equal ``on``, as deltas: whatever is deleted on one side takes back its pairs. The fields of
    ``into`` are filled by name, from the left side where both have it, and ``weight`` is its last one."""
    with located("join") as site:
        left._check_partner(right)
        names = [[name for name in stream.schema.names if name != DELTA_WEIGHT] for stream in (left, right)]
        schema = into.schema()
        columns = tuple((name, int(name not in names[0]), name) for name in schema.names if name != DELTA_WEIGHT)
        work = JoinDeltas((on,), (tuple(names[0]), tuple(names[1])), columns)
        return Stream(left._output.followed("join", work, (schema,), site, (into,), (None,), (right._output,)))
