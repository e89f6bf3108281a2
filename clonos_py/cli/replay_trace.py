"""``clonos replay --trace``: shows from which rows of each operator a row of a sink came."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from clonos_py.cli.result_files import write_result
from clonos_py.cli.trace_svg import picture
from clonos_py.operators.failures import as_text
from clonos_py.runtime.replay.predicates import RowPredicate
from clonos_py.runtime.replay.provenance import RowFound, Tracer, TraceStep

if TYPE_CHECKING:
    from clonos_py.dsl.job import Job
    from clonos_py.runtime.replay.run import ReplayReport
    from clonos_py.runtime.replay.watcher import OperatorWatcher

_LEGEND = "exact: these rows and no others gave those above; at most: no others did, but some of these may not count"


def traced(
    job: Job, row: RowPredicate, sink: str | None, svg: Path | None, replayed: Callable[[OperatorWatcher], ReplayReport]
) -> int:
    """Replays until the sink gets the row, and shows where it came from. Returns an exit code."""
    tracer = Tracer(job, row, sink)
    try:
        replayed(tracer)
    except RowFound:
        steps = tracer.steps()
        click.echo("\n".join(text_lines(steps)))
        if svg is not None:
            write_result(svg, picture(f"{job.name}: {row}", steps, depths(steps)))
        return 0
    click.echo(f"{row} holds for no row that a sink got in this interval", err=True)
    return 1


def text_lines(steps: Sequence[TraceStep]) -> Iterator[str]:
    """The steps as indented text: what made the rows of an operator is behind it, indented by one level more."""
    levels = depths(steps)
    for step in steps:
        indent = "  " * levels[step.operator]
        yield f"{indent}{headline(step)}"
        yield from (f"{indent}    {line}" for line in details(step))
    yield _LEGEND


def depths(steps: Sequence[TraceStep]) -> dict[str, int]:
    """By operator: how many operators are between it and the end of the sink."""
    found: dict[str, int] = {}
    for step in steps:
        found[step.operator] = 1 + max((found[name] for name in step.before if name in found), default=-1)
    return found


def headline(step: TraceStep) -> str:
    """What the rows are, in one line."""
    where = f", {step.where}" if step.where else ""
    rows = "1 row" if step.count == 1 else f"{step.count:,} rows"
    return f"{step.operator} ({step.verb}{where}): {'' if step.exact else 'at most '}{rows}"


def details(step: TraceStep) -> Iterator[str]:
    """Why these rows, in which frames they came, and the first of them."""
    yield f"{'exact' if step.exact else 'at most'}: {'; '.join(step.how)}"
    yield from step.frames
    yield from step.notes
    yield from (f"called with {as_text(row)}" for row in step.called)
    yield from map(as_text, step.rows)
    if step.rows and (more := step.count - len(step.rows)) > 0:  # partial results may have no column of the job
        yield f"and {more:,} more"
