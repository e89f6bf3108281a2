"""The end of a job is kept until all who wait for it have read it."""

from __future__ import annotations

import threading

from clonos_py.runtime.ray.end_watchers import EndWatchers


def test_nobody_waits_at_first() -> None:
    assert EndWatchers().await_none(0)


def test_the_last_one_that_leaves_ends_the_wait() -> None:
    watchers = EndWatchers()
    for name in ("a", "b", "b"):
        watchers.add(name)
    watchers.remove("a")
    watchers.remove("never added")
    assert not watchers.await_none(0)
    leaving = threading.Thread(target=watchers.remove, args=("b",))
    leaving.start()
    assert watchers.await_none(60)
    leaving.join()
