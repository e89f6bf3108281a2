"""A list and a mapping with the time at which each entry was written, for state whose entries expire one by one.

They are subclasses of ``list`` and ``dict``. So reading and iterating cost what they cost there; only changes keep the
times. The times need not be in order, since a row may be earlier than one before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol, SupportsIndex, TypeVar

from clonos_py.model.times import MAX_TIME

K = TypeVar("K")
V = TypeVar("V")


class _Clock(Protocol):
    """What gives the current time."""

    def time(self) -> int: ...


class TimedList(list[V]):
    """A list. ``oldest``: no item was added before this time."""

    scope: _Clock

    def __init__(self, items: Iterable[V], times: list[int]) -> None:
        super().__init__(items)
        self._times = list(times)
        self.oldest = min(times, default=MAX_TIME)

    @property
    def times(self) -> list[int]:
        """The time of each item."""
        return self._times

    def expire(self, until: int) -> bool:
        """Removes the items of times up to ``until``. Returns whether there were any."""
        kept = [index for index, at in enumerate(self._times) if at > until]
        found = len(kept) < len(self._times)
        if found:
            super().__setitem__(slice(None), [self[index] for index in kept])
            self._times = [self._times[index] for index in kept]
        self.oldest = min(self._times, default=MAX_TIME)
        return found

    def _now(self) -> int:
        now = self.scope.time()
        self.oldest = min(self.oldest, now)
        return now

    def append(self, item: V) -> None:
        self._times.append(self._now())
        super().append(item)

    def extend(self, items: Iterable[V]) -> None:
        before = len(self)
        super().extend(items)
        self._times.extend([self._now()] * (len(self) - before))

    def insert(self, index: SupportsIndex, item: V) -> None:
        self._times.insert(index, self._now())
        super().insert(index, item)

    def pop(self, index: SupportsIndex = -1) -> V:
        item = super().pop(index)
        self._times.pop(index)
        return item

    def remove(self, item: V) -> None:
        del self[self.index(item)]

    def clear(self) -> None:
        super().clear()
        self._times.clear()

    def reverse(self) -> None:
        super().reverse()
        self._times.reverse()

    def sort(self, *, key: Callable[[V], Any] | None = None, reverse: bool = False) -> None:
        def place(index: int) -> Any:
            return self[index] if key is None else key(self[index])

        order = sorted(range(len(self)), key=place, reverse=reverse)
        items, times = [self[index] for index in order], [self._times[index] for index in order]
        super().__setitem__(slice(None), items)
        self._times = times

    def __setitem__(self, index: Any, item: Any) -> None:
        if isinstance(index, slice):
            items = list(item)
            super().__setitem__(index, items)
            self._times[index] = [self._now()] * len(items)
        else:
            super().__setitem__(index, item)
            self._times[index] = self._now()

    def __delitem__(self, index: SupportsIndex | slice) -> None:
        super().__delitem__(index)
        del self._times[index]

    def __iadd__(self, items: Iterable[V]) -> TimedList[V]:  # type: ignore[override, misc]
        self.extend(items)
        return self

    def __imul__(self, count: SupportsIndex) -> TimedList[V]:
        super().__imul__(count)
        self._times *= int(count)
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return list, (list(self),)  # a copy is a plain list


class TimedMap(dict[K, V]):
    """A mapping. ``oldest``: no entry was written before this time."""

    scope: _Clock

    def __init__(self, entries: dict[K, V], times: list[int]) -> None:
        super().__init__(entries)
        self._times = dict(zip(entries, times, strict=True))
        self.oldest = min(times, default=MAX_TIME)

    @property
    def times(self) -> list[int]:
        """The time of each entry, in the order of the entries."""
        return [self._times[key] for key in self]

    def expire(self, until: int) -> bool:
        """Removes the entries of times up to ``until``. Returns whether there were any."""
        expired = [key for key, at in self._times.items() if at <= until]
        for key in expired:
            super().__delitem__(key)
            del self._times[key]
        self.oldest = min(self._times.values(), default=MAX_TIME)
        return bool(expired)

    def __setitem__(self, key: K, value: V) -> None:
        super().__setitem__(key, value)
        self._times[key] = now = self.scope.time()
        self.oldest = min(self.oldest, now)

    def __delitem__(self, key: K) -> None:
        super().__delitem__(key)
        del self._times[key]

    def setdefault(self, key: K, default: V = None) -> V:  # type: ignore[assignment]
        if key not in self:
            self[key] = default
        return self[key]

    def update(self, *others: Any, **named: Any) -> None:
        given: dict[Any, Any] = dict(*others, **named)
        for key, value in given.items():
            self[key] = value

    def pop(self, key: K, *default: Any) -> Any:
        self._times.pop(key, None)
        return super().pop(key, *default)

    def popitem(self) -> tuple[K, V]:
        key, value = super().popitem()
        del self._times[key]
        return key, value

    def clear(self) -> None:
        super().clear()
        self._times.clear()

    def __ior__(self, other: Any) -> TimedMap[K, V]:  # type: ignore[override, misc]
        self.update(other)
        return self

    def __reduce_ex__(self, protocol: SupportsIndex) -> Any:
        return dict, (dict(self),)  # a copy is a plain mapping
