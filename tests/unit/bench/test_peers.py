"""The comparison with other engines, as far as it needs none of them: rates, turns, SQL, files, settings."""

from __future__ import annotations

import errno
import json
import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from clonos_py.bench import oracle
from clonos_py.bench.peers import queries
from clonos_py.bench.peers.command import about, command
from clonos_py.bench.peers.dataflows import merged
from clonos_py.bench.peers.datasets import CYCLE_ROWS, Dataset
from clonos_py.bench.peers.engines import Terms
from clonos_py.bench.peers.environment import Environment
from clonos_py.bench.peers.flink import Flink, cluster_settings, counted_kind, table_settings
from clonos_py.bench.peers.flink_cluster import FlinkCluster
from clonos_py.bench.peers.measuring import dataset_of, datasets, measured, schedule
from clonos_py.bench.peers.rates import Rate, RateComparison, geometric_mean, median, steady
from clonos_py.bench.peers.verifying import flink_rows, verdict
from clonos_py.connectors import MemorySink
from clonos_py.evaluation.metrics import RateSample
from clonos_py.evaluation.nexmark.jobs import build
from clonos_py.evaluation.nexmark.new_users import difference
from clonos_py.evaluation.nexmark.recorded import RecordedEvents
from clonos_py.evaluation.nexmark.source import NexmarkSource
from clonos_py.model.errors import SettingError, SourceError

SECOND_US = 1_000_000


@contextmanager
def flink_that_answers(status: int, said: list[str]) -> Iterator[FlinkCluster]:
    """A server that answers like Flink."""

    class Handler(BaseHTTPRequestHandler):
        def do_PATCH(self) -> None:
            said.append(f"{self.command} {self.path}")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(b'{"errors": ["because"]}' if status != 202 else b"{}")

        def log_message(self, format: str, *args: Any) -> None:
            """No log of requests."""

    with HTTPServer(("localhost", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield FlinkCluster(server.server_address[1], Path())
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize("status", [202, 409])
def test_a_flink_job_that_has_ended_by_itself_need_not_be_cancelled(status: int) -> None:
    """It ends between the request for its state and the order to cancel it, or Flink reports an old state."""
    said: list[str] = []
    with flink_that_answers(status, said) as running:
        running.cancel("abc")
    assert said == ["PATCH /jobs/abc?mode=cancel"]


@pytest.mark.parametrize("status", [404, 500])
def test_the_answer_of_flink_is_quoted_when_it_does_not_cancel(status: int) -> None:
    refused = pytest.raises(SettingError, match=f"did not cancel job abc: status {status}, .*because")
    with flink_that_answers(status, []) as running, refused:
        running.cancel("abc")


def _samples(*events: int, begin_s: int = 100) -> list[RateSample]:
    return [RateSample((begin_s + number) * SECOND_US, total) for number, total in enumerate(events)]


def test_the_clock_starts_with_the_first_event_and_the_warm_up_is_left_out() -> None:
    slow_then_fast = [0, 0, 0, *(10 * n for n in range(1, 11)), *(100 + 50 * n for n in range(1, 21))]
    assert steady(_samples(*slow_then_fast), warm_up_s=10) == Rate(50.0, 20.0)


def test_time_after_the_last_event_does_not_count() -> None:
    assert steady(_samples(0, 10, 20, 30, 40, 40, 40, 40), warm_up_s=1) == Rate(10.0, 3.0)


def test_the_warm_up_of_a_short_run_is_half_of_it() -> None:
    assert steady(_samples(0, 10, 20, 60, 100), warm_up_s=10, checkpoints=2) == Rate(40.0, 2.0, 2)
    assert steady(_samples(0, 10), warm_up_s=10) == Rate(10.0, 1.0)


def test_a_run_that_read_nothing_has_no_rate() -> None:
    with pytest.raises(ValueError, match="no events were seen read"):
        steady(_samples(0, 0, 0), warm_up_s=1)


def test_the_median_is_that_of_a_run_and_the_mean_is_geometric() -> None:
    assert median([Rate(3, 1), Rate(1, 1), Rate(2, 5)]) == Rate(2, 5)
    assert median([Rate(3, 1), Rate(1, 1)]) == Rate(1, 1)
    assert geometric_mean([2, 0.5, 8, 2]) == pytest.approx(2)
    assert math.isnan(geometric_mean([]))


def test_the_table_has_ratios_where_both_engines_ran_and_their_mean() -> None:
    ours = {"ours": [Rate(8e6, 9), Rate(4e6, 9), Rate(6e6, 9)]}
    runs = {"q0": {**ours, "flink": [Rate(1e6, 9)]}, "q5": {**ours, "flink": [Rate(0.25e6, 9)]}, "q6": ours}
    table = RateComparison(("ours", "flink", "other"), runs)
    assert table.headings() == ("query", "ours, M events/s", "flink", "ratio", "other", "ratio")
    assert table.line("q0") == ("q0", "6.00", "1.00", "6.0", "", "")
    assert table.line("q6") == ("q6", "6.00", "", "", "", "")
    assert table.mean_line() == ("geometric mean", "", "", "12.0", "", "")
    assert table.plain()["ratios"] == {"flink": {"q0": 6.0, "q5": 24.0}, "other": {}}
    assert table.plain()["geometric_means"] == {"flink": pytest.approx(12)}
    assert table.plain()["queries"]["q5"]["flink"] == [{"events_per_s": 0.25e6, "seconds": 9, "checkpoints": 0}]


@dataclass
class _Fake:
    name: str
    queries: tuple[str, ...]
    rate: float = 1.0

    def prepare(self, on_progress: object) -> None: ...

    def run(self, query: str, dataset: Dataset, terms: Terms) -> Rate:
        if self.rate < 0:
            raise RuntimeError("out of order")
        return Rate(self.rate, terms.seconds)


def test_engines_take_turns_and_alternate_in_the_first_place(tmp_path: Path) -> None:
    both, one = _Fake("a", ("q0", "q1"), 6), _Fake("b", ("q1",), 3)
    runs = list(schedule(("q0", "q1"), [both, one], turns=3))
    assert [(run.query, run.engine.name, run.turn) for run in runs] == [
        ("q0", "a", 0), ("q0", "a", 1), ("q0", "a", 2),
        ("q1", "a", 0), ("q1", "b", 0), ("q1", "b", 1), ("q1", "a", 1), ("q1", "a", 2), ("q1", "b", 2),
    ]  # fmt: skip
    reported: list[str] = []
    *_, made = measured(runs, [both, one], datasets(tmp_path, 1_000, 1, seed=1), Terms(), reported.append)
    assert made.ratios("b") == {"q1": 2.0}
    assert reported[0] == "1/9 q0 a"


def test_a_run_that_fails_leaves_an_empty_cell_and_is_listed(tmp_path: Path) -> None:
    good, bad = _Fake("good", ("q0",)), _Fake("bad", ("q0",), -1)
    runs = list(schedule(("q0",), [good, bad], turns=1))
    *_, made = measured(runs, [good, bad], datasets(tmp_path, 1_000, 1, seed=1), Terms(), lambda _: None)
    assert made.line("q0") == ("q0", "0.00", "", "")
    assert made.plain()["failures"] == ["q0 bad: RuntimeError: out of order"]


def test_queries_without_bids_read_a_longer_stream(tmp_path: Path) -> None:
    sets = whole, longer = datasets(tmp_path, 1_000_000, 2, seed=1)
    assert (longer.source.events, longer.kinds) == (4_000_000, ("person", "auction"))
    assert [query for query in queries.QUERIES if dataset_of(query, *sets) is longer] == ["q3", "q8"]
    assert whole.events_of({"bid": 46}) == whole.events_of({"person": 1, "auction": 3}) == 50
    assert sum(CYCLE_ROWS.values()) == 50


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    made = Dataset(tmp_path_factory.mktemp("peers") / "events", NexmarkSource(20_000, event_rate=1_000, partitions=2))
    made.write(lambda _: None)
    return made


def test_files_hold_the_events_in_order_with_times_as_timestamps(dataset: Dataset) -> None:
    files = sorted(dataset.folder.glob("bid/*.parquet"))
    parts = [pq.read_table(file) for file in files]
    assert [part.schema.field("date_time").type for part in parts] == [pa.timestamp("us")] * 2
    times = [np.asarray(part["date_time"].cast(pa.int64())) for part in parts]
    assert all((np.diff(part) >= 0).all() for part in times)
    expected = [row[3] for row in oracle.expected("q0", dataset.source)]
    assert np.sort(np.concatenate(times)).tolist() == expected


def test_files_for_which_there_is_no_room_are_named_and_none_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    source = NexmarkSource(1_000, partitions=1)
    with pytest.raises(SourceError, match=r"part-00000-0\.parquet: the disk is full: free space, or name .* --work"):
        Dataset(tmp_path / "events", source).write(lambda _: None)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").touch()
    with pytest.raises(SourceError, match=r"file/events: it cannot be written \(.*Not a directory"):
        Dataset(tmp_path / "file" / "events", source).write(lambda _: None)


def test_files_are_written_once_and_again_for_other_events(dataset: Dataset) -> None:
    written: list[str] = []
    dataset.write(written.append)
    assert written == []
    other = Dataset(dataset.folder.parent / "other", NexmarkSource(500, partitions=2), ("person", "auction"))
    other.write(written.append)
    assert written[-1].endswith(": 500 events")
    assert not list(other.folder.glob("bid/*"))
    assert other.read() == sum(path.stat().st_size for path in other.folder.glob("*/*.parquet")) > 0
    Dataset(other.folder, NexmarkSource(900, partitions=2)).write(written.append)
    assert list(other.folder.glob("bid/*"))
    assert written[-1].endswith(": 900 events")


def test_this_engine_reads_the_same_files(dataset: Dataset) -> None:
    from clonos_py.runtime.launch import run_job
    from clonos_py.settings.resolution import resolve

    sink = MemorySink()
    settings = resolve({"parallelism": 2}, command_line={"runtime": "local"}, environment={}, file={})
    run_job(build("q2", RecordedEvents(str(dataset.folder)), sink), settings)
    table = sink.table()
    assert table is not None
    rows = [tuple(row.values()) for row in table.to_pylist()]
    assert difference(oracle.expected("q2", dataset.source), rows) is None


def test_every_query_except_the_sixth_has_sql(dataset: Dataset) -> None:
    assert len(queries.QUERIES) == 22
    for query in queries.QUERIES:
        text = queries.select(query)
        assert text.startswith("SELECT ")
        assert any(kind in text for kind in queries.kinds_read(query))
    for query in queries.PYTHON_QUERIES:
        assert "py_" in queries.select(query, python=True)
    statements = queries.statements(dataset, "'0.001' SECOND")
    assert [statement.split()[2] for statement in statements[:3]] == ["person", "auction", "bid"]
    assert f"'path' = '{dataset.folder.as_uri()}/bid'" in statements[2]
    assert "date_time - INTERVAL '0.001' SECOND" in statements[2]


def test_only_the_tenth_query_writes_files(tmp_path: Path) -> None:
    assert queries.sink("q0", tmp_path) == {"connector": "blackhole"}
    assert queries.sink("q10", tmp_path)["partitioned_by"] == ["dt", "hm"]


def test_an_unknown_query_is_refused() -> None:
    with pytest.raises(SettingError, match="q6 is not compared: choose from q0, q1"):
        queries.check(("q5", "q6"))


def test_flink_gets_the_same_terms(dataset: Dataset, tmp_path: Path) -> None:
    settings = cluster_settings("q5", Terms(parallelism=3, checkpoint_s=7), tmp_path)
    assert settings["taskmanager.numberOfTaskSlots"] == table_settings(dataset, 3)["parallelism.default"] == "3"
    assert settings["execution.checkpointing.interval"] == "7 s"
    assert settings["execution.checkpointing.mode"] == "EXACTLY_ONCE"
    assert settings["state.backend.type"] == "hashmap"
    assert cluster_settings("q9", Terms(), tmp_path)["state.backend.type"] == "rocksdb"


def test_the_output_counters_of_flink_sources_are_assigned_to_kinds() -> None:
    kinds = ("auction", "bid")
    assert counted_kind("Source__bid[3].numRecordsOut", kinds) == "bid"
    assert counted_kind("Source__auction[1].numRecordsOut", kinds) == "auction"
    assert counted_kind("Calc[4].numRecordsOut", kinds) is None
    assert counted_kind("Source__bid[3].numRecordsOutErrors", kinds) is None
    assert counted_kind("Source__person[3].numRecordsOut", kinds) is None


def test_a_run_ends_after_warm_up_and_measured_time() -> None:
    terms = Terms(warm_up_s=10, seconds=30)
    assert (terms.is_complete(39), terms.is_complete(40)) == (False, True)


def test_counts_of_the_processes_of_a_dataflow_are_added_up(dataset: Dataset) -> None:
    counts = [(5, "bid/0", 0), (7, "bid/0", 46), (6, "bid/1", 0), (8, "bid/1", 46), (9, "bid/0", 92)]
    assert list(merged(counts, "q1", dataset)) == [(5, 0, 0), (6, 0, 0), (7, 50, 0), (8, 100, 0), (9, 150, 0)]


def test_results_of_flink_are_compared_with_the_oracle(dataset: Dataset, tmp_path: Path) -> None:
    rows = oracle.expected("q8", dataset.source)
    names = ("id", "name", "window_start")
    columns = [list(column) for column in zip(*rows, strict=True)]
    table = pa.table(dict(zip(names, columns, strict=True)))
    starts = table["window_start"].cast(pa.timestamp("us"))
    pq.write_table(table.set_column(2, "window_start", starts), tmp_path / "q8.parquet")
    found = flink_rows(tmp_path / "q8.parquet")
    assert verdict("q8", found, dataset) == (f"q8: {len(rows)} rows, as the oracle has them", True)
    assert verdict("q8", found[1:], dataset).same is False


def test_python_functions_are_not_called_in_the_process_that_submits_the_job(dataset: Dataset, tmp_path: Path) -> None:
    """A stand-in for the interpreter writes down the mode in which PyFlink would run."""
    environment = Environment(tmp_path, ())
    environment.python.parent.mkdir()
    environment.python.write_text(f"#!/bin/sh\necho $_python_worker_execution_mode > {tmp_path}/mode\n")
    environment.python.chmod(0o700)
    Flink(environment, python_functions=True).collect(("q1",), dataset, "'0.001' SECOND", 2, tmp_path)
    assert (tmp_path / "mode").read_text() == "process\n"


def test_the_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    command.main(["--help"], standalone_mode=False)
    assert "python -m clonos_py.bench peers" in capsys.readouterr().out


def test_a_report_names_the_events_and_terms_of_its_figures(dataset: Dataset) -> None:
    report = json.loads(json.dumps(about(dataset, 3, Terms())))
    assert report["events"]["events"] == dataset.source.events
    assert report["terms"]["parallelism"] == Terms().parallelism
    assert "rocksdb" in json.dumps(report["flink, where state grows with the stream"])
