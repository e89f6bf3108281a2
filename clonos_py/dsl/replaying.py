"""``clonos_py.replay``: repeats what a job did, in a script or a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from os import PathLike

from clonos_py.dsl.job import Job
from clonos_py.dsl.runs import ShownReplay, runner


def replay(
    job: Job | str | PathLike[str],
    checkpoints: str | PathLike[str],
    *,
    at: str | datetime | None = None,
    checkpoint: int | None = None,
    until: int | str | datetime | None = None,
    task: str | Iterable[str] = (),
    parameters: Mapping[str, object] | None = None,
) -> ShownReplay:
    """Repeats what a job did, from its record, as ``clonos replay`` does.

    ``job``: the job, or its file, of which ``parameters`` are those of the job function. ``checkpoints``: the folder of
    the record. ``at``: begin at the last possible checkpoint before this time of day (UTC, or with an offset);
    ``checkpoint``: begin there, or at the last possible one before. ``until``: end at this checkpoint, or at the first
    one that was complete at this time. ``task``: only this task, or these, such as ``"join[0]"``, and those upstream.

    Raises RecordError if it cannot be replayed, and what the user's code raises.
    """
    return runner().replay(
        job, checkpoints, at=at, checkpoint=checkpoint, until=until, task=task, parameters=parameters
    )
