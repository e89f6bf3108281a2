"""What the operators of generated jobs have in common: each adds an answer to the histories of its rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import pyarrow as pa

from clonos_py.model.operators import Operator, OperatorContext, Output
from clonos_py.model.state import OperatorState
from clonos_py.runtime.sim.histories import HISTORY_ROWS, STEP


def answered(rows: pa.RecordBatch, letter: int, answers: Sequence[int]) -> pa.RecordBatch:
    """The rows with one of these answers each at the end of their histories. Columns behind the history are dropped."""
    histories: list[bytes] = rows.column(2).to_pylist()  # type: ignore[assignment]
    longer = [history + STEP.pack(letter, answer) for history, answer in zip(histories, answers, strict=True)]
    return pa.record_batch([rows.column(0), rows.column(1), pa.array(longer, pa.binary())], schema=HISTORY_ROWS)


class Step(Operator):
    """Adds the numbers that ``answers`` returns, one per row, to the histories. In subclasses they are
    nondeterministic."""

    def __init__(self, letter: int) -> None:
        self._letter = letter

    def on_rows(self, rows: pa.RecordBatch, side: int) -> None:
        self.out.emit(answered(rows, self._letter, self.answers(rows, side)))

    def answers(self, rows: pa.RecordBatch, side: int) -> list[int]:
        """One number per row; here always 0."""
        return [0] * rows.num_rows


class EngineStep(Step):
    """A step whose state is that of one of the engine's operators, which emits to the step."""

    def __init__(self, letter: int, engine: Operator) -> None:
        super().__init__(letter)
        self._engine = engine

    def open(self, ctx: OperatorContext, out: Output) -> None:
        super().open(ctx, out)
        self._engine.open(ctx, self)

    @abstractmethod
    def emit(self, rows: pa.RecordBatch, port: int = 0) -> None:
        """Takes the rows that the engine's operator emits."""

    def on_watermark(self, watermark: int) -> int:
        return self._engine.on_watermark(watermark)

    def on_settled(self, side: int) -> None:
        self._engine.on_settled(side)

    def released(self) -> int:
        return self._engine.released()

    def tables(self, inputs: Sequence[pa.Schema]) -> Mapping[str, pa.Schema]:
        return self._engine.tables(inputs)

    def snapshot(self) -> OperatorState:
        return self._engine.snapshot()

    def restore(self, parts: Sequence[OperatorState]) -> None:
        self._engine.restore(parts)
