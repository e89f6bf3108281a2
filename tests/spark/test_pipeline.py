"""Events written by Spark, replayed by the engine, results compared with Spark's: the commands as one types them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from clonos_py.cli.main import invoke
from clonos_py.evaluation.nexmark.description import read_description
from clonos_py.evaluation.nexmark.generator import SCHEMAS
from clonos_py.evaluation.nexmark.recorded import RecordedEvents
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.evaluation.spark.sources import SyntheticReader, register
from clonos_py.evaluation.spark.synthetic import Synthetic
from clonos_py.model.operators import End, Read

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = ("--events", "3k", "--event-rate", "100", "--seed", "5", "--out-of-order-group", "50")


@pytest.fixture(scope="module")
def events(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipeline") / "events"
    assert invoke(["nexmark", "generate", *EVENTS, "--partitions", "2", "--out", str(folder)]) == 0
    return folder


@pytest.fixture(scope="module")
def results(events: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    run = ["nexmark", "run", "q8", "--events-from", str(events), "--runtime", "local", "--parallelism", "2"]
    assert invoke([*run, "--sink", "files", "--out", str(out)]) == 0
    return out


def test_the_engine_replays_the_events_of_the_generator(events: Path) -> None:
    recorded = RecordedEvents(str(events))
    assert recorded.origin == read_description(events)
    assert _reads(recorded) == _reads(recorded.origin)


def test_results_are_verified_against_the_files_and_against_the_generator(events: Path, results: Path) -> None:
    verify = ["nexmark", "verify", "q8", "--results", str(results), "--events"]
    assert invoke([*verify, str(events)]) == 0
    assert invoke([*verify, *EVENTS[1:]]) == 0


def test_a_difference_is_shown_with_the_first_rows_of_each_side(
    events: Path, results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = pq.ParquetDataset(results).read()
    rows = sorted(table.to_pylist(), key=lambda row: row["id"])
    wrong = [{**rows[0], "name": "Nobody"}, *rows[1:], rows[-1]]
    pq.write_table(type(table).from_pylist(wrong, table.schema), tmp_path / "wrong.parquet")
    assert invoke(["nexmark", "verify", "q8", "--events", str(events), "--results", str(tmp_path)]) == 1
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == f"q8: DIFFERENT, of {len(rows)} rows 1 are missing, 2 are too many"
    start = rows[0]["window_start"]
    assert printed[1:3] == ["first 1 missing:", f"  - id={rows[0]['id']}, name={rows[0]['name']}, starttime={start}"]
    assert printed[3] == "first 2 too many:"
    assert f"  + id={rows[0]['id']}, name=Nobody, starttime={start}" in printed[4:]


@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_results_may_be_in_text_files(suffix: str, events: Path, results: Path, tmp_path: Path) -> None:
    import polars as pl

    frame = pl.read_parquet(results / "*.parquet")
    (frame.write_ndjson if suffix == "jsonl" else frame.write_csv)(tmp_path / f"rows.{suffix}")
    assert invoke(["nexmark", "verify", "q8", "--events", str(events), "--results", str(tmp_path)]) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["generate", "--out", "kafka://localhost/bids"], "names no topics: write kafka://HOST:PORT/PREFIX"),
        (["generate", "--out", "s3://events"], "is not a folder"),
        (["generate", "--out", "."], "already exists: remove it"),
        (["generate", "--out", "new", "--out-of-order-group", "7"], "choose a divisor of that such as 10"),
        (["verify", "q99", "--events", "5", "--results", "."], "there is no Nexmark query 'q99'"),
        (["verify", "q0", "--events", "5", "--results", "nowhere"], "is not a folder of results"),
        (["verify", "q0", "--events", "nowhere", "--results", "."], "holds no events"),
        (["verify", "q0", "--events", "5k", "--results", "."], "results are files of one of .parquet"),
    ],
)
def test_impossible_arguments_are_refused_in_one_line(
    spark: SparkSession, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other.txt").write_text("no result")
    assert invoke(["nexmark", *arguments]) == 1
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.count("\n") == 1


@pytest.mark.thorough
def test_events_are_generated_in_a_new_session(tmp_path: Path) -> None:
    """The other tests share a session, which begins and ends in the same way."""
    made = ["nexmark", "generate", "--events", "1k", "--partitions", "1", "--out", str(tmp_path / "events")]
    subprocess.run([sys.executable, "-m", "clonos_py.cli.main", *made], check=True, timeout=300)
    assert pq.read_table(tmp_path / "events" / "bid").num_rows == 920


def test_data_is_generated_by_the_python_that_started_spark(spark: SparkSession) -> None:
    """Another python3 on the path might have no clonos-py."""
    assert spark.sparkContext.pythonExec == sys.executable


def test_the_synthetic_source_gives_the_rows_of_the_workload(spark: SparkSession) -> None:
    register(spark)
    read = spark.read.format("synthetic").options(rows=40_000, workload="reachability", keys=50, partitions=3)
    found = read.load().toArrow()
    made = Synthetic(rows=40_000, workload="reachability", keys=50, partitions=3)
    reader = SyntheticReader(made)
    expected = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    assert found.to_pylist() == [row for batch in expected for row in batch.to_pylist()]


def _reads(source: NexmarkSource | RecordedEvents) -> list[tuple[object, ...]]:
    reader = source.create((None, None, None))
    reader.open(0, 1)
    reader.seek({})
    reads: list[tuple[object, ...]] = []
    while not isinstance(read := reader.poll(0), End):
        assert isinstance(read, Read)
        rows = [None if r is None else r.cast(s).to_pylist() for r, s in zip(read.rows, SCHEMAS, strict=True)]
        reads.append((read.partition, read.start, read.stop, rows, read.last))
    return reads
