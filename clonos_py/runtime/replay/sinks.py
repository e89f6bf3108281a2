"""Sinks of a replay: they write nothing, and pass their rows to an observer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pyarrow as pa

from clonos_py.model.ids import TaskId
from clonos_py.model.operators import Sink
from clonos_py.model.plan import OperatorPlan, PhysicalPlan

SinkObserver = Callable[[TaskId, str, pa.RecordBatch], None]
"""Gets the task, the name of the sink, and rows that the sink is given."""


class _Observed(Sink):
    """Stands for a sink of the job."""

    def __init__(self, observer: SinkObserver) -> None:
        self._observer = observer

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        if rows.num_rows:
            self._observer(self.ctx.task, self.ctx.operator, rows)

    def prepare(self, checkpoint: int) -> None:
        return None


def without_sinks(plan: PhysicalPlan, observer: SinkObserver) -> PhysicalPlan:
    """The plan with sinks that write nothing."""
    return plan.with_operators(lambda operator: _stand_in(operator, observer))


def _stand_in(operator: OperatorPlan, observer: SinkObserver) -> OperatorPlan:
    if not operator.sink:
        return operator
    return replace(operator, factory=partial(_Observed, observer), causal=False, tables={})
