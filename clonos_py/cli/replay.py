"""``clonos replay``: repeats what a job did, from its record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import click

from clonos_py.cli.job_command import FILE_HELP, JobCommand, job_of
from clonos_py.cli.options import file_in_a_folder, resolved, setting_options
from clonos_py.cli.replay_with import HELP as WITH_HELP
from clonos_py.cli.replay_with import OPTIONS, WantedComparison, compare
from clonos_py.model.errors import SettingError

if TYPE_CHECKING:
    from clonos_py.model.ids import TaskId
    from clonos_py.runtime.replay.predicates import RowPredicate
    from clonos_py.runtime.replay.run import ReplayReport
    from clonos_py.runtime.replay.watcher import OperatorWatcher

_SAID_EVERY_S = 2.0
_DIFFERENCES_SHOWN = 10
_TASKS_SHOWN = 3


class TimeOfDay(click.ParamType[int]):
    """A time of day, such as "2026-11-27 03:12" (UTC unless it has an offset). Returns microseconds since 1970."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        from clonos_py.runtime.replay.run import time_of_day_us

        try:
            return time_of_day_us(value)
        except SettingError as error:
            self.fail(str(error), param, ctx)


class CheckpointOrTime(click.ParamType[Any]):
    """A checkpoint's number, or a time of day."""

    name = "N|TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        if value.isascii() and value.isdigit():
            return "until", int(value)
        return "until_us", TimeOfDay().convert(value, param, ctx)


@click.pass_context
def replay(
    ctx: click.Context,
    /,
    at: int | None,
    checkpoint: int | None,
    until: tuple[str, int] | None,
    task: tuple[str, ...],
    out: Path | None,
    debug: bool,
    row: RowPredicate | None,
    nth: int | None,
    operator: str | None,
    trace: RowPredicate | None,
    sink: str | None,
    svg: Path | None,
    changed: str | None,
    diff: bool,
    ask: str,
    key: tuple[str, ...] | None,
    differences: int,
    to_test: Path | None,
    mask: tuple[str, ...],
    **parameters: Any,
) -> int:
    """The body of the command."""
    from clonos_py.runtime.replay.outputs import ReplayedRows
    from clonos_py.runtime.replay.run import ReplayRange
    from clonos_py.runtime.replay.run import replay as replayed

    job = job_of(ctx)
    settings = resolved(job.settings, parameters)
    if settings.checkpoints is None:
        raise SettingError("name the folder of the record: add --checkpoints FOLDER")
    _check_fit(ctx.params)
    chosen = ReplayRange(at, checkpoint, **dict([until] if until else []))
    place, began_s = settings.checkpoints, monotonic()
    progress, reports = _Progress(), list[Any]()
    if changed is not None:
        wanted = WantedComparison(
            changed, ask, key or (), differences, out, settings.drop_state, ctx.params, ctx.obj.module
        )
        return compare(job, settings.checkpoints, chosen, wanted, progress.event, _say_what)

    def begun(report: ReplayReport) -> None:
        reports.append(report)
        _say_what(report)

    with ReplayedRows(out) as rows:

        def run(watcher: OperatorWatcher | None = None) -> ReplayReport:
            return replayed(
                job, place, chosen, rows.add, tasks=task, before=progress.event, begun=begun, watcher=watcher
            )

        if debug:
            from clonos_py.cli.replay_debug import debugged
            from clonos_py.runtime.replay.debugging import Wanted

            first = 1 if operator is not None and row is None and nth is None else nth
            report: ReplayReport | int = debugged(job, Wanted(row, first, operator), run)
        elif trace is not None:
            from clonos_py.cli.replay_trace import traced

            report = traced(job, trace, sink, svg, run)
        elif to_test is not None:
            from clonos_py.cli.replay_to_test import written_test

            assert row is not None
            jobs = ctx.obj
            values = {name: ctx.params[name] for name in jobs.parameters}
            report = written_test(jobs, job, values, row, sink, mask, to_test, place, run, reports)
        else:
            report = run()
    if isinstance(report, int):
        return report
    _say(report, monotonic() - began_s, out)
    return 1 if report.differences else 0


def _check_fit(parameters: Mapping[str, Any]) -> None:
    """Raises UsageError for options of which one needs or excludes another."""
    given = {name for name, value in parameters.items() if value is not None and value is not False and value != ()}
    is_test, stops, traces = "to_test" in given, "debug" in given, "trace" in given
    wrong = (
        ({"at", "checkpoint"} <= given, "--at and --checkpoint both say where to begin: omit one"),
        (is_test and "row" not in given, "--to-test needs the row of which the test is to be: add --row CONDITION"),
        (not is_test and "mask" in given, "--mask is of --to-test: add --to-test FILE"),
        (
            not stops and given & ({"nth", "operator"} if is_test else {"nth", "operator", "row"}),
            "--row, --nth and --operator say where to stop: add --debug",
        ),
        (
            not traces and given & ({"svg"} if is_test else {"svg", "sink"}),
            "--sink and --svg are of --trace: add --trace CONDITION",
        ),
        (traces and stops, "--debug and --trace are two replays: omit one"),
        (is_test and (traces or stops), "--to-test is a replay of its own: omit --debug and --trace"),
        (
            ("changed" in given) != ("diff" in given),
            "--with NEW.py and --diff belong together: name the changed code, and compare",
        ),
        ("changed" not in given and "drop_state" in given, "--drop-state is of --with: add --with NEW.py and --diff"),
        ("changed" in given and "task" in given, "--diff compares all tasks: omit --task"),
        (
            "changed" in given and (stops or traces or is_test),
            "--diff compares the rows of sinks: omit --debug, --trace and --to-test",
        ),
    )
    for is_wrong, message in wrong:
        if is_wrong:
            raise click.UsageError(message)


class Condition(click.ParamType[Any]):
    """A Python expression on a row, such as "amount > 100"."""

    name = "CONDITION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> RowPredicate:
        from clonos_py.runtime.replay.predicates import RowPredicate

        if isinstance(value, RowPredicate):
            return value
        try:
            return RowPredicate(value)
        except SettingError as error:
            self.fail(str(error), param, ctx)


class _Progress:
    """Says how far a long replay is."""

    def __init__(self) -> None:
        self._events = 0
        self._said_s = monotonic()

    def event(self, task: TaskId) -> None:
        self._events += 1
        if self._events % 1_000 == 0 and monotonic() - self._said_s > _SAID_EVERY_S:
            self._said_s = monotonic()
            click.echo(f"{self._events:,} events", err=True)


def _say_what(report: ReplayReport) -> None:
    from clonos_py.runtime.replay.run import interval_texts

    first, last = interval_texts(report)
    click.echo(f"replaying from {first} to {last}", err=True)
    if report.code_changed:
        click.echo("note: the code is not the one that wrote the record", err=True)
    if tasks := report.without_tail:
        more = f" and {len(tasks) - _TASKS_SHOWN} more" if len(tasks) > _TASKS_SHOWN else ""
        click.echo(
            f"note: no file has what {', '.join(tasks[:_TASKS_SHOWN])}{more} held when the job failed; the replay may "
            "end before that",
            err=True,
        )


def _say(report: ReplayReport, took_s: float, out: Path | None) -> None:
    for sink, count in sorted(report.rows.items()):
        click.echo(f"{sink}: {count:,} rows{f' in {out}' if out is not None else ''}")
    what = f"{report.tasks} tasks, {report.events:,} events, {took_s:.1f} s"
    if not report.differences:
        equal = f"{report.snapshots} snapshots" if report.snapshots else "no snapshot to compare"
        click.echo(f"identical: state, progress and output checksums of {equal} ({what})")
        return
    for difference in report.differences[:_DIFFERENCES_SHOWN]:
        click.echo(difference)
    if (more := len(report.differences) - _DIFFERENCES_SHOWN) > 0:
        click.echo(f"and {more} more")
    click.echo(
        f"different: {len(report.differences)} of {len(report.differences) + report.snapshots} snapshots ({what})"
    )


def _new_test(ctx: click.Context, param: click.Parameter, path: Path | None) -> Path | None:
    if path is None:
        return None
    from clonos_py.cli.replay_to_test import new_test

    return new_test(ctx, param, path)


command = JobCommand(
    "replay",
    callback=replay,
    params=[
        click.Argument(["file"], expose_value=False),
        *setting_options("checkpoints", "drop_state"),
        click.Option(["--at"], type=TimeOfDay(), help="Begin at the last possible checkpoint before this time (UTC)."),
        click.Option(["--checkpoint"], type=click.IntRange(0), help="Begin there, or at the last possible one before."),
        click.Option(["--until"], type=CheckpointOrTime(), help="End at this checkpoint, or at the next one then."),
        click.Option(["--task"], multiple=True, metavar="TASK", help="Only this task, and those upstream of it."),
        click.Option(["--out"], type=click.Path(path_type=Path), help="Write the rows of sinks to files there."),
        click.Option(
            ["--debug"],
            is_flag=True,
            help="Stop in a debugger where the job's code fails, or at the rows of --row, --nth and --operator.",
        ),
        click.Option(
            ["--row"],
            type=Condition(),
            help="Stop before the function of yours that gets a row for which this Python expression on its columns "
            "holds; in a process function also on key, and on timer, the name of a timer that fires. With --to-test: "
            "on the rows of the sink.",
        ),
        click.Option(["--nth"], type=click.IntRange(1), metavar="N", help="Stop at the N-th of these rows only."),
        click.Option(
            ["--operator"],
            metavar="NAME",
            help="Stop at this operator only. One without a function stops before the batch that has the row.",
        ),
        click.Option(
            ["--trace"],
            type=Condition(),
            help="Show from which rows of each operator the first row of a sink came for which this expression holds.",
        ),
        click.Option(["--sink"], metavar="NAME", help="The sink of --trace or --to-test. Not needed if there is one."),
        click.Option(
            ["--svg"],
            type=click.Path(path_type=Path),
            callback=file_in_a_folder,
            help="Draw what --trace finds to this file, too.",
        ),
        *OPTIONS,
        click.Option(
            ["--to-test"],
            type=click.Path(path_type=Path),
            metavar="FILE",
            callback=_new_test,
            help="Write a test to this new file: the rows, answers and times that led to the first row of a sink for "
            "which --row holds, and what the job gives for them.",
        ),
        click.Option(
            ["--mask"],
            multiple=True,
            metavar="COLUMN",
            help="Replace the values of this column in the test by made-up ones of the same type and length.",
        ),
    ],
    help=f"""Repeats what a job did, from its record: the same frames, answers, timers and rows.

    The job must have run with --record and --checkpoints. Sources are read again. Nothing else outside is asked, and
    sinks write nothing. At each checkpoint in between, state, progress and the checksums of the rows of sinks are
    compared with those of the record; the exit code is 1 if something differs.

    Without --at and --checkpoint everything that is kept is replayed; with one of them the time until the next
    checkpoint, unless --until is given.

    {WITH_HELP}

    {FILE_HELP} If the job is a function such as job(topic: str), its parameters are options: --topic bids.

    \b
    Examples:
      clonos replay hot_auctions.py --checkpoints /data/checkpoints
      clonos replay hot_auctions.py --checkpoints /data/checkpoints --at '2026-11-27 03:12' --out night
      clonos replay hot_auctions.py --checkpoints /data/checkpoints --debug --row 'auction == 7 and price > 1000'
      clonos replay hot_auctions.py --checkpoints /data/checkpoints --trace 'auction == 7' --svg way.svg
      clonos replay hot_auctions.py --checkpoints /data/checkpoints --with changed.py --diff
      clonos replay hot_auctions.py --checkpoints /data/checkpoints --to-test tests/test_night.py --row 'auction == 7'
    """,
)
