"""Calls services. A call returns plain data, or raises a ServiceError that names the cause."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from clonos_py.model.calls import Answered, ServiceCall
from clonos_py.model.errors import Interrupted, ServiceError, type_and_text
from clonos_py.model.places import place_of
from clonos_py.services.http import HTTP, send
from clonos_py.services.plain import plain

RECONCILED = "reconciled"
"""The name used in place of a service's for a call that may have been made before."""


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


def ask_again(
    client_of: Callable[[str], Any], name: str, reconcile: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Asks the service ``reconcile`` what the call has answered, if it was made before, and makes it otherwise. An
    error of ``reconcile`` is raised: it is not known then whether the call was made."""
    found = ask(client_of(reconcile), reconcile, args, kwargs)
    return ask(client_of(name), name, args, kwargs) if found is None else found


def answered(client_of: Callable[[str], Any], call: ServiceCall) -> Answered:
    """Executes an asynchronous call. The result holds the answer or the error."""
    try:
        if call.service == RECONCILED:
            return Answered(call.operator, call.number, ask_again(client_of, *call.question))
        client = client_of(call.service)
        if call.service == HTTP:
            return Answered(call.operator, call.number, send(client, call.question))
        args, kwargs = call.question
        return Answered(call.operator, call.number, ask(client, call.service, args, kwargs))
    except ServiceError as error:
        return Answered(call.operator, call.number, None, str(error))
