"""``clonos replay --with NEW.py --diff``: compares what changed code makes of a record with what the recorded code
made of it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from clonos_py.model.errors import ClonosError, one_line, shows_tracebacks
from clonos_py.model.places import user_modules

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from clonos_py.dsl.job import Job
    from clonos_py.model.ids import TaskId
    from clonos_py.runtime.replay.outputs import ReplayedRows
    from clonos_py.runtime.replay.row_differences import SinkDifferences
    from clonos_py.runtime.replay.run import ReplayRange, ReplayReport
    from clonos_py.runtime.replay.what_if import WhatIfReport

EQUAL, DIFFERENT, TROUBLE = 0, 1, 2
"""Exit codes, as those of ``diff``."""
_SHOWN_ROWS = 10
_SHOWN_CHARACTERS = 300


class ColumnNames(click.ParamType[tuple[str, ...]]):
    """Names of columns, separated by commas."""

    name = "COLUMN,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        names = tuple(value if isinstance(value, tuple) else (name.strip() for name in value.split(",")))
        if not all(names):
            self.fail("name one or more columns, separated by commas", param, ctx)
        return names


OPTIONS = [
    click.Option(["--with", "changed"], metavar="NEW.py", help="Changed code to run on the record, for --diff."),
    click.Option(["--diff"], is_flag=True, help="Compare the rows of sinks with those of the changed code."),
    click.Option(
        ["--ask"], type=click.Choice(["fail", "default", "live"]), default="fail",
        help="With --diff: what to do with a question that the recorded code did not ask. `default` answers with an "
        "error, and random numbers with others; `live` asks the service now.  [default: fail]",
    ),
    click.Option(
        ["--key"], type=ColumnNames(),
        help="With --diff: rows with equal values here are versions of one row.  [default: the keys of the last keyed "
        "operator]",
    ),
    click.Option(
        ["--differences"], type=click.IntRange(0), default=_SHOWN_ROWS,
        help=f"With --diff: how many differences of each kind to show for each sink.  [default: {_SHOWN_ROWS}]",
    ),
]  # fmt: skip

HELP = """With --with NEW.py --diff changed code runs on the recorded input, in the recorded order, with the recorded
    times, random numbers and answers of services. The rows of each sink are compared: a summary first, then the first
    differences. Operators have the same state as in the record if they have the same names. Exit codes are those of
    diff: 0 the rows are equal, 1 they differ, 2 the comparison failed."""


@dataclass(frozen=True)
class WantedComparison:
    """The options of a comparison. ``changed``: the file with the changed code."""

    changed: str
    ask: str
    key: tuple[str, ...]
    differences: int
    out: Path | None
    dropped: tuple[str, ...]
    parameters: Mapping[str, Any]
    """Values for the parameters of the job, by name."""
    module: str
    """The name of the module of the recorded code."""


class _Trouble(click.ClickException):
    exit_code = TROUBLE


def compare(
    job: Job, place: str, chosen: ReplayRange, wanted: WantedComparison, before: Callable[[TaskId], None],
    begun: Callable[[ReplayReport], None],
) -> int:  # fmt: skip
    """Compares, prints what differs, and returns the exit code."""
    try:
        return _compare(job, place, chosen, wanted, before, begun)
    except ClonosError as error:
        if error.traceback and shows_tracebacks():
            click.echo(error.traceback, err=True)
        raise _Trouble(one_line(error)) from error


def _compare(
    job: Job, place: str, chosen: ReplayRange, wanted: WantedComparison, before: Callable[[TaskId], None],
    begun: Callable[[ReplayReport], None],
) -> int:  # fmt: skip
    from clonos_py.runtime.callers import http_client
    from clonos_py.runtime.replay.answers import Unasked
    from clonos_py.runtime.replay.what_if import WhatIf, what_if
    from clonos_py.services.registry import ServiceRegistry

    changed, module = job_beside(wanted.changed, wanted.parameters)
    how = WhatIf(Unasked(wanted.ask), wanted.key, wanted.dropped, frozenset({module, wanted.module}))
    began_s, files, services = monotonic(), _Files(wanted.out), ServiceRegistry({}, http_client)

    def known(report: ReplayReport) -> None:
        files.open()
        begun(report)

    with closing(services), closing(files):
        observers, client = (files.before, files.after), services.client
        report = what_if(job, changed, place, chosen, how, observers, client=client, before=before, begun=known)
    if wanted.out is not None:
        _write(report, wanted.out / "differences")
    return _say(report, wanted, monotonic() - began_s)


class _Files:
    """The rows of both sides as files, once it is known that the jobs can be compared."""

    def __init__(self, out: Path | None) -> None:
        self._out = out
        self._sides: list[ReplayedRows] = []

    def open(self) -> None:
        """Raises SettingError if the folder has files already, or cannot be made."""
        from clonos_py.runtime.replay.outputs import ReplayedRows

        if self._out is not None:
            ReplayedRows(self._out)
            self._sides = [ReplayedRows(self._out / side) for side in ("before", "after")]

    def before(self, task: TaskId, sink: str, rows: pa.RecordBatch) -> None:
        if self._sides:
            self._sides[0].add(task, sink, rows)

    def after(self, task: TaskId, sink: str, rows: pa.RecordBatch) -> None:
        if self._sides:
            self._sides[1].add(task, sink, rows)

    def close(self) -> None:
        for side in self._sides:
            side.__exit__(None, None, None)


# ---- the changed code


@contextmanager
def _other_modules() -> Iterator[None]:
    """Within this, the user's modules are loaded again, and afterwards they are those of before: two versions of a job
    may have the same names, and modules of the same names beside them."""
    path, mine = list(sys.path), {module.__name__: module for module in user_modules()}
    for name in mine:
        sys.modules.pop(name, None)
    try:
        yield
    finally:
        for module in user_modules():
            sys.modules.pop(module.__name__, None)
        sys.modules.update(mine)
        sys.path[:] = path


def job_beside(file: str, parameters: Mapping[str, Any]) -> tuple[Job, str]:
    """The job of a second file, and the name of its module. Raises GraphError, as for any job file."""
    from clonos_py.dsl.loading import load_job_file

    with _other_modules():
        sys.path.insert(0, str(Path(file.partition(":")[0]).resolve().parent))
        found = load_job_file(file)
        values = {name: parameters[name] for name in found.parameters if name in parameters}
        return found.job(values), found.module


# ---- what is said


def _say(report: WhatIfReport, wanted: WantedComparison, took_s: float) -> int:
    for sink in report.sinks:
        click.echo(_summary(sink))
    for sink in report.sinks:
        _show(sink, wanted.differences)
    if report.left:
        click.echo(f"left the record {report.left:,} times, first where {report.first_left}")
    if report.empty:
        click.echo(f"not in the record, so without state from before the interval: {', '.join(report.empty)}")
    if report.failure is not None:
        click.echo(f"the recorded code failed: {one_line(report.failure.error)}")
        click.echo("the changed code fails there, too" if report.failure.changed_too else "the changed code does not")
    what = f"{report.replay.tasks} tasks, {report.replay.events:,} events, {took_s:.1f} s"
    if report.replay.differences:
        raise _Trouble(
            f"the recorded code does not repeat the record ({report.replay.differences[0]}), so the differences are "
            f"not those of the change alone: replay the job without --with ({what})"
        )
    click.echo(f"{'different' if report.differs else 'equal'} ({what})")
    return DIFFERENT if report.differs else EQUAL


def _summary(sink: SinkDifferences) -> str:
    changed = sink.changed[0].num_rows
    by = f" (by {', '.join(sink.keys)})" if changed else ""
    columns = f"; columns {' '.join(sink.columns)}" if sink.columns else ""
    return (
        f"{sink.name}: {sink.before:,} rows before, {sink.after:,} after: {sink.equal:,} equal, "
        f"{sink.only_before.num_rows:,} only before, {sink.only_after.num_rows:,} only after, {changed:,} changed{by}"
        f"{columns}"
    )


def _show(sink: SinkDifferences, most: int) -> None:
    """Shows the first differences of each kind."""
    lines = []
    for sign, rows in (("-", sink.only_before), ("+", sink.only_after)):
        lines += [f"{sign} {_text(row)}" for row in rows.slice(0, most).to_pylist()]
    before, after = (rows.slice(0, most).to_pylist() for rows in sink.changed)
    for old, new in zip(before, after, strict=True):
        names = [name for name in old if name in new and old[name] != new[name]]
        changes = ", ".join(f"{name}: {_text(old[name])} -> {_text(new[name])}" for name in names)
        lines.append(f"~ {_text({name: old[name] for name in sink.keys})} {changes}")
    if not lines:
        return
    click.echo(f"{sink.name}:")
    for line in lines:
        click.echo(f"  {line}")
    total = sum(rows.num_rows for rows in (sink.only_before, sink.only_after, sink.changed[0]))
    if total > len(lines):
        click.echo(f"  and {total - len(lines):,} more")


def _text(value: Any) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}..."


def _write(report: WhatIfReport, folder: Path) -> None:
    """Writes the differences to files, each kind of each sink to its own."""
    from clonos_py.checkpoint.layout import name_in_folder
    from clonos_py.connectors.row_files import RowFile

    folder.mkdir()
    for sink in report.sinks:
        parts = {
            "only before": sink.only_before,
            "only after": sink.only_after,
            "changed, before": sink.changed[0],
            "changed, after": sink.changed[1],
        }
        for name, rows in parts.items():
            if not rows.num_rows:
                continue
            stem = f"{name_in_folder(sink.name)}.{name.replace(', ', '-').replace(' ', '-')}"
            file = RowFile(str(folder / f"{stem}.jsonl"), "jsonl", rows.schema)
            for batch in rows.to_batches():
                file.write(batch)
            file.finish()
