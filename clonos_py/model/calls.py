"""Calls that a task does not wait for: what asynchronous functions ask of services, and what comes back (D4)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Waiting:
    """How an asynchronous function is run: at most ``concurrency`` rows of a task at once, results in the order of the
    rows or as they come, each row given up after ``timeout_us`` (None: never)."""

    concurrency: int
    ordered: bool
    timeout_us: int | None


@dataclass(frozen=True)
class ServiceCall:
    """Call ``number`` of operator number ``operator``: ``question`` for the service named ``service``."""

    operator: int
    number: int
    service: str
    question: Any


@dataclass(frozen=True, slots=True)
class Answered:
    """The call of this operator and number is over, with plain data or with what was wrong."""

    operator: int
    number: int
    value: Any
    error: str | None = None
