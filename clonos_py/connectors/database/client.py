"""What the DB-API leaves to each client: the form of parameters, the names of its errors, and quotes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from clonos_py.model.errors import GraphError, SinkError, SourceError, type_and_text

T = TypeVar("T")

Connect = Callable[[], Any]
"""Returns a new connection, in which statements begin a transaction. It is sent to the tasks, so it is a function of a
module, or a ``functools.partial`` of one, such as ``partial(sqlite3.connect, "shop.db")``."""

_RETRY_S = 0.2
_STYLES = {"qmark": "?", "format": "%s", "pyformat": "%s"}


class DatabaseClient:
    """Opens a connection and spells statements for it. ``quote`` encloses the names of tables and columns."""

    def __init__(self, owner: str, connect: Connect, quote: str) -> None:
        if not callable(connect):
            raise GraphError(
                f"{owner}: {connect!r} opens no connection: give a function, such as partial(sqlite3.connect, "
                "'shop.db')"
            )
        self._owner, self._connect, self._quote = owner, connect, quote

    def connect(self) -> Any:
        return self._connect()

    def name(self, written: str) -> str:
        """A column, or a table with or without its schema."""
        doubled = self._quote * 2
        return ".".join(
            f"{self._quote}{part.replace(self._quote, doubled)}{self._quote}" for part in written.split(".")
        )

    def names(self, written: Sequence[str]) -> str:
        return ", ".join(map(self.name, written))

    def parameters(self, connection: Any, statement: str) -> str:
        """The statement with the client's parameters in place of ``?``. Raises GraphError for a client that has none in
        order."""
        module = self.module(connection)
        style = getattr(module, "paramstyle", "qmark")
        if style == "numeric":
            parts = statement.split("?")
            return "".join(f"{part}:{number}" for number, part in enumerate(parts[:-1], 1)) + parts[-1]
        if style not in _STYLES:
            raise GraphError(f"{self._owner}: {module.__name__} takes parameters by {style!r} only, not in order")
        return statement.replace("?", _STYLES[style])

    @staticmethod
    def module(connection: Any) -> Any:
        """The module of the client, which has its errors and says how it takes parameters."""
        parts = type(connection).__module__.split(".")
        modules = [sys.modules.get(".".join(parts[:count])) for count in range(1, len(parts) + 1)]
        return next((module for module in modules if hasattr(module, "paramstyle")), sys.modules[parts[0]])


class Attempts:
    """A connection, which is replaced after a failure that may pass: an ``OperationalError`` or an ``InterfaceError``
    of the client."""

    def __init__(self, client: DatabaseClient, where: str, away_s: float, kind: type[SinkError] | type[SourceError]):
        self._client, self._where, self._away_s, self._kind = client, where, away_s, kind
        self._connection: Any = None

    def run(self, call: Callable[[Any], T]) -> T:
        """Calls with a connection, again after a failure until ``away_s`` have passed. Raises an error of the given
        kind."""
        since: float | None = None
        while True:
            try:
                if self._connection is None:
                    self._connection = self._client.connect()
                return call(self._connection)
            except (GraphError, self._kind):
                raise
            except Exception as problem:  # noqa: BLE001 - each client has errors of its own
                passing = any(kind.__name__ in ("OperationalError", "InterfaceError") for kind in type(problem).__mro__)
                self.close()
                since = time.monotonic() if since is None else since
                if not passing or time.monotonic() - since > self._away_s:
                    raise self._kind(f"{self._where}: {type_and_text(problem)}") from None
            time.sleep(_RETRY_S)

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
