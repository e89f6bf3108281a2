"""``clonos check``: finds operators that a replay could not repeat, before a failure happens."""

from __future__ import annotations

from typing import Any

import click
from click.core import ParameterSource

from clonos_py.cli.job_command import FILE_HELP, JobCommand, job_of
from clonos_py.cli.options import resolved, setting_options
from clonos_py.cli.tables import show
from clonos_py.dsl.job import Job
from clonos_py.settings.definitions import DEFINITIONS

_OF_STATE = ("renames", "drop_state", "parallelism", "key_groups", "protocol")
"""The settings that decide whether state fits."""


@click.pass_context
def check(
    ctx: click.Context, /, file: str, rows: int, live: bool, from_: str | None, at: str | None, **parameters: Any
) -> int:
    """The body of the command: plans the job once to report its errors, runs the trials, and prints the findings."""
    job = job_of(ctx)
    if from_ is not None:
        return _check_state(job, from_, at, parameters)
    for option, name in (("at", "--at"), *((key, DEFINITIONS[key].option) for key in _OF_STATE)):
        if ctx.get_parameter_source(option) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{name} goes with --from")
    from clonos_py.plan.physical import plan
    from clonos_py.runtime.check.run import check as tried

    for key in _OF_STATE:
        parameters.pop(key)
    warnings = plan(job, resolved(job.settings, {})).warnings
    found = tried(file, parameters, rows, live)
    for finding in found.findings:
        click.echo(str(finding))
    for failure in found.failures:
        click.echo(failure)
    for warning in warnings:
        click.echo(f"warning: {warning}")
    for note in found.notes:
        click.echo(f"note: {note}")
    operators = f"{found.operators} operator{'' if found.operators == 1 else 's'}"
    replay = f"{len(found.findings)} found" if found.findings else "nothing found"
    failed = f", {len(found.failures)} failed" if found.failures else ""
    click.echo(f"{operators} over up to {found.rows} rows: {replay} that a replay cannot repeat{failed}")
    return 1 if found.findings or found.failures else 0


def _check_state(job: Job, folder: str, at: str | None, parameters: dict[str, Any]) -> int:
    """Says what a run that goes on from a checkpoint would do with its state. Raises the error of such a run."""
    from clonos_py.checkpoint.storage import CheckpointStore
    from clonos_py.plan.physical import plan
    from clonos_py.runtime.run_settings import state_mapping
    from clonos_py.runtime.user_code import code_digest
    from clonos_py.stored_state.fit import fitted
    from clonos_py.stored_state.reading import manifest_of

    settings = resolved(job.settings, {**parameters, "checkpoints": folder})
    manifest = manifest_of(CheckpointStore(folder, job.name), folder, at)
    operators, same_tasks = fitted(manifest, plan(job, settings), state_mapping(settings), code_digest())
    show(f"checkpoint {manifest.checkpoint} of {job.name!r} fits this job", ("operator", "verb", "state"), operators)
    if not same_tasks:
        click.echo("\nIts tasks are others than those of the checkpoint, so the state is distributed anew.")
    return 0


command = JobCommand(
    "check",
    callback=check,
    params=[
        click.Argument(["file"]),
        click.Option(["--rows"], type=click.IntRange(1), default=200, show_default=True, help="Rows of each source."),
        click.Option(["--live"], is_flag=True, help="Ask services, which refuse otherwise; let all sinks write."),
        click.Option(
            ["--from", "from_"],
            metavar="FOLDER",
            help="Instead, say whether the job can go on from the state in this checkpoint folder.",
        ),
        click.Option(["--at"], metavar="N|SAVEPOINT", help="The checkpoint there.  [default: the newest]"),
        *setting_options(*_OF_STATE),
    ],
    help=f"""Finds operators that a replay cannot repeat: they use clocks, random numbers, the network, threads or files
    without the engine's services, or return other rows for the same input.

    Each operator runs twice on the first rows of the sources (generated from the schema where there are none), in two
    processes with different hash seeds and clocks, the second time with the answers of the first. Each finding names
    its line and a remedy. Sinks write the rows where they are not visible; those that cannot are run with --live only,
    and write the rows. The exit code is 1 if there are findings, or if the job does not catch a failure on rows of the
    sources.

    {FILE_HELP} If the job is a function such as job(topic: str), its parameters are options: --topic bids.

    With --from nothing runs: it says what becomes of the state of each operator if the job as it is now goes on from
    that checkpoint, or why it cannot. The exit code is 1 if it cannot.

    \b
    Examples:
      clonos check hot_auctions.py
      clonos check hot_auctions.py --from checkpoints --rename top=best
      clonos check hot_auctions.py --rows 1000 --live
    """,
)
