"""The step of generated jobs that gathers rows: the engine's operator for a function of so many rows at once."""

from __future__ import annotations

import pyarrow as pa

from clonos_py.model.operators import Operator
from clonos_py.operators.gathered_batches import MapGatheredBatches
from clonos_py.runtime.sim.histories import HISTORY_ROWS, STEP
from clonos_py.services.context import Context

_ROWS, _WAIT_US = 3, 2_000


def gather(letter: int) -> Operator:
    """Answers the number of rows in the batch, with a random number for all of them."""

    def scored(rows: pa.RecordBatch, ctx: Context) -> pa.RecordBatch:
        answer = STEP.pack(letter, (ctx.random.getrandbits(32) << 8) + rows.num_rows)
        histories: list[bytes] = rows.column("history").to_pylist()  # type: ignore[assignment]
        return rows.set_column(2, "history", pa.array([history + answer for history in histories], pa.binary()))

    return MapGatheredBatches(scored, HISTORY_ROWS, _ROWS, _WAIT_US, wants_ctx=True)
