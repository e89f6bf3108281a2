"""Calls services. A call returns plain data, or raises a ServiceError that names the cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clonos_py.model.calls import Answered, ServiceCall
from clonos_py.model.errors import Interrupted, ServiceError, type_and_text
from clonos_py.model.places import place_of
from clonos_py.services.http import HTTP, send
from clonos_py.services.plain import plain


def ask(client: Callable[..., Any], name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Calls a user's service and returns its answer. Any error of the service is raised as a ServiceError."""
    try:
        answer = client(*args, **kwargs)
    except ServiceError:
        raise
    except Interrupted:
        raise
    except BaseException as error:
        place = place_of(error)
        at = f", at {place}" if place else ""
        raise ServiceError(f"service {name} raised {type_and_text(error)}{at}") from error
    return plain(answer, f"service {name}")


def answered(client_of: Callable[[str], Any], call: ServiceCall) -> Answered:
    """Executes an asynchronous call. The result holds the answer or the error."""
    try:
        client = client_of(call.service)
        if call.service == HTTP:
            return Answered(call.operator, call.number, send(client, call.question))
        args, kwargs = call.question
        return Answered(call.operator, call.number, ask(client, call.service, args, kwargs))
    except ServiceError as error:
        return Answered(call.operator, call.number, None, str(error))
