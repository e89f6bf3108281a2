"""What detached runs consist of, beside the checkpoints of their job."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.checkpoint.storage import CheckpointStore
from clonos_py.checkpoint.stored_runs import RunEnd, RunParallelism, StoredRuns
from clonos_py.model.errors import CheckpointError


def test_the_newest_run_is_found_by_its_time(tmp_path: Path) -> None:
    runs = StoredRuns(str(tmp_path), "job/with a slash")
    with pytest.raises(CheckpointError, match="has no detached run: start one"):
        runs.newest()
    names = [runs.write(at_ms, b"%d" % at_ms) for at_ms in (999, 1_000, 20)]
    assert runs.newest() == names[1]
    assert [runs.read(name) for name in names] == [b"999", b"1000", b"20"]


def test_few_runs_are_kept(tmp_path: Path) -> None:
    runs = StoredRuns(str(tmp_path), "job")
    names = []
    for at_ms in range(30):
        names.append(runs.write(at_ms, b""))
        runs.end(names[-1], RunEnd())
    assert runs.names() == names[20:]


@pytest.mark.parametrize("end", [RunEnd(), RunEnd(stopped=True), RunEnd(error='it has "failed"\n')])
def test_an_end_is_noted(tmp_path: Path, end: RunEnd) -> None:
    runs = StoredRuns(str(tmp_path), "job")
    name = runs.write(1, b"content")
    assert runs.ended(name) is None
    runs.end(name, end)
    assert StoredRuns(str(tmp_path), "job").ended(name) == end


def test_the_parallelism_of_a_run_may_change(tmp_path: Path) -> None:
    runs = StoredRuns(str(tmp_path), "job")
    name = runs.write(1, b"content")
    assert runs.parallelism(name) == RunParallelism()
    for changes in (1, 2):
        runs.rescale(name, RunParallelism(changes, 4, {"join": changes}))
        assert runs.parallelism(name) == RunParallelism(changes, 4, {"join": changes})
    assert runs.read(name) == b"content"
    (path,) = tmp_path.rglob("job/runs/*/parallelism")
    path.write_bytes(b'{"default": "four"}')
    with pytest.raises(CheckpointError, match="parallelism is damaged"):
        runs.parallelism(name)


def test_each_changed_byte_of_a_run_is_found(tmp_path: Path) -> None:
    runs = StoredRuns(str(tmp_path), "job")
    name = runs.write(1, b"content")
    (path,) = tmp_path.rglob("job/runs/*/job")
    content = path.read_bytes()
    for place in range(len(content)):
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        with pytest.raises(CheckpointError, match="is damaged"):
            runs.read(name)
    for size in range(len(content)):
        path.write_bytes(content[:size])
        with pytest.raises(CheckpointError, match="is damaged"):
            runs.read(name)
    path.unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        runs.read(name)


def test_another_content_than_the_one_deployed_is_refused(tmp_path: Path) -> None:
    """Even if it was deployed, too."""
    runs = StoredRuns(str(tmp_path), "job")
    name, other = runs.write(1, b"content"), runs.write(2, b"other content")
    stored = tmp_path / "job" / "runs"
    (stored / other / "job").replace(stored / name / "job")
    with pytest.raises(CheckpointError, match="or not what was deployed"):
        runs.read(name)


def test_a_damaged_end_is_an_error_and_no_new_run(tmp_path: Path) -> None:
    runs = StoredRuns(str(tmp_path), "job")
    name = runs.write(1, b"content")
    runs.end(name, RunEnd())
    (path,) = tmp_path.rglob("end")
    path.write_bytes(b"{")
    with pytest.raises(CheckpointError, match="is damaged"):
        runs.ended(name)


def test_a_fresh_start_keeps_runs(tmp_path: Path) -> None:
    runs = StoredRuns(str(tmp_path), "job")
    name = runs.write(1, b"content")
    CheckpointStore(str(tmp_path), "job").archive()
    assert runs.newest() == name
