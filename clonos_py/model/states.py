"""State tables: the allowed transitions of a state machine. A machine changes its state only through its table."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

from clonos_py.model.errors import ProtocolError

State = TypeVar("State", bound=Enum)
Cause = TypeVar("Cause", bound=Enum)


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

    def diagram(self) -> str:
        """The table as a Mermaid diagram."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.initial.name}"]
        lines += [f"    {state.name} --> {to.name}: {cause.value}" for state, cause, to in self.literal]
        lines += [f"    any --> {to.name}: {cause.value}" for cause, to in self.anywhere.items()]
        return "\n".join(lines)
