"""DuckDB's queries give the rows of the jobs, and a comparison refuses other rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from clonos_py.bench.limit.command import check, mean_ratio
from clonos_py.bench.limit.engines import DuckDBRuns, RowsDigest, RunTimes
from clonos_py.bench.limit.queries import SQL
from clonos_py.bench.oracle import expected
from clonos_py.bench.peers.datasets import Dataset
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.errors import ClonosError


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Half a minute of events, so that windows, sessions and auctions end."""
    made = Dataset(tmp_path_factory.mktemp("events"), NexmarkSource(10_000, event_rate=300, seed=1, partitions=2))
    made.write(lambda _: None)
    return made


@pytest.mark.parametrize("query", SQL)
def test_duckdb_gives_the_rows_of_the_oracle(query: str, dataset: Dataset) -> None:
    batches = DuckDBRuns(1).batches(query, dataset.folder)
    found = Counter(tuple(row.values()) for batch in batches for row in batch.to_pylist())
    assert found == Counter(expected(query, dataset.source))


class Fixed:
    """An engine with the same answer to everything."""

    def __init__(self, answer: RowsDigest) -> None:
        self._answer = answer

    def timed(self, query: str, folder: Path) -> RunTimes:
        raise AssertionError("wrong rows are not timed")

    def answer(self, query: str, folder: Path) -> RowsDigest:
        return self._answer


@pytest.mark.parametrize("other", [RowsDigest(2, 3), RowsDigest(1, 4)])
def test_other_rows_are_an_error(other: RowsDigest) -> None:
    check("q0", Fixed(RowsDigest(1, 3)), Fixed(RowsDigest(1, 3)), Path())
    with pytest.raises(ClonosError, match=f"q0: the results differ: 3 rows here, {other.rows} of DuckDB"):
        check("q0", Fixed(RowsDigest(1, 3)), Fixed(other), Path())


def test_the_mean_of_ratios_is_geometric() -> None:
    assert mean_ratio([4.0, 1.0, 0.25]) == pytest.approx(1.0)
