"""Where bugs are planted: handlers of events, parts of a machine, and what goes into a part."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest

from clonos_py.link import instructions as io
from clonos_py.link.machine import LINK_EVENTS, LinkMachine
from clonos_py.model.states import Ignored, Unless
from clonos_py.process.contract import TaskState

M = TypeVar("M")
P = TypeVar("P")

Handle = Callable[[LinkMachine, Any], list[io.Instruction]]


def rehandled(
    patch: pytest.MonkeyPatch, event: type, handler: Callable[[Handle, LinkMachine, Any], list[io.Instruction]]
) -> None:
    """From now on, the link handles ``event`` with ``handler``, whose first argument is the handler before. Events that
    come too late are ignored as before."""
    for state in TaskState:
        row = LINK_EVENTS.row(state)
        match row.get(event):
            case None | Ignored():
                continue
            case Unless(late, why, before):
                patch.setitem(row, event, Unless(late, why, partial(handler, before)))
            case before:
                patch.setitem(row, event, partial(handler, before))


def made_with(patch: pytest.MonkeyPatch, part: type[P]) -> dict[P, dict[str, Any]]:
    """By part of this type: what it is made with, by parameter."""
    found: dict[P, dict[str, Any]] = {}
    parameters, make = inspect.signature(part), vars(part)["__init__"]

    def noting(self: P, *given: Any, **named: Any) -> None:
        found[self] = parameters.bind(*given, **named).arguments
        make(self, *given, **named)

    patch.setattr(part, "__init__", noting)
    return found


def parts_of(patch: pytest.MonkeyPatch, machine: type[M], part: type[P]) -> dict[M, P]:
    """By machine of this type: its part of that type, which the machine makes when it is made."""
    found: dict[M, P] = {}
    made: list[P] = []
    compose, make = vars(machine)["__init__"], vars(part)["__init__"]

    def noting(self: P, *given: Any, **named: Any) -> None:
        make(self, *given, **named)
        made.append(self)

    def composed(self: M, *given: Any, **named: Any) -> None:
        made.clear()
        compose(self, *given, **named)
        found.update((self, one) for one in made)

    patch.setattr(part, "__init__", noting)
    patch.setattr(machine, "__init__", composed)
    return found
