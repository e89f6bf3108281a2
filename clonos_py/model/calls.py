"""Asynchronous calls: the requests of asynchronous functions to services, and the answers (D4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Waiting:
    """How an asynchronous function is run: ``concurrency`` rows of a task at once at most; results in the order of the
    rows (``ordered``) or as they come; each row is given up after ``timeout_us`` (None: never)."""

    concurrency: int
    ordered: bool
    timeout_us: int | None


@dataclass(frozen=True)
class LookUpOptions:
    """How a lookup asks, and for how long it keeps an answer. ``waiting``: of questions, and of results. ``retries``:
    further tries of a question after a ServiceError. ``rate``: the calls per second of a task at most."""

    waiting: Waiting
    cache_us: int
    retries: int = 0
    rate: float | None = None


@dataclass(frozen=True)
class ServiceCall:
    """Call ``number`` of operator number ``operator``: ``question`` to the service named ``service``."""

    operator: int
    number: int
    service: str
    question: Any


@dataclass(frozen=True, slots=True)
class Answered:
    """The call with this operator and number has ended, with a value of plain data or with an error."""

    operator: int
    number: int
    value: Any
    error: str | None = None
