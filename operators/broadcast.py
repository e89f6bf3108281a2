"""Process functions with a broadcast input: state by key for one stream, and state that all tasks have for the other.

The rows of the broadcast stream come from one task, so every task gets them in one order, and at a barrier all have the
same state of them. Each saves its own copy; at another parallelism an instance takes that of any former one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from clonos_py.model.errors import UserCodeError
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState, united
from clonos_py.operators.process import ProcessOperator
from clonos_py.operators.process_inputs import GivenRows
from clonos_py.operators.process_keys import UNKEYED
from clonos_py.operators.process_state import Broadcasting, Cell

_KEYED = 0
_SHARED = "shared"


class Gather(Operator):
    """Emits all rows as they are, in the one task that all go through."""

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self.out.emit(rows)


class BroadcastOperator(ProcessOperator):
    """Runs a BroadcastProcess: side 0 has the keyed rows, side 1 those that every task gets."""

    _shared: Cell

    @property
    def shared(self) -> Cell:
        return self._shared

    def _begin(self) -> None:
        self._shared = Cell(UNKEYED, -1)
        super()._begin()

    def _feed(self, side: int, given: GivenRows) -> None:
        if side == _KEYED:
            super()._feed(side, given)
            return
        object.__setattr__(self._process, "_scope", Broadcasting(self))
        try:
            super()._feed(side, given)
        finally:
            object.__setattr__(self._process, "_scope", self)

    def _failure(self, call: Callable[..., Any], *given: Any) -> BaseException | None:
        error = super()._failure(call, *given)
        if isinstance(error, TypeError | AttributeError) and "mappingproxy" in str(error):
            problem = UserCodeError("broadcast state is the same in all tasks: only on_broadcast may change it")
            return problem.with_traceback(error.__traceback__)
        return error

    def _enter(self, side: int, key: bytes, group: int) -> None:
        if side == _KEYED:
            super()._enter(side, key, group)
        else:
            self.cell = self._shared

    def snapshot(self) -> OperatorState:
        return united(super().snapshot(), OperatorState(values={_SHARED: self._states.encoded(self._shared)}))

    def restore(self, parts: Sequence[OperatorState]) -> None:
        super().restore(parts)
        if parts:
            self._states.revert(self._shared, parts[0].values[_SHARED])
