"""``clonos replay --debug``: a replay that stops in a debugger."""

from __future__ import annotations

import pdb
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

import click

from clonos_py.model.errors import UserCodeError, error_line
from clonos_py.model.places import is_users
from clonos_py.runtime.replay.debugging import Debugger, Wanted
from clonos_py.runtime.replay.stopping import DebuggerQuit, Moment

if TYPE_CHECKING:
    from clonos_py.dsl.job import Job
    from clonos_py.runtime.replay.run import ReplayReport
    from clonos_py.runtime.replay.watcher import OperatorWatcher


def debugged(job: Job, wanted: Wanted, replayed: Callable[[OperatorWatcher], ReplayReport]) -> ReplayReport | int:
    """Runs a replay with stops. Returns its report, or an exit code if it has not come to its end, or has not
    stopped."""
    debugger = Debugger(job, wanted, _announce, _post_mortem)
    try:
        report = replayed(debugger)
    except DebuggerQuit:
        return 0
    except UserCodeError:
        return 1
    if not wanted.a_row:
        click.echo("nothing failed in this interval: name a row by --row or --nth", err=True)
    elif not debugger.stops:
        click.echo(_not_found(wanted, debugger), err=True)
        return 1
    return report


def _announce(moment: Moment) -> None:
    click.echo("\n".join(["", *moment.lines]))


def _not_found(wanted: Wanted, debugger: Debugger) -> str:
    of = ", ".join(debugger.names)
    if wanted.nth is not None:
        which = f" for which {wanted.row} holds" if wanted.row is not None else ""
        return f"there was no stop: {of} got {debugger.rows_seen:,} rows{which} in this interval"
    return f"there was no stop: {wanted.row} holds for no row of {of} in this interval"


def _post_mortem(error: UserCodeError, moment: Moment | None) -> None:
    """Opens pdb in the user's frame that raised, with the frames that it called below it."""
    click.echo("\n".join(["", *(moment.lines if moment is not None else []), error_line(error)]))
    if error.traceback:
        click.echo(error.traceback.rstrip())
    cause = error.__cause__
    frames = list(_frames(cause.__traceback__)) if cause is not None else []
    own = [number for number, at in enumerate(frames) if is_users(at.tb_frame.f_code.co_filename)]
    if cause is not None and own:
        debugger = pdb.Pdb()
        if below := len(frames) - 1 - own[-1]:
            debugger.cmdqueue.append(f"up {below}")
        debugger.reset()
        debugger.interaction(None, cause.__traceback__)


def _frames(at: TracebackType | None) -> list[TracebackType]:
    found = []
    while at is not None:
        found.append(at)
        at = at.tb_next
    return found
