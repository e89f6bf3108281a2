"""A change of the parallelism, between those who ask and the thread that drives."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from clonos_py.model.errors import ClusterError
from clonos_py.runtime.ray.rescaling import Rescaling


def asked(rescaling: Rescaling[str], drive: Callable[[], None]) -> float | str:
    """What a caller gets that asks for "wider", while ``drive`` runs in a thread once the run has to stop."""
    driving = threading.Thread(target=drive)
    with rescaling.begun() as change:
        found = change("wider", driving.start)
    driving.join()
    return found


def test_what_was_asked_for_follows_the_run_that_stops() -> None:
    rescaling = Rescaling[str]()

    def drive() -> None:
        assert rescaling.deployed() is None, "the former run, which has rolled back meanwhile"
        assert rescaling.take() == "wider"
        assert rescaling.deployed() is not None
        assert rescaling.deployed() is None, "a later deployment, after a rollback"

    assert isinstance(asked(rescaling, drive), float)
    assert rescaling.take() is None, "nothing follows the run at its end"


def test_a_run_that_goes_on_as_before_says_why() -> None:
    rescaling = Rescaling[str]()

    def drive() -> None:
        assert rescaling.take() == "wider"
        rescaling.failed("no room")
        assert rescaling.deployed() is None, "the former run again"

    assert asked(rescaling, drive) == "no room"
    assert asked(rescaling, drive) == "no room", "one may ask again"


def test_a_run_that_ends_says_how() -> None:
    rescaling = Rescaling[str]()
    assert asked(rescaling, lambda: rescaling.ended("the run has finished")) == "the run has finished"
    assert asked(rescaling, lambda: None) == "the run has finished"


def test_there_is_one_change_at_a_time() -> None:
    rescaling = Rescaling[str]()
    with rescaling.begun(), pytest.raises(ClusterError, match="is being rescaled already"), rescaling.begun():
        pass
    with rescaling.begun():
        pass
