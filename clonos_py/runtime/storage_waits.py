"""Waits for checkpoint storage: what nothing can go on without is asked for as long as storage does not answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from clonos_py.model.errors import StorageUnavailableError

T = TypeVar("T")


def until_answered(
    ask: Callable[[], T],
    report: Callable[[str], None] = lambda _: None,
    given_up: Callable[[], bool] = lambda: False,
) -> T:
    """What ``ask`` returns, which is called again after each StorageUnavailableError: it takes seconds itself before it
    raises one. ``report`` is called once, with what was said. Raises the last error if it is ``given_up``."""
    reported = False
    while True:
        try:
            return ask()
        except StorageUnavailableError as problem:
            if given_up():
                raise
            if not reported:
                report(str(problem))
            reported = True
