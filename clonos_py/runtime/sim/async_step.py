"""The asynchronous step of generated jobs: the engine's operator for ``async def``, with several rows in progress."""

from __future__ import annotations

from clonos_py.model.calls import Waiting
from clonos_py.model.errors import ServiceError
from clonos_py.model.operators import Operator
from clonos_py.model.record import Record
from clonos_py.operators.async_rows import MapAsyncRows
from clonos_py.runtime.sim.harsh_environment import LARGE, ORACLE
from clonos_py.runtime.sim.histories import HISTORY_ROWS, STEP
from clonos_py.services.async_context import AsyncContext, Awaited

_QUESTION: tuple[tuple[()], dict[str, object]] = ((), {})
_CONCURRENCY = 3


class HistoryRow(Record):
    id: int
    key: int
    history: bytes


def ask_later(letter: int) -> Operator:
    """Calls a service, and continues with other rows until it answers. Sometimes it sleeps, or gets a large answer."""

    async def ask(row: HistoryRow, ctx: AsyncContext) -> HistoryRow:
        drawn = ctx.random.getrandbits(32)
        if drawn % 4 == 0:
            await ctx.sleep("2ms")
        try:
            answer = await _asked(ctx, large=drawn % 16 == 1)
        except ServiceError:
            answer = -1
        return HistoryRow(row.id, row.key, row.history + STEP.pack(letter, answer ^ drawn ^ ctx.time.now()))

    ordered = letter % 2 == 0
    return MapAsyncRows(ask, HistoryRow, HISTORY_ROWS, "map", True, Waiting(_CONCURRENCY, ordered, None))


async def _asked(ctx: AsyncContext, large: bool) -> int:
    if large:
        content: bytes = await Awaited(LARGE, _QUESTION)
        return int.from_bytes(content[:8])
    answer: int = await Awaited(ORACLE, _QUESTION)
    return answer
