"""Commits to tables that several writers change: one that another writer has overtaken is tried again."""

from __future__ import annotations

import time
from collections.abc import Callable

from clonos_py.model.errors import SinkError

_TRIES = 30
_PAUSE_S, _PAUSE_S_MAX = 0.05, 5.0
"""Before a commit is tried again; the pause doubles with each try."""


def commit_again(
    commit: Callable[[], None],
    overtaken: type[Exception] | tuple[type[Exception], ...],
    place: str,
    reason: Callable[[Exception], str],
    remedy: str,
) -> None:
    """Calls ``commit``, which looks at the newest state of the table, until it is not ``overtaken``. Raises SinkError
    after too many tries, with the ``remedy``; other errors as they are."""
    for tried in range(_TRIES):
        try:
            commit()
            return
        except overtaken as error:
            if tried == _TRIES - 1:
                raise SinkError(
                    f"{place}: other writers have overtaken {_TRIES} commits ({reason(error)}): {remedy}"
                ) from error
            time.sleep(min(_PAUSE_S * 2**tried, _PAUSE_S_MAX))
