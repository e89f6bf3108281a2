"""What the clients of both libraries share: why a request failed, and how a transaction ends."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from enum import IntEnum
from typing import Any

from clonos_py.connectors.kafka.client import ClusterConnection, Failure, KafkaFailure
from clonos_py.connectors.kafka.timing import ANSWER_S
from clonos_py.model.errors import one_line

FETCHED = 10_000
"""The limit of messages per fetch."""
REFUSALS_MAX = 3
"""How often connections are refused before a request fails: a broker that starts may not know a user yet."""


class Cause(IntEnum):
    """Why a connection failed, the most specific first. A broker may close a connection before the client has read why,
    and the last of many attempts may time out instead of failing as the others did."""

    REFUSED = 0
    """One side does not accept the user, the password or a certificate of the other."""
    LOST = 1
    TIMED_OUT = 2


class Failures:
    """Turns the errors of a library into instances of ``KafkaFailure``.

    A library reports only in the background why a connection fails; a request that waits for it times out. So the
    client notes the last failure of each cause here, and the most specific one is added to the failure of a request.
    """

    def __init__(self, error: type[Exception], failure: Callable[[Any], KafkaFailure]) -> None:
        """``error``: the class of the library's errors. ``failure`` maps one of them."""
        self._error, self._failure = error, failure
        self._causes: dict[Cause, tuple[float, str]] = {}
        self.refusals = 0
        """The number of refused connections."""

    def note(self, cause: Cause, text: str) -> None:
        """A connection has failed."""
        self._causes[cause] = time.monotonic(), text
        self.refusals += cause is Cause.REFUSED

    @contextmanager
    def raised(self, about: str | None = None, serve: Callable[[float], object] = float) -> Iterator[None]:
        """Raises the failure for an error within the block. ``about``: what fails. ``serve`` makes the library call
        back with what it has to report."""
        try:
            yield
        except KafkaFailure as problem:
            raise self._explained(problem, about, serve) from None
        except self._error as problem:
            # A failed future of librdkafka keeps the error, and the traceback would keep the client until the next
            # garbage collection; a process can have at most a thousand of these clients.
            problem.__traceback__ = None
            raise self._explained(self._failure(problem), about, serve) from None

    def _explained(self, found: KafkaFailure, about: str | None, serve: Callable[[float], object]) -> KafkaFailure:
        """Adds the cause to the failure of a request without an answer. What was refused is refused again."""
        serve(0.0)
        since = time.monotonic() - 2 * ANSWER_S
        recent = [(cause, text) for cause, (at, text) in sorted(self._causes.items()) if at > since]
        if found.kind is Failure.AWAY and recent:
            cause, text = recent[0]
            kind = Failure.REFUSED if cause is Cause.REFUSED else found.kind
            told = str(found) if one_line(text) in str(found) else one_line(f"{found}: {text}")
            found = KafkaFailure(kind, told, found.partition)
        return found.about(about) if about else found


def security_settings(connection: ClusterConnection, names: Mapping[str, str]) -> dict[str, str]:
    """The security settings that are given. ``names``: the library's names for the fields of ``Security``."""
    given = ((name, getattr(connection.security, field)) for field, name in names.items())
    return {name: value for name, value in given if value is not None}


class LibraryWriter(ABC):
    """Keeps the first failure of a message, which all later calls raise until a transaction begins."""

    def __init__(self, failures: Failures) -> None:
        self._failures = failures
        self._producer: Any = None
        self._failed: KafkaFailure | None = None

    def _fail(self, found: KafkaFailure) -> None:
        self._failed = self._failed or found

    @abstractmethod
    def _take_answers(self) -> None:
        """Calls ``_fail`` for messages that have failed since the last call."""

    def _check(self) -> None:
        self._take_answers()
        if self._failed is not None:
            raise self._failed

    def begin(self) -> None:
        self._failed = None
        with self._failures.raised():
            self._producer.begin_transaction()

    @abstractmethod
    def _end(self, end: Callable[..., None]) -> None:
        """Ends a transaction with a call of the library. Raises KafkaFailure."""

    def commit(self) -> None:
        try:
            self._end(self._producer.commit_transaction)
        except KafkaFailure as found:
            self._check()  # the failure of a message is more specific
            if found.kind is Failure.AWAY:
                raise KafkaFailure(Failure.UNKNOWN_OUTCOME, str(found)) from None
            raise

    def abort(self) -> None:
        with self._failures.raised():
            self._end(self._producer.abort_transaction)
