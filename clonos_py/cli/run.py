"""``clonos run``: runs a job until its sources end or it is interrupted."""

from __future__ import annotations

from typing import Any

import click

from clonos_py.cli.job_command import FILE_HELP, JobCommand, again, job_of
from clonos_py.cli.options import resolved, setting_options
from clonos_py.runtime.garbage import kept
from clonos_py.settings.definitions import Settings


@click.pass_context
def run(ctx: click.Context, /, detach: bool, **parameters: Any) -> None:
    """The body of the command: loads the job, resolves settings, runs the job and shows the live view."""
    if detach:
        _detach(ctx, parameters)
        return
    with kept():
        from clonos_py.model.coordinator_events import CheckpointCompleted
        from clonos_py.observe.console import watch
        from clonos_py.runtime.launch import run_job

        job = job_of(ctx)
        settings = resolved(job.settings, parameters)
    has_checkpoint = False
    try:
        with watch(job.name, settings.log_level, settings.log_format) as listener:

            def heard(at_us: int, event: Any) -> None:
                nonlocal has_checkpoint
                has_checkpoint |= isinstance(event, CheckpointCompleted)
                listener(at_us, event)

            result = run_job(job, settings, heard)
        if result.stopped:
            click.echo(_how_to_go_on(ctx, settings, has_checkpoint), err=True)
    except KeyboardInterrupt:
        click.echo(_how_to_go_on(ctx, settings, has_checkpoint), err=True)
        raise


def _detach(ctx: click.Context, parameters: dict[str, Any]) -> None:
    """Starts the job and returns when it is deployed."""
    from clonos_py.cli.detached_runs import on_cluster, shown_start
    from clonos_py.runtime.ray.detached import check_detachable, deploy

    job = job_of(ctx)
    settings = resolved(job.settings, parameters)
    check_detachable(settings)
    with on_cluster(settings.address, settings.namespace) as cluster:
        shown_start(cluster.named(job.name), deploy(job, settings, cluster))


def _how_to_go_on(ctx: click.Context, settings: Settings, has_checkpoint: bool) -> str:
    if settings.checkpoints is None:
        return (
            "this run left no checkpoints: with --checkpoints FOLDER the next one can continue where it was interrupted"
        )
    return f"to continue from the last checkpoint: {again(ctx, has_checkpoint)}"


command = JobCommand(
    "run",
    callback=run,
    params=[
        click.Argument(["file"]),
        click.Option(
            ["--detach"], is_flag=True, help="Return when the job is deployed; it runs on without this command."
        ),
        *setting_options(),
    ],
    help=f"""Runs a job until its sources end; Ctrl-C or SIGTERM ends it; the next run goes on from its last checkpoint.

    {FILE_HELP} If the job is a function such as job(topic: str), its parameters are options: --topic bids.

    With --detach the job runs on a Ray cluster until it ends or is stopped; no death of one process, that of its driver
    included, ends it. It needs --checkpoints that all nodes reach. See also clonos list, status, logs, stop and resume.

    The exit code is 0 if the job has ended, 1 after an error, 130 after Ctrl-C and 143 after SIGTERM.

    \b
    Examples:
      clonos run hot_auctions.py --runtime local
      clonos run hot_auctions.py --parallelism 4 --checkpoints /data/checkpoints
      clonos run hot_auctions.py --kill 'window[0]@3s'
      clonos run hot_auctions.py --detach --address 10.0.0.7:6379 --checkpoints s3://bucket/checkpoints
    """,
)
