"""Options of map, flat_map and filter for ``async def`` functions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from clonos_py.dsl.functions import Signature
from clonos_py.model.calls import Waiting
from clonos_py.model.errors import GraphError
from clonos_py.model.times import Duration, micros

CONCURRENCY = 100
_CONCURRENCY_MAX = 1_000
"""The limit exists because a task has one thread for each call in progress."""


class WaitingOptions(TypedDict, total=False):
    """``concurrency``: how many rows a task processes at once, 100 by default. ``ordered``: results leave in the order
    of the rows (the default), otherwise as they finish. ``timeout``: a duration after which a row has failed."""

    concurrency: int
    ordered: bool
    timeout: Duration


def async_options(signature: Signature, options: Mapping[str, Any]) -> Waiting | None:
    """None for a synchronous function. Raises GraphError for unknown options, and for options that the function
    cannot have because it is synchronous."""
    if unknown := sorted(set(options) - set(WaitingOptions.__annotations__)):
        raise GraphError(
            f"{unknown[0]}= is not an option of it; the options are {', '.join(WaitingOptions.__annotations__)}"
        )
    if not signature.asynchronous:
        if options:
            raise GraphError(f"{next(iter(options))}= is for `async def` functions, and {signature.name} is not one")
        return None
    concurrency, timeout = options.get("concurrency", CONCURRENCY), options.get("timeout")
    if type(concurrency) is not int or not 1 <= concurrency <= _CONCURRENCY_MAX:
        raise GraphError(f"concurrency={concurrency!r}: it must be a number of rows from 1 to {_CONCURRENCY_MAX:,}")
    timeout_us = None if timeout is None else micros(timeout)
    if timeout_us is not None and timeout_us <= 0:
        raise GraphError(f"timeout={timeout!r}: it must be more than 0")
    return Waiting(concurrency, bool(options.get("ordered", True)), timeout_us)
