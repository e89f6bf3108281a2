"""The declarations of a process function: state per key, and timers (P4).

A process function is one object per task, which has one current key. Before each call the operator sets its scope to
the key's cell, which the declared attributes read and write.
"""

from __future__ import annotations

import copy
import operator
import typing
from collections.abc import Callable
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, overload

import numpy as np

from clonos_py.model.errors import GraphError, UserCodeError, shown
from clonos_py.model.moments import instant_of
from clonos_py.model.numpy_values import plain_scalar, plain_value
from clonos_py.model.times import MIN_TIME, Duration, micros
from clonos_py.operators.own_values import may_change
from clonos_py.operators.timed_collections import TimedList, TimedMap

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

MapState = dict
"""A mapping per key, in the order of insertion; changed in place."""
ListState = list
"""A list per key; changed in place."""

_ABSENT: Any = object()


class Cell:
    """The state of one key: values by attribute, event times of writing for those with a ttl, timers by name."""

    __slots__ = ("group", "key", "stored", "timers", "values", "written")

    def __init__(self, key: bytes, group: int) -> None:
        self.key = key
        self.group = group
        self.values: dict[str, Any] = {}
        self.written: dict[str, int] = {}
        self.timers: dict[str, int] = {}
        self.stored = False

    @property
    def empty(self) -> bool:
        """Whether the key has no state, like a new key. Empty maps and lists count as no state."""
        return not self.timers and not any(_counts(value) for value in self.values.values())


class Scope(Protocol):
    """What the operator provides to a process function: the cell of the current key, and its timers."""

    @property
    def cell(self) -> Cell: ...

    @property
    def shared(self) -> Cell:
        """The cell of the state that all tasks have."""
        ...

    @property
    def sharing(self) -> bool:
        """Whether a row of the broadcast stream is processed, which may change that state."""
        ...

    def assigned(self, name: str) -> None:
        """A value that can be changed was assigned to this attribute of the current key."""
        ...

    def time(self) -> int:
        """The time with which a ttl is compared."""
        ...

    def set_timer(self, timer: Timer, at: int) -> None: ...

    def clear_timer(self, timer: Timer) -> None: ...


class _NoKey:
    """The scope of a function without a current key: in ``__init__``, ``open`` and ``close``."""

    sharing = False

    @property
    def shared(self) -> Cell:
        return self.cell

    @property
    def cell(self) -> Cell:
        raise UserCodeError(
            "state and timers need a current key, and __init__, open and close have none: give the initial state with "
            "state(...), and set timers where a row is processed"
        )

    def time(self) -> int:
        raise AssertionError("there is no state without a key")

    def assigned(self, name: str) -> None:
        raise AssertionError("there is no state without a key")

    def set_timer(self, timer: Timer, at: int) -> None:
        _ = self.cell

    def clear_timer(self, timer: Timer) -> None:
        _ = self.cell


NO_KEY = _NoKey()


class Broadcasting:
    """The scope in which a row of the broadcast stream is processed: it has no key."""

    sharing = True

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    @property
    def shared(self) -> Cell:
        return self._scope.shared

    @property
    def cell(self) -> Cell:
        raise UserCodeError(
            "a row of the broadcast stream has no key, so on_broadcast has no state by key and no timers: declare what "
            "it keeps with broadcast_state()"
        )

    def time(self) -> int:
        return self._scope.time()

    def assigned(self, name: str) -> None:
        self._scope.assigned(name)

    def set_timer(self, timer: Timer, at: int) -> None:
        _ = self.cell

    def clear_timer(self, timer: Timer) -> None:
        _ = self.cell


class Scoped(Protocol):
    """An object with declared attributes."""

    _scope: Scope


class ValueState:
    """A declared attribute. Reading returns the default if no value was assigned or its ttl has expired. ``by_key``:
    whether each key has a value of its own."""

    by_key = True

    def __init__(self, default: Any, ttl_us: int | None) -> None:
        self.default = default
        self.ttl_us = ttl_us
        self.name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Scoped | None, owner: type) -> Any:
        if instance is None:
            return self
        cell = instance._scope.cell
        value = cell.values.get(self.name, _ABSENT)
        if value is _ABSENT or (self.ttl_us is not None and self.expired(cell, instance._scope.time())):
            return self._initial(cell, instance._scope)
        return value

    def __set__(self, instance: Scoped, value: Any) -> None:
        cell = instance._scope.cell
        if type(value) is datetime and value.tzinfo is not UTC and value.tzinfo is not None:
            value = value.astimezone(UTC)  # a checkpoint stores no zone, and with DST a day later may be another time
        if type(value) is type(self.default):
            if not may_change(value) and value == self.default:
                self.drop(cell)
                return
        elif isinstance(value, np.generic):  # a checkpoint would give back a plain value
            self.__set__(instance, plain_scalar(value))
            return
        before = cell.values.get(self.name)
        cell.values[self.name] = value
        if value is not before and may_change(value):  # += has changed what the key owns
            instance._scope.assigned(self.name)
        if self.ttl_us is not None:
            cell.written[self.name] = instance._scope.time()

    def expired(self, cell: Cell, now: int) -> bool:
        """Whether the value was assigned at least its ttl before ``now``."""
        return self.ttl_us is not None and cell.written.get(self.name, MIN_TIME) + self.ttl_us <= now

    def drop_expired(self, cell: Cell, now: int) -> bool:
        """Removes an expired value. Returns whether there was one."""
        found = self.name in cell.values and self.expired(cell, now)
        if found:
            self.drop(cell)
        return found

    def drop(self, cell: Cell) -> None:
        cell.values.pop(self.name, None)
        cell.written.pop(self.name, None)

    def _initial(self, cell: Cell, scope: Scope) -> Any:
        """The default. A mutable default is copied, and the copy is stored for the key."""
        if not may_change(self.default):
            return self.default
        value = cell.values[self.name] = copy.deepcopy(self.default)
        if self.ttl_us is not None:
            cell.written[self.name] = scope.time()
        return value


class CollectionState(ValueState):
    """A declared list or mapping whose entries expire one by one."""

    ttl_us: int

    def __get__(self, instance: Scoped | None, owner: type) -> Any:
        if instance is None:
            return self
        scope = instance._scope
        cell = scope.cell
        value = cell.values.get(self.name)
        if value is None:
            value = cell.values[self.name] = self.timed(self.default, [])
        value.scope = scope
        if value.oldest + self.ttl_us <= scope.time():
            value.expire(scope.time() - self.ttl_us)
        return value

    def __set__(self, instance: Scoped, value: Any) -> None:
        cell, scope = instance._scope.cell, instance._scope
        if value is cell.values.get(self.name):  # as after +=, which has changed it in place
            return
        value = plain_value(value) if isinstance(value, np.ndarray) else value
        if not isinstance(value, type(self.default)):
            declared = type(self.default).__name__
            raise UserCodeError(
                f"{self.name} = {shown(value):.200}: it is declared as a {declared}, whose entries expire"
            )
        cell.values[self.name] = self.timed(value, [scope.time()] * len(value))
        cell.values[self.name].scope = scope

    def timed(self, value: Any, times: list[int]) -> TimedList[Any] | TimedMap[Any, Any]:
        """The collection with the time at which each entry was written."""
        return TimedList(value, times) if isinstance(self.default, list) else TimedMap(value, times)

    def restored(self, value: Any, written: Any) -> Any:
        """A value of a checkpoint with the times that were stored, one for each entry."""
        if not isinstance(value, type(self.default)):
            return value
        return self.timed(value, written if isinstance(written, list) else [written or MIN_TIME] * len(value))

    def drop_expired(self, cell: Cell, now: int) -> bool:
        """Removes expired entries. Returns whether there were any."""
        value = cell.values.get(self.name)
        if not isinstance(value, TimedList | TimedMap) or value.oldest + self.ttl_us > now:
            return False
        return value.expire(now - self.ttl_us)


class BroadcastState(ValueState):
    """A declared mapping that all tasks have. Outside of ``on_broadcast`` it can only be read."""

    by_key = False

    def __get__(self, instance: Scoped | None, owner: type) -> Any:
        if instance is None:
            return self
        scope = instance._scope
        values = scope.shared.values
        if self.name not in values:
            values[self.name] = {}
        return values[self.name] if scope.sharing else MappingProxyType(values[self.name])

    def __set__(self, instance: Scoped, value: Any) -> None:
        scope = instance._scope
        if not scope.sharing:
            raise UserCodeError(f"{self.name} is broadcast state, which only on_broadcast may change")
        if not isinstance(value, dict):
            raise UserCodeError(f"{self.name} = {shown(value):.200}: broadcast state is a dict")
        scope.shared.values[self.name] = value
        scope.assigned(self.name)


class BoundTimer:
    """A timer of the current key."""

    __slots__ = ("_scope", "_timer")

    def __init__(self, scope: Scope, timer: Timer) -> None:
        self._scope = scope
        self._timer = timer

    @property
    def at(self) -> int | None:
        """The time at which the timer will fire, in microseconds; None if it is not set."""
        return self._scope.cell.timers.get(self._timer.name)

    def set(self, at: int | datetime) -> None:
        """Sets the timer to ``at`` (an Instant or an aware datetime), instead of the time set before. Raises
        UserCodeError for a datetime without a zone and for a value that is no time."""
        if isinstance(at, datetime):
            at = instant_of(at)
        elif type(at) is not int:
            at = self._instant(at)
        self._scope.set_timer(self._timer, at)

    def _instant(self, at: Any) -> int:
        """The instant for an integer of another type, such as NumPy's."""
        try:
            instant = operator.index(at)
        except TypeError:
            instant = None
        if instant is None or isinstance(at, bool):
            raise UserCodeError(
                f"{self._timer.name}.set({at!r:.200}): a timer is set to a time, an Instant (int, microseconds UTC) or "
                "an aware datetime; to fire after a delay, add it to one, such as set(ctx.event_time + micros('10s'))"
            )
        return instant

    def clear(self) -> None:
        """Clears the timer. No error if it was not set."""
        self._scope.clear_timer(self._timer)


class Timer:
    """A declared timer, in event time or processing time. ``fires`` decorates the method that it calls."""

    def __init__(self, processing_time: bool) -> None:
        self.processing_time = processing_time
        self.name = ""
        self.callback = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def fires(self, method: F) -> F:
        self.callback = method.__name__
        return method

    @overload
    def __get__(self, instance: None, owner: type) -> Timer: ...

    @overload
    def __get__(self, instance: Scoped, owner: type) -> BoundTimer: ...

    def __get__(self, instance: Scoped | None, owner: type) -> Timer | BoundTimer:
        return self if instance is None else BoundTimer(instance._scope, self)


def state(default: T, *, ttl: Duration | None = None) -> T:
    """Declares a value per key, plain data or a Record. It is ``default`` at first, and again when ``ttl`` (event time)
    has passed since it was assigned. Checkpoints are decoded to the attribute's annotated type, or else to the type of
    the default.

    Raises GraphError for a class as default."""
    if isinstance(default, type):
        raise GraphError(f"state({default.__name__}): it takes the value that a key has at first, such as state(0)")
    declared: Any = ValueState(default, None if ttl is None else micros(ttl))
    return typing.cast(T, declared)


def map_state(*, ttl: Duration | None = None) -> dict[Any, Any]:
    """Declares a mapping per key, empty at first. An entry expires when ``ttl`` (event time) has passed since it was
    written. An assignment to the attribute writes all entries."""
    declared: Any = state({}) if ttl is None else CollectionState({}, micros(ttl))
    return typing.cast(dict[Any, Any], declared)


def list_state(*, ttl: Duration | None = None) -> list[Any]:
    """Declares a list per key, empty at first. An item expires when ``ttl`` (event time) has passed since it was added.
    An assignment to the attribute adds all items."""
    declared: Any = state([]) if ttl is None else CollectionState([], micros(ttl))
    return typing.cast(list[Any], declared)


def broadcast_state() -> dict[Any, Any]:
    """Declares a mapping of a BroadcastProcess that every task has, empty at first. ``on_broadcast`` changes it,
    ``on_row`` reads it."""
    declared: Any = BroadcastState({}, None)
    return typing.cast(dict[Any, Any], declared)


def event_timer() -> Timer:
    """Declares a timer per key that fires when the watermark reaches it, that is, after all rows before its time."""
    return Timer(processing_time=False)


def processing_timer() -> Timer:
    """Declares a timer per key that fires when the wall clock reaches it. It never fires if the input ends first.
    (Event-time timers that are set at the end of the input fire then.)"""
    return Timer(processing_time=True)


def _counts(value: Any) -> bool:
    return bool(value) or not isinstance(value, dict | list)
