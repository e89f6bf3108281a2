"""Posts of rows: their way from the threads of a web server to a task, until they are durable.

A post waits until the task takes it. It is durable once a completed checkpoint covers it; then it is settled, and its
sender gets an answer. If the task goes back to a state before the post, the post is withdrawn.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

Settle = Callable[[bool], None]
"""Called once, from any thread, with whether the post is durable. If not, it was withdrawn."""

WAITING_BYTES_MAX = 4 << 20


@dataclass(frozen=True)
class MalformedValue:
    """A malformed value. ``number``: its place in the post, from 1."""

    number: int
    value: bytes
    reason: str


@dataclass(eq=False)
class Post:
    """The rows of one request. ``rows``: None once they were taken. ``position``: the number of posts that the task had
    taken, this one included; 0 before it is taken. ``digest``: that of the body, if there is a key."""

    row_count: int
    malformed: Sequence[MalformedValue] = ()
    malformed_count: int = 0
    rows: pa.RecordBatch | None = None
    size_bytes: int = 0
    key: str | None = None
    digest: int = 0
    position: int = 0
    taken_us: int = 0
    waiting: list[Settle] = field(default_factory=list)

    @property
    def note(self) -> list[Any]:
        """The post as plain data, without rows; stored for posts with a key."""
        return [self.key, self.digest, self.position, self.taken_us, self.row_count, self.malformed_count]


def noted(note: Sequence[Any]) -> Post:
    """The post of a note, without its rows."""
    key, digest, position, taken_us, rows, malformed = note
    return Post(rows, key=key, digest=digest, position=position, taken_us=taken_us, malformed_count=malformed)


class Inbox:
    """The posts of a source, shared by all threads. ``wake`` is called when there is a post to take."""

    def __init__(self, keys_us: int) -> None:
        """``keys_us``: how long the key of a taken post is kept."""
        self._keys_us = keys_us
        self._lock = threading.Lock()
        self.wake: Callable[[], None] = lambda: None
        self._waiting: deque[Post] = deque()
        self._waiting_bytes = 0
        self._taken: deque[Post] = deque()
        """Posts that are taken and not yet durable, ordered by position."""
        self._keys: dict[str, Post] = {}
        """Posts by key, in order of arrival."""
        self._durable = 0
        self._accepts = False

    # ---- called by the web server

    def add(self, post: Post, settle: Settle) -> Post | None:
        """Adds a post. Returns it, or an earlier post with the same key; None if there is no room. If the earlier post
        has another digest, ``settle`` is not called."""
        with self._lock:
            known = self._keys.get(post.key) if post.key is not None else None
            if known is not None and known.digest != post.digest:
                return known
            if known is None:
                if not self._has_room(post):
                    return None
                self._waiting.append(post)
                self._waiting_bytes += post.size_bytes
                if post.key is not None:
                    self._keys[post.key] = post
            durable = known is not None and 0 < known.position <= self._durable
            if not durable:
                (known or post).waiting.append(settle)
        if durable:
            settle(True)
        elif known is None:
            self.wake()
        return known or post

    def _has_room(self, post: Post) -> bool:
        fits = not self._waiting or self._waiting_bytes + post.size_bytes <= WAITING_BYTES_MAX
        return self._accepts and fits

    # ---- called by the task

    def accept(self) -> None:
        """From now on ``add`` accepts posts."""
        with self._lock:
            self._accepts = True

    def take(self, position: int, bytes_max: int, rows_max: int | None, now_us: int) -> list[Post]:
        """The next posts, at least one if there is one. ``position``: that of the last post taken before. The caller
        takes the rows from the posts."""
        taken: list[Post] = []
        with self._lock:
            self._drop_old_keys(now_us)
            size = rows = 0
            while self._waiting and (not taken or size + self._waiting[0].size_bytes <= bytes_max):
                if taken and rows_max is not None and rows + self._waiting[0].row_count > rows_max:
                    break
                post = self._waiting.popleft()
                size, rows = size + post.size_bytes, rows + post.row_count
                self._waiting_bytes -= post.size_bytes
                post.position, post.taken_us = position + len(taken) + 1, now_us
                taken.append(post)
            self._taken.extend(taken)
        return taken

    def _drop_old_keys(self, now_us: int) -> None:
        """Drops keys that are too old."""
        while self._keys:
            key, oldest = next(iter(self._keys.items()))
            if not oldest.position or oldest.taken_us + self._keys_us > now_us:
                return
            del self._keys[key]

    def replayed(self, notes: Iterable[Sequence[Any]]) -> None:
        """Adds posts with keys that a replay has taken."""
        with self._lock:
            for post in map(noted, notes):
                self._taken.append(post)
                self._keys[str(post.key)] = post

    def notes(self) -> list[list[Any]]:
        """Notes of the taken posts with keys."""
        with self._lock:
            return [post.note for post in self._keys.values() if post.position]

    def restored(self, position: int, notes: Iterable[Sequence[Any]]) -> None:
        """Restores a checkpoint: it covers these posts, and all others up to the position."""
        with self._lock:
            waiting = {key: post for key, post in self._keys.items() if not post.position}
            self._keys = {str(post.key): post for post in map(noted, notes)} | waiting
        self.settle(position)

    def withdraw_after(self, position: int) -> None:
        """Withdraws the posts taken after this position."""
        with self._lock:
            withdrawn = [post for post in self._taken if post.position > position]
            self._taken = deque(post for post in self._taken if post.position <= position)
            self._keys = {key: post for key, post in self._keys.items() if post.position <= position}
        _settle_all(withdrawn, False)

    @property
    def rows_waiting(self) -> int:
        with self._lock:
            return sum(post.row_count for post in self._waiting)

    # ---- called by the committing thread

    def settle(self, position: int) -> None:
        """Settles posts: a completed checkpoint covers all of them up to this position."""
        durable: list[Post] = []
        with self._lock:
            self._durable = max(self._durable, position)
            while self._taken and self._taken[0].position <= position:
                durable.append(self._taken.popleft())
        _settle_all(durable, True)


def _settle_all(posts: Iterable[Post], durable: bool) -> None:
    for post in posts:
        for settle in post.waiting:
            settle(durable)
