"""``clonos analyze`` of a file of results; of a trace it needs Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from clonos_py.cli.analyze import command
from clonos_py.evaluation.checkmate.results import results
from clonos_py.model.errors import SettingError

SEARCH = {"query": "q3", "protocol": "aligned", "recovery": "causal", "parallelism": 2}


def test_tables_are_printed_and_a_page_with_plots_is_written(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    finished = results(path)
    finished.begin({"seconds": 60})
    finished.keep("mst", SEARCH, {"events_per_s": 5e5, "trials": []})
    result = CliRunner().invoke(command, [str(path), "--out", str(tmp_path / "report")], catch_exceptions=False)
    assert "| 2 | aligned (COOR) | causal | 500,000 |" in result.output
    page = (tmp_path / "report" / "some.html").read_text()
    assert "Figure 7: maximum sustainable throughput, events/s: q3" in page
    assert f"the report is {tmp_path}/report/some.html" in result.output


@pytest.mark.parametrize(
    ("content", "said"), [("", "is empty"), (json.dumps({"kind": "other"}) + "\n", "line 1: not a line of CheckMate")]
)
def test_another_file_is_refused(tmp_path: Path, content: str, said: str) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(content)
    with pytest.raises(SettingError, match=said):
        CliRunner().invoke(command, [str(path)], catch_exceptions=False)
    assert list(tmp_path.iterdir()) == [path]
