"""``clonos record``: shows what the record of a job holds."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.stored_jobs import jobs_text, only_job
from clonos_py.cli.job_command import FILE_HELP, JobCommand, job_of
from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.model.errors import CheckpointError, SettingError
from clonos_py.model.snapshots import Manifest
from clonos_py.observe.units import bytes_text
from clonos_py.runtime.record_errors import as_record_errors
from clonos_py.runtime.record_summary import RecordedFailure, RecordPeriod, record_periods, recorded_failure


@click.pass_context
def ls(ctx: click.Context, /, file: str | None, job: str | None, as_json: bool, **parameters: Any) -> None:
    """The body of the command."""
    if file is not None and job is not None:
        raise click.UsageError("give FILE or --job: the file says the name of its job")
    written = job_of(ctx) if file is not None else None
    folder = resolved(written.settings if written is not None else {}, parameters).checkpoints
    if folder is None:
        raise SettingError("there is no checkpoint folder: give --checkpoints, or a FILE whose job names one")
    name = written.name if written is not None else only_job(folder, job, "--job")
    store = CheckpointStore(folder, name)
    with as_record_errors(of_one_interval=False):
        manifests = store.manifests()
        failure = recorded_failure(manifests[-1] if manifests else None, store.tails())
    if not manifests and failure is None:
        raise CheckpointError(f"{store.path} has no checkpoints: {jobs_text(folder)}")
    periods = record_periods(manifests, store.bases())
    if not periods and failure is None:
        raise CheckpointError(f"{store.path} has no record: run the job with --record, such as --record 24h")
    size_bytes, limit = store.record_bytes(), _limit(failure.interval if failure is not None else manifests[-1])
    if as_json:
        found = {"job": name, "folder": store.path, "record": limit, "bytes": size_bytes}
        found["failure"] = _failure_as_json(failure) if failure is not None else None
        click.echo(json.dumps({**found, "periods": [_as_json(p) for p in periods]}, indent=2))
    else:
        _print(name, periods)
        if failure is not None:
            click.echo(f"\n{_failure_text(failure)}")
        click.echo(f"\nrecord = {limit}: {bytes_text(size_bytes)} in {store.path}")


def _limit(newest: Manifest) -> str:
    """The setting ``record`` of the run that wrote a manifest."""
    return newest.recorded.settings.get("record", "off") if newest.recorded is not None else "off"


def _failure_text(failure: RecordedFailure) -> str:
    when = f"after checkpoint {failure.interval.checkpoint}" if failure.interval.checkpoint else "before any checkpoint"
    return (
        f"the job failed {when}: {failure.determinants} determinants of {len(failure.tasks)} tasks are kept until then"
    )


def _failure_as_json(failure: RecordedFailure) -> dict[str, Any]:
    return {
        "after_checkpoint": failure.interval.checkpoint,
        "determinants": failure.determinants,
        "tasks": list(failure.tasks),
    }


def _print(job: str, periods: Sequence[RecordPeriod]) -> None:
    headings = "from (UTC)", "until", "checkpoints", "bases", "determinants", "their bytes", "state bytes"
    if periods:
        show(f"the record of {job!r}", headings, map(_row, periods))
    for number, period in enumerate(periods):
        click.echo()
        if number:
            tasks = ", ".join(f"{name} {count}" for name, count in period.parallelism.items())
            click.echo(f"{_time(period.from_ms)}: tasks begin with new numbers: {tasks}")
        if period.runs > 1:
            click.echo(f"{_time(period.from_ms)}: {period.runs} runs of the job")
        for gap in period.gaps:
            click.echo(gap)
        rows = [(task.task, str(task.determinants), bytes_text(task.log_bytes)) for task in period.tasks]
        show(f"tasks from {_time(period.from_ms)}", ("task", "determinants", "bytes"), rows)


def _row(period: RecordPeriod) -> tuple[str, ...]:
    figures = period.checkpoints, len(period.bases_ms), period.determinants
    sizes = bytes_text(period.log_bytes), bytes_text(period.state_bytes)
    return _time(period.from_ms), _time(period.until_ms), *map(str, figures), *sizes


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _as_json(period: RecordPeriod) -> dict[str, Any]:
    return {**asdict(period), "determinants": period.determinants, "log_bytes": period.log_bytes}


command = click.Group(
    "record",
    commands=[
        JobCommand(
            "ls",
            callback=ls,
            params=[
                click.Argument(["file"], required=False),
                *setting_options("checkpoints"),
                click.Option(["--job"], metavar="NAME", help="The job, if the folder has several, and without FILE."),
                click.Option(["--json", "as_json"], is_flag=True, help="Print JSON, with times in ms since 1970, UTC."),
            ],
            help=f"""Lists what can be replayed: from when until when, and what it takes in storage.

    A job keeps a record with --record, in its checkpoint folder. A replay starts from a base, a checkpoint whose state
    is kept. The last line has the bytes of all that is kept: logs, answers, manifests and the state of bases.
    {FILE_HELP} Without FILE, give --checkpoints.

    \b
    Examples:
      clonos record ls hot_auctions.py
      clonos record ls --checkpoints checkpoints/ --job hot_auctions --json
    """,
        )
    ],
    help="Shows the record of a job: the determinants that it keeps for replays.",
)
