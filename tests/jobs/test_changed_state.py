"""A job that resumes from a checkpoint of other operators: state is never lost without an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from clonos_py.connectors import read_results
from clonos_py.model.errors import SettingError
from clonos_py.settings.resolution import resolve
from tests.jobs.half_way import RECORDS, SCRIPT, go_on, put_back, stopped_half_way
from tests.jobs.in_process import Ended
from tests.observed import without_warnings

FILES, ROWS, KEYS = 16, 600, 5

JOB = (
    RECORDS
    + """
class Sum(Process[Row, Total]):
    total: int = state(0)
    last: int | None = state(None)
    def on_row(self, row: Row, ctx: Context) -> Total:
        self.total += 1
        self.last = row.id
        return Total(row.id, self.total)

def slow(row: Row) -> Row:
    take_time()
    return row

job = Job("changed", checkpoint_interval="20ms", runtime="local")
rows = job.source(FileSource("in", format="jsonl", schema=Row)).named("rows").map(slow)
rows.key_by("key").process(Sum).named("sums").sink(FileSink("out")).named("out")
"""
)

Change = Callable[..., Ended]


def rows_out() -> list[dict[str, int]]:
    return read_results("out")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A job that was stopped half-way."""
    return stopped_half_way(tmp_path_factory.mktemp("stopped"), JOB, FILES, ROWS, KEYS)


@pytest.fixture
def changed(stopped: Path, monkeypatch: pytest.MonkeyPatch) -> Change:
    """Resumes from there, with changes to the text of the job."""
    monkeypatch.chdir(stopped)
    put_back()

    def run(*more: str, **changes: tuple[str, str]) -> Ended:
        text = JOB
        for old, new in changes.values():
            assert old in text
            text = text.replace(old, new)
        Path(SCRIPT).write_text(text)
        return go_on(*more)

    return run


def went_on(done: Ended) -> None:
    """Every row is visible once, and no key has lost rows."""
    assert done.returncode == 0, done.stderr
    assert sorted(row["id"] for row in rows_out()) == list(range(ROWS))
    assert max(row["total"] for row in rows_out()) == ROWS // KEYS


def refused(done: Ended) -> str:
    assert done.returncode == 1
    (line,) = without_warnings(done.stderr)
    assert line.startswith("error: ")
    return line


RENAMED = ('.named("sums")', '.named("totals")')


def test_a_renamed_operator_is_refused_with_its_likely_name(changed: Change) -> None:
    line = refused(changed(name=RENAMED))
    assert "holds state that maps to no operator of this job, of 'sums' (is it 'totals' now? then add " in line
    assert "--rename sums=totals" in line
    assert "--drop-state sums continues without it" in line


def test_with_rename_the_operator_gets_the_state_of_the_old_name(changed: Change) -> None:
    went_on(changed("--rename", "sums=totals", name=RENAMED))
    assert changed("--rename", "sums=totals", name=RENAMED).returncode == 0, "a rename that has been done is no error"


def test_another_number_of_key_groups_is_refused(changed: Change) -> None:
    """State is stored by key group: with another number, rows would meet the state of other keys, or none."""
    line = refused(changed("--key-groups", "64"))
    assert line.startswith("error: key_groups is 64, but checkpoint ")
    assert line.endswith(" holds state in 128 key groups: run with --key-groups 128, or start over with --fresh")
    went_on(changed("--key-groups", "128"))


def test_with_drop_state_the_operator_begins_without_state(changed: Change) -> None:
    done = changed("--drop-state", "sums", name=RENAMED)
    assert done.returncode == 0, done.stderr
    assert sorted(row["id"] for row in rows_out()) == list(range(ROWS))
    assert max(row["total"] for row in rows_out()) < ROWS // KEYS


def test_a_removed_operator_a_renamed_source_and_a_renamed_sink_are_refused(changed: Change) -> None:
    removed = ('.key_by("key").process(Sum).named("sums")', "")
    assert "of 'sums'; --rename OLD=NEW" in refused(changed(name=removed))
    assert "of 'rows' (is it 'lines' now? " in refused(changed(name=('.named("rows")', '.named("lines")')))
    line = refused(changed(name=('.named("out")', '.named("results")')))
    assert "of 'out' (is it 'results' now? then name it 'out' again)" in line
    went_on(changed("--rename", "rows=lines", name=('.named("rows")', '.named("lines")')))


@pytest.mark.parametrize(
    ("rename", "expected"),
    [
        ("sums=nothing", "this job has no 'nothing'; it has "),
        ("sums=out", "'out', too"),
        ("rows=totals", "this job has 'rows', too"),
        ("sums=slow", "this job has no 'slow'"),
        ("sums=map", "'sums' was of another kind (process) than 'map' is (without state)"),
    ],
)
def test_an_impossible_rename_is_refused(changed: Change, rename: str, expected: str) -> None:
    line = refused(changed("--rename", rename, name=RENAMED))
    assert line.startswith(f"error: --rename {rename}: ")
    assert expected in line


def test_operators_without_state_can_be_added_and_removed(changed: Change) -> None:
    more = (".map(slow)\n", '.filter(col("key") >= 0).map(slow).filter(col("id") >= 0)\n')
    went_on(changed(name=more))


def test_a_process_may_gain_and_lose_state(changed: Change) -> None:
    less = ("    last: int | None = state(None)\n", "    more: int = state(3)\n")
    went_on(changed(state=less, use=("        self.last = row.id\n", "        self.more += 1\n")))


def test_state_of_another_type_is_refused(changed: Change) -> None:
    line = refused(changed(type=("total: int = state(0)\n", 'total: str = state("")\n')))
    assert "state of 'sums' under another definition (attribute total: int, now str)" in line
    assert "--drop-state sums" in line


def test_renames_and_dropped_state_need_a_checkpoint_folder() -> None:
    settings = resolve({}, environment={"CLONOS_DROP_STATE": "a,b"}, command_line={"checkpoints": "x"})
    assert settings.drop_state == ("a", "b")
    with pytest.raises(SettingError, match="without a checkpoint folder there is no state to resume with"):
        resolve({}, command_line={"renames": ("a=b",)})
    with pytest.raises(SettingError, match="'ab' is not a rename: write OLD=NEW"):
        resolve({}, command_line={"renames": ("ab",), "checkpoints": "x"})
