"""The base classes of process functions (P4).

An object's attributes are its configuration: ``stream.process(Scorer("model.bin"))``. Each task has its own copy, on
which ``open`` is called before the first row. Attributes can be assigned in ``__init__`` and ``open``. Later only
declared ones can, since others would be lost with the task and shared between keys.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from clonos_py.model.errors import GraphError
from clonos_py.operators.process_state import NO_KEY, Scope, Timer, ValueState
from clonos_py.services.context import Context
from clonos_py.services.open_context import OpenContext

In = TypeVar("In")
Left = TypeVar("Left")
Right = TypeVar("Right")
Rule = TypeVar("Rule")
Out = TypeVar("Out")


class KeyedFunction:
    """Common base of process functions of one and of two inputs."""

    _scope: Scope = NO_KEY
    methods: typing.ClassVar[tuple[str, ...]] = ()
    """By input: the name of the method that takes its rows."""
    declared_states: typing.ClassVar[dict[str, ValueState]] = {}
    declared_timers: typing.ClassVar[dict[str, Timer]] = {}

    def open(self, ctx: OpenContext, /) -> None:
        """Called once in each attempt of a task, before its first row, to load models and to create clients; in a
        standby, when it starts. Assign what it creates to attributes. Snapshots do not contain them: a replacement is
        opened, too.
        """

    def close(self) -> None:
        """Called when a task ends normally, to release what ``open`` created. Not called after a failure."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        declared = {name: value for base in reversed(cls.__mro__) for name, value in vars(base).items()}
        cls.declared_states = {name: value for name, value in declared.items() if isinstance(value, ValueState)}
        cls.declared_timers = {name: value for name, value in declared.items() if isinstance(value, Timer)}
        for name, timer in cls.declared_timers.items():
            if not timer.callback:
                raise GraphError(
                    f"timer {name!r} of {cls.__name__} calls nothing; decorate a method with @{name}.fires"
                )

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self.declared_states:
            kind = type(self).__name__
            if name in self.declared_timers:
                raise AttributeError(f"{kind}.{name} is a timer; write self.{name}.set(...)")
            if self._scope is not NO_KEY:
                raise AttributeError(
                    f"{kind}.{name} is not declared; write '{name} = state(...)' in the class {kind}, or assign it in "
                    "open, if it is of the task and not of a key"
                )
        object.__setattr__(self, name, value)


class Process(KeyedFunction, Generic[In, Out]):
    """Base class of process functions of one input, called row by row, with state and timers per key."""

    methods = ("on_row",)

    def on_row(self, row: In, ctx: Context, /) -> Iterable[Out] | Out | None:
        """Processes a row. Returns None, one record, or any number of records. Timer methods do so without a row."""
        raise NotImplementedError


class CoProcess(KeyedFunction, Generic[Left, Right, Out]):
    """Base class of process functions of two inputs, ``left.connect(right)``, which share state and timers per key."""

    methods = ("on_left", "on_right")

    def on_left(self, row: Left, ctx: Context, /) -> Iterable[Out] | Out | None:
        """Processes a row of the left input. Returns None, one record, or any number of records."""
        raise NotImplementedError

    def on_right(self, row: Right, ctx: Context, /) -> Iterable[Out] | Out | None:
        """Processes a row of the right input. Returns None, one record, or any number of records."""
        raise NotImplementedError


class BroadcastProcess(KeyedFunction, Generic[In, Rule, Out]):
    """Base class of process functions of keyed rows and of a stream that every task gets,
    ``rows.key_by(...).connect(rules.broadcast())``: rules, limits, models that change while the job runs."""

    methods = ("on_row", "on_broadcast")

    def on_row(self, row: In, ctx: Context, /) -> Iterable[Out] | Out | None:
        """Processes a keyed row. It may read what ``broadcast_state`` declares. Returns None, one record, or any number
        of records."""
        raise NotImplementedError

    def on_broadcast(self, row: Rule, ctx: Context, /) -> Iterable[Out] | Out | None:
        """Processes a row of the broadcast stream, in each task: all get these rows in the same order. It may change
        what ``broadcast_state`` declares, and has no key. Records that it returns go out once for each task."""
        raise NotImplementedError
