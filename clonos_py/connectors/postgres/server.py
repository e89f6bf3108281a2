"""Connections to a server: its address, and which failures pass by themselves."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from clonos_py.connectors.secrets import Secret, refuse_plain_secrets, secret_value
from clonos_py.model.errors import GraphError, SettingError, SinkError, SourceError, one_line

try:
    import psycopg
    from psycopg import conninfo
except ImportError as missing:
    raise SettingError("this needs the client of PostgreSQL: pip install 'clonos-py[postgres]'") from missing

T = TypeVar("T")

Connection = psycopg.Connection[tuple[Any, ...]]

_RETRY_S = 0.2
_PASSING = ("08", "40", "53", "55P03", "57", "25006")
"""Classes of SQLSTATE, and single ones: lost connections, conflicts of transactions, exhausted resources (such as a
full disk), locks, a server that is shut down, and one that is read-only, as it is no longer the primary one."""
_CANCELLED = "57014"
"""Of class 57, but not by the state of the server: a time limit of the user's role has passed."""
_REFUSED = re.compile(
    r"password authentication failed|no password supplied|no pg_hba.conf entry|role .* does not exist|database .* does "
    r"not exist|authentication failed|permission denied|not permitted|is not allowed|must be superuser|certificate|"
    r"SSL|could not translate host name",
    re.IGNORECASE,
)
"""The texts of failed connections that would fail again. The client library gives no SQLSTATE for these. A server that
answers in another language is asked until ``away`` has passed."""
_DEFAULTS = {"connect_timeout": 10, "keepalives_idle": 10, "tcp_user_timeout": 30_000, "client_encoding": "utf8"}
_OPTIONS = "-c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=1 -c bytea_output=hex"
"""The form of values as text."""


@dataclass(frozen=True)
class PostgresAddress:
    """A database of a server. ``dsn``: ``postgresql://user@host:5432/database`` or ``host=... dbname=...``, without a
    password. ``owner`` is named in errors. Raises GraphError if it is no address."""

    owner: str
    dsn: str
    password: Secret | None = None

    def __post_init__(self) -> None:
        refuse_plain_secrets(self.owner, password=self.password)
        if self._parts.get("password") is not None:
            raise GraphError(
                f"{self.owner}: the password in the address would be plain text in the plan: leave it out, and give "
                "password=Secret(env=...) or Secret(file=...)"
            )

    @cached_property
    def _parts(self) -> dict[str, Any]:
        try:
            return dict(conninfo.conninfo_to_dict(self.dsn))
        except psycopg.Error as problem:
            raise GraphError(
                f"{self.owner}: {self.dsn!r} is no address ({one_line(problem)}): write "
                "postgresql://user@host:5432/database"
            ) from None

    def __str__(self) -> str:
        host, port = self._parts.get("host") or "localhost", self._parts.get("port") or 5432
        return f"PostgreSQL at {host}:{port}, database {self._parts.get('dbname') or self._parts.get('user') or ''!r}"

    def connect(self, name: str, **more: Any) -> Connection:
        """A connection in which each statement is a transaction of its own. ``name``: what the server shows it as.
        Raises psycopg.Error, and SettingError if the secret is missing."""
        given: dict[str, Any] = _DEFAULTS | self._parts | more
        given["options"] = f"{self._parts.get('options') or ''} {_OPTIONS}".strip()
        return psycopg.connect(
            "", **given, password=secret_value(self.password), application_name=name, autocommit=True
        )


def passes(problem: psycopg.Error) -> bool:
    """Whether a failure may pass by itself, so that it is worth to try again."""
    if isinstance(problem, psycopg.OperationalError) and problem.sqlstate is None:
        return _REFUSED.search(str(problem)) is None
    state = problem.sqlstate or ""
    return state.startswith(_PASSING) and state != _CANCELLED


def told(problem: psycopg.Error) -> str:
    """What the server has said, in one line."""
    diagnostics = problem.diag
    parts = (
        diagnostics.message_primary,
        diagnostics.message_detail,
        diagnostics.message_hint,
        _first(diagnostics.context),
    )
    return one_line("; ".join(part.rstrip(".") for part in parts if part) or problem)


def _first(context: str | None) -> str | None:
    return context.splitlines()[0] if context else None


class Patience:
    """Repeats what fails for a reason that may pass, until ``away_s`` have gone by. ``where`` is named in errors."""

    def __init__(self, where: str, away_s: float, kind: type[SinkError] | type[SourceError]) -> None:
        self._where, self._away_s, self._kind = where, away_s, kind

    def run(self, call: Callable[[], T], drop: Callable[[], None], refused: Callable[[psycopg.Error], str] = told) -> T:
        """Calls ``drop``, which closes the connection, before each repetition. ``refused`` says what a failure that
        will not pass is about. Raises an error of the given kind."""
        since: float | None = None
        while True:
            try:
                return call()
            except psycopg.Error as problem:
                if not passes(problem):
                    text = refused(problem)
                    drop()
                    raise self._kind(f"{self._where}: {text}") from None
                drop()
                now = time.monotonic()
                since = now if since is None else since
                if now - since > self._away_s:
                    waited = f"it was tried again for {self._away_s:g} s (away=)"
                    raise self._kind(f"{self._where}: {told(problem)}; {waited}") from None
            time.sleep(_RETRY_S)
