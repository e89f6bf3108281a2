"""The service clients of one task: opened on the first call that is not replayed, closed with the task."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

from clonos_py.model.errors import Interrupted, ServiceError, type_and_text
from clonos_py.services.definition import ServiceDefinition, defined
from clonos_py.services.http import HTTP, HttpClient


class ServiceRegistry:
    """Looks up clients by name. ``definitions`` take precedence over those declared with ``@service``, so that tests
    can replace services. ``http_client_factory`` opens the client of ``ctx.http``."""

    def __init__(
        self,
        definitions: Mapping[str, ServiceDefinition[..., Any]],
        http_client_factory: Callable[[], HttpClient],
    ) -> None:
        self._definitions = dict(definitions)
        self._http_client_factory = http_client_factory
        self._clients: dict[str, Any] = {}
        self._opened = ExitStack()

    def client(self, name: str) -> Any:
        """The client, opened if necessary: an HttpClient for ``"http"``, else the function that the service yielded.

        Raises ServiceError if there is no such service or it cannot be opened; the next call tries again.
        """
        if name not in self._clients:
            self._clients[name] = self._open(name)
        return self._clients[name]

    def close(self) -> None:
        """Closes every client, the last one opened first."""
        self._clients.clear()
        self._opened.close()

    def _open(self, name: str) -> Any:
        if name == HTTP:
            client = self._http_client_factory()
            self._opened.callback(client.close)
            return client
        definition = self._definitions.get(name) or defined(name)
        if definition is None:
            raise ServiceError(f"there is no service {name!r}; declare it with @service")
        try:
            return self._opened.enter_context(definition.open())
        except Interrupted:
            raise
        except BaseException as error:
            raise ServiceError(f"service {name} cannot be opened: {type_and_text(error)}") from error
