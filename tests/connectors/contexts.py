"""A context and an output for driving one sink by hand."""

from __future__ import annotations

from typing import Any, cast

import pyarrow as pa

from clonos_py.model.ids import TaskId
from clonos_py.model.operators import OperatorContext, Output, Sink


class SinkContext:
    """The part of an OperatorContext that sinks use."""

    def __init__(self, operator: str = "out", index: int = 0, parallelism: int = 1, key_groups: int = 128) -> None:
        self.task = TaskId(operator, index)
        self.operator = operator
        self.parallelism = parallelism
        self.key_groups = key_groups
        self.groups = range(index * key_groups // parallelism, (index + 1) * key_groups // parallelism)
        self.numbering = "line-0"
        self.counts: dict[str, int] = {}

    def count(self, metric: str, amount: int) -> None:
        self.counts[metric] = self.counts.get(metric, 0) + amount


class NoOutput:
    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        raise AssertionError("a sink emits nothing")


def opened(sink: Sink, context: SinkContext | None = None, **place: Any) -> Sink:
    ctx = context or SinkContext(**place)
    sink.open(cast("OperatorContext", ctx), cast("Output", NoOutput()))
    return sink
