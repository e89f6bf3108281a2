"""What helps where a record is damaged: a run of the job may start over, but then there is nothing left to replay."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from clonos_py.model.errors import START_OVER, CheckpointError, ClonosError, RecordError


@contextmanager
def as_record_errors(of_one_interval: bool) -> Iterator[None]:
    """Turns errors that advise to start over into RecordErrors that say what helps: damage, and input that has changed.
    ``of_one_interval``: others may be intact."""
    try:
        yield
    except ClonosError as problem:
        if not isinstance(problem, CheckpointError) and START_OVER not in str(problem):
            raise
        other = ", or choose another interval: `clonos record ls` shows what is kept" if of_one_interval else ""
        raise RecordError(str(problem).replace(f", {START_OVER}", other)) from problem
