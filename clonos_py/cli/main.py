"""The ``clonos`` command. Subcommands are imported when they are used, so that ``clonos --help`` responds at once."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

import click

from clonos_py.cli.endings import ended
from clonos_py.runtime.interrupts import end_in_order
from clonos_py.runtime.pandas_import import defer_pandas
from clonos_py.runtime.ray.disconnect import exit_now, process_ends

COMMANDS = {
    "run": ("clonos_py.cli.run", "Runs a job."),
    "list": ("clonos_py.cli.list_runs", "Lists the jobs that run on a Ray cluster."),
    "status": ("clonos_py.cli.status", "Shows how a detached run is: tasks, checkpoints, recoveries."),
    "logs": ("clonos_py.cli.logs", "Shows what a detached run has reported and printed."),
    "resume": ("clonos_py.cli.resume", "Starts a detached run again from its last checkpoint."),
    "rescale": ("clonos_py.cli.rescale", "Stops a detached run and starts it at another parallelism."),
    "savepoint": ("clonos_py.cli.savepoint", "Keeps checkpoints under names; lists, copies and deletes them."),
    "stop": ("clonos_py.cli.stop", "Stops a running job, with a last checkpoint."),
    "plan": ("clonos_py.cli.plan", "Shows what will run, as text, Mermaid or SVG."),
    "check": ("clonos_py.cli.check", "Finds code that a replay cannot repeat, before a failure does."),
    "config": ("clonos_py.cli.config", "Shows every setting and where its value came from."),
    "interval": ("clonos_py.cli.interval", "Finds the checkpoint interval with the highest utilization."),
    "replay": ("clonos_py.cli.replay", "Repeats what a job did, from its record, and compares."),
    "record": ("clonos_py.cli.record", "Shows what a job has recorded for replays."),
    "state": ("clonos_py.cli.state", "Shows what the checkpoints of a job hold: tables, sizes, differences."),
    "sim": ("clonos_py.cli.sim", "Looks for wrong results with generated jobs, failures and schedules."),
    "analyze": ("clonos_py.cli.analyze", "Makes a report of a run's trace: what happened, in plots and figures."),
    "nexmark": ("clonos_py.cli.nexmark", "Runs the Nexmark queries, optionally with kills, and reports."),
}
"""By subcommand: the module that defines its ``command``, and its description."""

HELP = """Runs streaming jobs that tolerate the failure of their tasks: exactly-once, even if their code uses clocks,
random numbers and servers.

\b
A job is a Python file:
    from clonos_py import Job, col
    from clonos_py.connectors import FileSource, PrintSink
    job = Job("hello")
    job.source(FileSource("*.txt")).filter(col("line") != "").sink(PrintSink())

\b
Start here:
    clonos run hello.py --runtime local     one process, starts in about a second
    clonos run hello.py --parallelism 4     Ray: a local one, or --address of a cluster
    clonos run hello.py --detach            runs on without this command: see list, status, logs, resume
    clonos stop hello                       takes a last checkpoint of a running job and ends it
    clonos state ls --checkpoints DIR       what checkpoints hold; clonos state show OPERATOR: its rows
    clonos plan hello.py                    what will run
    clonos check hello.py                   is it replayable? names the line that is not
    clonos config hello.py                  every setting and where it came from
    clonos interval --failure-rate 1/19d --cost 1s --restart 20s    how often to checkpoint
    clonos nexmark run q8 --kill 'join[0]@3s'
    clonos analyze trace/ --out report/     what happened in a run with --trace trace/, in plots
    clonos sim --seeds 1000                 looks for wrong results in generated jobs

Settings come from the command line, else CLONOS_* variables, else clonos.toml, else Job(...), else defaults.
CLONOS_DEBUG=1 shows the traceback of an error, that of a function of yours included.
"""


class LazyGroup(click.Group):
    """A group that lists its commands by name and imports only the one that is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(COMMANDS[cmd_name][0]).command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in COMMANDS and not args[0].startswith("-"):
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            ctx.fail(f"No such command {args[0]!r}." + (f" Did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help) for name, (_, help) in COMMANDS.items()])


@click.group(cls=LazyGroup, help=HELP, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="clonos-py", prog_name="clonos")
def clonos() -> None:
    """The root command. Its help text is ``HELP``."""


def main() -> None:
    """The console script. SIGTERM stops the job in an orderly way, as Ctrl-C does."""
    _open_standard_streams()
    defer_pandas()
    end_in_order()
    process_ends()
    code = invoke(sys.argv[1:])
    sys.stdout.flush()
    exit_now(code)
    sys.exit(code)


def _open_standard_streams() -> None:
    """Lets standard streams that the caller has closed lead nowhere: else the next files would take their places."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 - to the end of the process


def invoke(arguments: Sequence[str]) -> int:
    """Runs a command line of ``clonos`` and returns its exit code."""
    return ended(clonos, arguments, "clonos")


if __name__ == "__main__":
    main()
