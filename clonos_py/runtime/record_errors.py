"""What helps where a record is damaged: a run of the job may start over, but then there is nothing left to replay."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from clonos_py.model.errors import CheckpointError, ClonosError, RecordError

_START_OVER = re.compile(r"(?P<only>: )?(?:[,;] )?(?:or )?start (?:over )?with --fresh")
_ANOTHER = "choose another interval: `clonos record ls` shows what is kept"


@contextmanager
def as_record_errors(of_one_interval: bool) -> Iterator[None]:
    """Turns errors that advise to start over into RecordErrors that say what helps: damage, and input that has changed.
    ``of_one_interval``: others may be intact."""
    try:
        yield
    except ClonosError as problem:
        if not isinstance(problem, CheckpointError) and not _START_OVER.search(str(problem)):
            raise
        raise RecordError(_of_a_replay(str(problem), of_one_interval)) from problem


def _of_a_replay(text: str, of_one_interval: bool) -> str:
    def other(found: re.Match[str]) -> str:
        if not of_one_interval:
            return ""
        return f": {_ANOTHER}" if found["only"] else f", or {_ANOTHER}"

    return _START_OVER.sub(other, text)
