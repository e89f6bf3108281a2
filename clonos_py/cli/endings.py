"""Runs command lines: prints one line for every error, and returns an exit code.

Exit codes: 0 success, 1 an error in the job or its input, 2 a usage error, 130 interrupted (Ctrl-C), 141 the program
that reads the output has ended, as in ``clonos plan hot.py | head -1``, without a message, 143 terminated (SIGTERM).
"""

from __future__ import annotations

import os
import select
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import TextIO

import click

from clonos_py.model.errors import ClonosError, Terminated, error_line, one_line, shows_tracebacks, type_and_text
from clonos_py.model.places import blamed

INTERRUPTED = 130
BROKEN_PIPE = 141
TERMINATED = 143


def ended(command: click.Command, arguments: Sequence[str], name: str) -> int:
    """Runs a command line and returns its exit code; every error becomes one line on standard error."""
    try:
        with command.make_context(name, list(arguments)) as ctx:  # click's own main ends silently for any broken pipe
            code = command.invoke(ctx)
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _print(_usage_error(error), error.exit_code)
    except Terminated:
        return _print("terminated", TERMINATED)
    except (click.Abort, KeyboardInterrupt):
        return _print("interrupted", INTERRUPTED)
    except SystemExit as error:
        return _print(f"error: {blamed(type_and_text(error), error)}", 1)
    except BrokenPipeError as error:
        return BROKEN_PIPE if _has_no_reader(sys.stdout) else _unexpected(error)
    except ClonosError as error:
        if error.traceback and shows_tracebacks():
            click.echo(error.traceback, err=True)
        return _print(error_line(error), 1)
    except Exception as error:  # noqa: BLE001 - the user gets one line for any other error, too
        return _unexpected(error)
    return code if isinstance(code, int) else 0


def _has_no_reader(stream: TextIO) -> bool:
    """Whether what read the stream has ended. The stream leads nowhere then: what is left in its buffer would be an
    error at the end of the process."""
    try:
        number = stream.fileno()
    except OSError:  # it is no file
        return False
    watch = select.poll()
    watch.register(number, 0)  # errors are reported in any case
    if not watch.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), number)
    return True


def _unexpected(error: Exception) -> int:
    return _print(f"error: {one_line(type_and_text(error))} ({_traceback_place(error)})", 1)


def _print(line: str, code: int) -> int:
    click.echo(line, err=True)
    return code


def _usage_error(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    hint = f" (see {context.command_path} --help)" if context else ""
    return f"error: {one_line(error.format_message())}{hint}"


def _traceback_place(error: Exception) -> str:
    """Writes the traceback to the terminal if requested, otherwise to a file. Returns its place as text."""
    if shows_tracebacks():
        traceback.print_exception(error)
        return "traceback above"
    with tempfile.NamedTemporaryFile("w", prefix="clonos-", suffix=".log", delete=False, encoding="utf-8") as log:
        traceback.print_exception(error, file=log)
    return f"traceback in {log.name}"
