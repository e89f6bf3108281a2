"""The same history gives a process function the same results after any restarts."""

from __future__ import annotations

import itertools

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from clonos_py.columns.keys import key_groups
from clonos_py.model.operators import Operator
from clonos_py.model.state import OperatorState
from clonos_py.model.times import MAX_TIME
from tests.unit.operators.accounts import Audit, Story, operator, texts, txns
from tests.unit.operators.scripted import Collected, ScriptedContext, advance, opened, read_by, stored

# The same history gives the same results after any restarts.

Step = list[tuple[int, int, int]] | int
rows_of = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 60)), max_size=6)
histories = st.lists(rows_of | st.integers(0, 70), max_size=12)


def feed(running: list[tuple[Operator, ScriptedContext]], rows: pa.RecordBatch) -> None:
    groups = key_groups(rows, ["account"], 128)
    for process, ctx in running:
        mine = np.flatnonzero((groups >= ctx.groups.start) & (groups < ctx.groups.stop))
        if len(mine):
            process.on_rows(rows.take(mine), 0)


def play(history: list[Step], in_order: bool, restarts: dict[int, int]) -> list[list[str]]:
    """The story of each account, with the job restarted at the steps in ``restarts`` at another parallelism."""
    watermark = -1
    parts: list[OperatorState] = []
    outs: list[Collected] = []
    running: list[tuple[Operator, ScriptedContext]] = []
    for number, step in enumerate([*history, MAX_TIME]):
        if number == 0 or number in restarts:
            parts = [stored(process.snapshot()) for process, _ in running]
            cuts = np.linspace(0, 128, restarts.get(number, 1) + 1).astype(int).tolist()
            running = []
            for low, high in itertools.pairwise(cuts):
                story = operator(Story, Audit, in_order=in_order)
                ctx, out = opened(story, ScriptedContext(range(low, high)))
                ctx.watermark = watermark
                story.restore(read_by(parts, ctx.groups))
                running.append((story, ctx))
                outs.append(out)
        if isinstance(step, int):
            if step > watermark:
                watermark = step
                for process, ctx in running:
                    advance(process, ctx, watermark)
        else:
            feed(running, txns(*step))
    audited = [text for out in outs for text in texts(out)]
    return [[text for text in audited if text.startswith(f"{account}: ")] for account in range(5)] + [sorted(audited)]


@given(histories, st.booleans(), st.dictionaries(st.integers(1, 12), st.integers(1, 3), max_size=3))
def test_restarts_at_any_parallelism_do_not_change_the_output(
    history: list[Step], in_order: bool, restarts: dict[int, int]
) -> None:
    assert play(history, in_order, restarts) == play(history, in_order, {})


@given(rows_of, st.data())
def test_in_order_the_arrival_of_rows_of_different_times_does_not_matter(
    rows: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    distinct = list({time: (account, cents, time) for account, cents, time in rows}.values())
    shuffled = data.draw(st.permutations(distinct))
    assert play([shuffled], True, {}) == play([sorted(distinct, key=lambda row: row[2])], True, {})
