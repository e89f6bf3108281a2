"""Running a query as the command line does, in this process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from clonos_py.bench import oracle
from clonos_py.cli.main import invoke
from clonos_py.connectors import read_results
from clonos_py.evaluation.nexmark.running import QueryRun, SinkKind, run_query, verify_new_users
from clonos_py.model.errors import SettingError
from clonos_py.settings.definitions import Settings
from clonos_py.settings.resolution import resolve


def test_the_digest_is_the_same_at_any_parallelism_and_seeds_differ() -> None:
    order = QueryRun("q2", 60_000, sink=SinkKind.DIGEST)
    one, two, other = (
        run_query(order, _settings(parallelism=p, seed=s))["output"] for p, s in ((1, 3), (2, 3), (2, 4))
    )
    assert one == two
    assert one["rows"] == len(oracle.expected("q2", order.source(_settings(seed=3)).origin))
    assert one["digest"] != other["digest"]


def test_results_in_files_are_verified_against_the_oracle(tmp_path: Path) -> None:
    order = QueryRun("q8", 60_000, event_rate=1_000, sink=SinkKind.FILES, out=tmp_path / "results")
    run_query(order, _settings(parallelism=2))
    rows, wrong = verify_new_users(order, _settings())
    assert (rows > 0, wrong) == (True, None)
    assert "missing" in str(verify_new_users(order, _settings(seed=9))[1])


def test_every_task_has_the_same_number_of_partitions() -> None:
    for parallelism in (1, 2, 3, 5, 8, 9):
        partitions = QueryRun("q0", 10_000_000).source(_settings(parallelism=parallelism)).origin.partitions
        assert partitions >= 8
        assert partitions % parallelism == 0


@pytest.mark.parametrize(("sink", "out"), [(SinkKind.FILES, None), (SinkKind.BLACKHOLE, Path("results"))])
def test_a_missing_or_superfluous_folder_is_refused(sink: SinkKind, out: Path | None) -> None:
    with pytest.raises(SettingError, match="--out"):
        QueryRun("q0", 10, sink=sink, out=out)


def test_the_command_writes_results_and_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, report = tmp_path / "results", tmp_path / "report.json"
    arguments = ["nexmark", "run", "q0", "--events", "5k", "--runtime", "local", "--sink", "files"]
    assert invoke([*arguments, "--out", str(out), "--report", str(report)]) == 0
    assert len(read_results(str(out))) == 4_600
    made = json.loads(report.read_text())
    assert (made["query"], made["failures"], made["settings"]["runtime"]) == ("q0", [], "local")
    assert "events/s" in capsys.readouterr().out


def _settings(**given: object) -> Settings:
    return resolve({"runtime": "local", **given})
