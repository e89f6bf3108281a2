"""The latest of many items, and the number of all: what a run that lasts for months reports takes little memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar, overload

T = TypeVar("T")

LATEST_MAX = 1_000
"""More than there are tasks in a job: what happens to all tasks at once is kept of each."""


class Latest(Sequence[T], Generic[T]):
    """A sequence of the latest items, in their order. Another thread may read it while items are added."""

    def __init__(self, most: int | None = LATEST_MAX) -> None:
        """``most``: the number of items to keep; None: all."""
        self._most = most
        self._kept: list[T] = []
        self.amount = 0
        """The number of all items."""

    def append(self, item: T) -> None:
        self.amount += 1
        self._kept.append(item)
        if self._most is not None:
            del self._kept[: -self._most]

    @property
    def dropped(self) -> int:
        """The number of items that are not kept."""
        return self.amount - len(self._kept)

    def __len__(self) -> int:
        return len(self._kept)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> list[T]: ...
    def __getitem__(self, index: int | slice) -> T | list[T]:
        return self._kept[index]
