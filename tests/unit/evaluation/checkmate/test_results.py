"""The file of finished runs: what an interrupted evaluation has stored, and what it repeats."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from clonos_py.bench.checkmate.grid import CheckmateCell, Variant
from clonos_py.evaluation.checkmate.results import RUN, SEARCH, results
from clonos_py.evaluation.finished_runs import FinishedRuns
from clonos_py.model.errors import SettingError, SpillError

VARIANT = Variant("q1", "aligned", "causal", 2)
CELL, OTHER = CheckmateCell(VARIANT, 0, 80, 1), CheckmateCell(VARIANT, 0, 80, 2)
TERMS = {"seconds": 60.0, "given": {}}


def begun(path: Path) -> FinishedRuns:
    runs = results(path)
    runs.begin(TERMS)
    return runs


def kept(path: Path) -> FinishedRuns:
    runs = begun(path)
    runs.keep("mst", asdict(VARIANT), {"events_per_s": 1000.0, "trials": []})
    runs.keep("run", CELL.key, {"rate": 800.0, "metrics": {"overhead": 1.0}})
    return runs


def test_runs_in_the_file_are_not_repeated(tmp_path: Path) -> None:
    kept(tmp_path / "out")
    again = begun(tmp_path / "out")
    assert again.finished(RUN, CELL.key)
    assert not again.finished(RUN, OTHER.key)
    assert (again.of(SEARCH, asdict(VARIANT)) or {})["events_per_s"] == 1000.0
    assert [line["rate"] for line in again.good(RUN)] == [800.0]
    assert len((tmp_path / "out").read_text().splitlines()) == 3


def test_a_failed_run_is_repeated_and_the_last_result_counts(tmp_path: Path) -> None:
    def fails() -> dict[str, object]:
        raise SpillError("the disk is full")

    runs = begun(tmp_path / "out")
    assert runs.attempt(RUN, CELL.key, fails) == {"error": "SpillError: the disk is full"}
    assert not runs.finished(RUN, CELL.key)
    assert list(results(tmp_path / "out").good(RUN)) == []
    runs.attempt(RUN, CELL.key, lambda: {"metrics": {}})
    assert results(tmp_path / "out").finished(RUN, CELL.key)


@pytest.mark.parametrize("cut", [1, 20, 60])
def test_a_line_that_was_cut_off_is_named_and_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "out"
    kept(path)
    path.write_bytes(path.read_bytes()[:-cut])
    runs = results(path)
    assert runs.cut_off == f"{path}, line 3: cut off; it is dropped, and its run is repeated"
    assert not runs.finished(RUN, CELL.key)
    runs.begin(TERMS)
    runs.keep("run", OTHER.key, {"metrics": {}})
    assert results(path).cut_off is None
    assert results(path).finished(RUN, OTHER.key)


def test_a_damaged_line_before_others_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "out"
    kept(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "{]\n", lines[2]]))
    with pytest.raises(SettingError, match="line 2: not a line of CheckMate results"):
        results(path)


@pytest.mark.parametrize("content", ["something else\n", '{"kind": "run"}\n', json.dumps({"kind": "terms"}) + "\n"])
def test_another_file_is_left_unchanged(tmp_path: Path, content: str) -> None:
    path = tmp_path / "out"
    path.write_text(content)
    with pytest.raises(SettingError, match="line 1: not a line of CheckMate results of format 1"):
        results(path)
    assert path.read_text() == content


@pytest.mark.parametrize("path", ["/dev/zero", "/dev"])
def test_a_path_that_is_no_regular_file_is_refused(path: str) -> None:
    with pytest.raises(SettingError, match=f"--out {path} cannot be read: it is not a regular file; name another file"):
        results(Path(path))


def test_runs_of_other_terms_are_refused(tmp_path: Path) -> None:
    kept(tmp_path / "out")
    with pytest.raises(SettingError, match=r"holds runs with other terms: seconds \(60.0, now 5.0\)"):
        results(tmp_path / "out").begin({**TERMS, "seconds": 5.0})


def test_a_path_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match="name a file in a folder that can be written"):
        begun(tmp_path / "absent" / "out")


def test_a_full_disk_is_reported_with_the_file(tmp_path: Path) -> None:
    """/dev/full is always full; the results file becomes a link to it."""
    path = tmp_path / "results.jsonl"
    runs = results(path)
    runs.begin({})
    path.unlink()
    path.symlink_to("/dev/full")
    with pytest.raises(SettingError, match=r"results\.jsonl: No space left on device; .* make room"):
        runs.keep("run", {}, {})
