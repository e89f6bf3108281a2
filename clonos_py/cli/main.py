"""The ``clonos`` command: one line for every error, an exit code for every ending.

Exit codes: 0 done, 1 the job or its input was wrong, 2 the command was written wrongly, 130 interrupted. Commands are
imported when they are used, so that ``clonos --help`` answers at once.
"""

from __future__ import annotations

import difflib
import importlib
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from importlib.metadata import version

import click

from clonos_py.model.errors import ClonosError, Remedy

COMMANDS = {
    "run": ("clonos_py.cli.run", "Runs a job."),
    "plan": ("clonos_py.cli.plan", "Shows what will run, as text, Mermaid or SVG."),
    "check": ("clonos_py.cli.check", "Finds what a replay could not repeat, before a failure does."),
    "config": ("clonos_py.cli.config", "Shows every setting and where its value came from."),
    "sim": ("clonos_py.cli.sim", "Tries to make results wrong: generated jobs, failures and schedules."),
    "analyze": ("clonos_py.cli.analyze", "Makes a report of a run's trace: what happened, in plots and figures."),
    "nexmark": ("clonos_py.cli.nexmark", "Runs the Nexmark queries, with kills if wanted, and reports."),
}
"""By name: the module whose ``command`` it is, and what it does."""

HELP = """Runs streaming jobs that survive the death of their tasks: exactly-once, whatever the code asks of clocks,
dice and servers.

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
    clonos plan hello.py                    what will run
    clonos check hello.py                   is it replayable? names the line that is not
    clonos config hello.py                  every setting and where it came from
    clonos nexmark run q8 --kill 'join[0]@3s'
    clonos analyze trace/ --out report/     what happened in a run with --trace trace/, in plots
    clonos sim --seeds 1000                 tries to make results wrong

Settings come from the command line, else CLONOS_* variables, else clonos.toml, else Job(...), else defaults.
CLONOS_DEBUG=1 shows the traceback of an unexpected error.
"""


class LazyGroup(click.Group):
    """A group that knows its commands by name and imports the one that is called."""

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
@click.version_option(version("clonos-py"), prog_name="clonos")
def clonos() -> None:
    """The root; its help is ``HELP``."""


def main() -> None:
    """The console script. Being told to terminate is being interrupted: the job stops in order."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: Sequence[str]) -> int:
    """Runs a command line and returns its exit code; every error becomes one line on standard error."""
    try:
        code = clonos.main(list(arguments), prog_name="clonos", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _told(_usage_error(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _told("interrupted", 130)
    except ClonosError as error:
        return _told(f"error: {_one_line(error)}{_remedy(error)}", 1)
    except Exception as error:  # noqa: BLE001 - the last resort: whatever it is, the user gets one line
        return _told(f"error: {type(error).__name__}: {_one_line(error)} ({_traceback_place(error)})", 1)
    return code if isinstance(code, int) else 0


def _told(line: str, code: int) -> int:
    click.echo(line, err=True)
    return code


def _usage_error(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f" (see {context.command_path} --help)" if context else ""
    return f"error: {_one_line(error.format_message())}{hint}"


def _one_line(error: Exception | str) -> str:
    return " ".join(str(error).split())


def _remedy(error: ClonosError) -> str:
    return "" if error.remedy is Remedy.FIX_INPUT else f" (remedy: {error.remedy.value})"


def _traceback_place(error: Exception) -> str:
    """Where the traceback went: onto the terminal if asked for, else into a file."""
    if os.environ.get("CLONOS_DEBUG") == "1":
        traceback.print_exception(error)
        return "traceback above"
    with tempfile.NamedTemporaryFile("w", prefix="clonos-", suffix=".log", delete=False, encoding="utf-8") as log:
        traceback.print_exception(error, file=log)
    return f"traceback in {log.name}"


if __name__ == "__main__":
    main()
