"""Jobs over a sample of their rows: it is the same one at any parallelism, whatever dies."""

from __future__ import annotations

from typing import Any

import pytest

from clonos_py import Job, col, count, testing
from clonos_py.connectors import MemorySink
from clonos_py.model.errors import GraphError
from tests.jobs.rows import BY_KEY, EVENTS, IN_FOURS, started


def sampled(parallelism: int, *columns: str, **given: Any) -> set[int]:
    job = Job("sampled")
    started(job).sample(0.4, *columns, **given).sink(MemorySink()).named("out")
    out = testing.run(job, {"in": IN_FOURS}, kills=2, seeds=1, parallelism=parallelism)["out"]
    return {row.id for row in out}


def test_it_does_not_depend_on_the_parallelism() -> None:
    assert 0 < len(sampled(1)) < len(EVENTS)
    assert sampled(1) == sampled(3)
    assert sampled(1) != sampled(1, seed=1)


def test_a_sample_by_a_column_has_all_rows_of_a_key_or_none() -> None:
    found = sampled(1, "key")
    kept = [len(found & {event.id for event in events}) / len(events) for events in BY_KEY.values()]
    assert set(kept) == {0.0, 1.0}


def test_mistakes_are_named() -> None:
    events = started(Job("sampled"))
    for wrong in (-0.1, 1.5, float("nan"), "some", True):
        with pytest.raises(GraphError, match=r"sample: fraction is .*: it must be a number from 0 to 1"):
            events.sample(wrong)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"sample: seed is 0\.5: it must be a whole number"):
        events.sample(0.5, seed=0.5)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="sample: no column 'user'; there are id, key"):
        events.sample(0.5, "user")
    with pytest.raises(GraphError, match=r"sample: .* is not a column name; compute it first"):
        events.sample(0.5, col("id") + 1)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="these rows are changes of the table"):
        events.key_by("key").aggregate(n=count()).changes().sample(0.5)
