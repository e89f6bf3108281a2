"""State tables: the allowed transitions of a state machine, and what it does with each event in each state. A machine
changes its state only through its table, and looks up each event in its table."""

from __future__ import annotations

import textwrap
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, TypeVar

from clonos_py.model.errors import ProtocolError

State = TypeVar("State", bound=Enum)
Cause = TypeVar("Cause", bound=Enum)
Machine = TypeVar("Machine")
Event = TypeVar("Event")
Result = TypeVar("Result")


class LastEvents:
    """The kinds of the last events that a machine has processed, for its error messages."""

    def __init__(self, kept: int = 8) -> None:
        self._kinds: deque[type] = deque(maxlen=kept)
        self.add = self._kinds.append

    def __str__(self) -> str:
        return ", ".join(kind.__name__ for kind in self._kinds) or "none"


class StateTable(Generic[State, Cause]):
    """All transitions of one kind of machine: by state and cause, the next state.

    ``anywhere``: causes that may occur in every state except the one that they lead to."""

    def __init__(
        self,
        initial: State,
        transitions: Mapping[State, Mapping[Cause, State]],
        anywhere: Mapping[Cause, State],
    ) -> None:
        self.initial = initial
        self.literal = [(state, cause, to) for state, row in transitions.items() for cause, to in row.items()]
        self.anywhere = anywhere
        self._next = {(state, cause): to for state, cause, to in self.literal}
        for cause, to in anywhere.items():
            self._next |= {(state, cause): to for state in type(initial) if state is not to}

    def after(self, state: State, cause: Cause, machine: object, last: LastEvents) -> State:
        """The next state. Raises ProtocolError if ``cause`` must not occur in ``state``."""
        to = self._next.get((state, cause))
        if to is None:
            raise ProtocolError(
                f"{machine} is {state.value}, and '{cause.value}' cannot happen then; last events: {last}"
            )
        return to

    def text(self) -> str:
        """The table as lines of a docstring: the states in which something may happen, and the state that follows."""
        ways: dict[tuple[Cause, State], list[str]] = {}
        for state, cause, to in self.literal:
            ways.setdefault((cause, to), []).append(state.name)
        ways |= {(cause, to): ["any"] for cause, to in self.anywhere.items()}
        lines = [f"{', '.join(names)} --{cause.value}--> {to.name}" for (cause, to), names in ways.items()]
        return "\n".join(_indented(line) for line in (f"[*] --> {self.initial.name}", *lines))

    def diagram(self) -> str:
        """The table as a Mermaid diagram."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial.name}"]
        lines += [f"    {state.name} --> {to.name}: {cause.value}" for state, cause, to in self.literal]
        lines += [f"    any --> {to.name}: {cause.value}" for cause, to in self.anywhere.items()]
        return "\n".join(lines)


def _indented(line: str) -> str:
    return textwrap.fill(line, 120, initial_indent=" " * 4, subsequent_indent=" " * 8, break_on_hyphens=False)


@dataclass(frozen=True)
class Ignored:
    """The entry of an event that may happen and has no effect, with the reason."""

    why: str

    def __call__(self, machine: object, event: object) -> list[Any]:
        return []


@dataclass(frozen=True)
class Unless(Generic[Machine, Event, Result]):
    """The entry of an event that is ignored if it is ``late``, with the reason, and handled otherwise."""

    late: Callable[[Machine, Event], bool]
    why: str
    handler: Callable[[Machine, Event], list[Result]]

    def __call__(self, machine: Machine, event: Event) -> list[Result]:
        return [] if self.late(machine, event) else self.handler(machine, event)


@dataclass(frozen=True)
class Impossible:
    """The entry of an event that cannot happen, with the reason. If it does, a rule of the protocol is broken."""

    why: str


class EventTable(Generic[Machine, State, Result]):
    """What a machine does with each kind of event in each of its states: a handler, ``Ignored``, ``Unless`` or
    ``Impossible``."""

    def __init__(self, states: type[State]) -> None:
        self.states = states
        self._rows: dict[State, dict[type, Callable[[Machine, Any], Result] | Ignored]] = {
            state: {} for state in states
        }
        self.impossible: dict[tuple[State, type], str] = {}

    def on(
        self,
        kind: type[Event],
        handler: Callable[[Machine, Event], Result],
        otherwise: Mapping[State, Callable[[Machine, Event], Result] | Ignored | Impossible] | None = None,
    ) -> None:
        """``handler`` is called in all states but those in ``otherwise``, which have an entry of their own."""
        for state, row in self._rows.items():
            match otherwise.get(state) if otherwise else None:
                case Impossible(why):
                    self.impossible[state, kind] = why
                case entry:
                    row[kind] = handler if entry is None else entry

    def row(self, state: State) -> Mapping[type, Callable[[Machine, Any], Result] | Ignored]:
        """The entries of one state, by kind of event; those that are impossible are missing."""
        return self._rows[state]

    def broken(self, machine: object, state: State, event: object, last: LastEvents) -> ProtocolError:
        """The error for an event without an entry."""
        why = self.impossible.get((state, type(event)), "it has no such event")
        kind = type(event).__name__
        return ProtocolError(f"{machine} is {state.value}, and {kind} cannot happen then: {why}; last events: {last}")
