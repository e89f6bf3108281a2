"""Ordinary mistakes: one line that names the culprit, an exit code, and nothing lost once they are repaired."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import pytest

from clonos_py.cli.main import invoke
from tests.jobs.mistakes import EXITS, READ, WORKED, WRITTEN, Mistake, function
from tests.observed import without_warnings

numbers = itertools.count()


pytestmark = pytest.mark.usefixtures("in_an_empty_folder")


def run(name: str, *arguments: str) -> int:
    return invoke(["run", f"{name}.py", "--checkpoints", "checkpoints", *arguments])


def named(mistakes: Sequence[Mistake]) -> list[object]:
    return [pytest.param(mistake, id=mistake.name.replace(" ", "-")) for mistake in mistakes]


def results() -> list[str]:
    """The rows that can be read, without the header of each file."""
    return sorted(row for part in Path("out").glob("*.csv") for row in part.read_text().splitlines()[1:])


@pytest.mark.parametrize("mistake", named([*WRITTEN, *READ, *WORKED, *EXITS]))
def test_a_mistake_is_reported_in_one_line_with_its_place(mistake: Mistake, capsys: pytest.CaptureFixture[str]) -> None:
    name = f"mistaken_{next(numbers)}"
    for file, content in mistake.files.items():
        Path(file).write_bytes(content)
    Path(f"{name}.py").write_text(mistake.source)
    assert run(name) == mistake.code
    lines = without_warnings(capsys.readouterr().err)
    if mistake.code == 0:
        assert "finished" in lines[-1]
        return
    (line,) = lines
    assert line.startswith("error: ")
    assert mistake.message.replace("job.py", f"{name}.py") in line
    assert mistake.place is None or f"{name}.py:{mistake.place}" in line
    assert "raceback" not in line


@pytest.mark.parametrize("mistake", named([mistake for mistake in WORKED if mistake.repaired is not None]))
def test_a_job_runs_after_its_mistake_is_repaired(mistake: Mistake, capsys: pytest.CaptureFixture[str]) -> None:
    wrong, right = f"mistaken_{next(numbers)}", f"mistaken_{next(numbers)}"
    Path(f"{wrong}.py").write_text(mistake.source)
    assert run(wrong) == 1
    Path(f"{right}.py").write_text(mistake.repaired_source)
    assert run(right) == 0, capsys.readouterr().err
    assert sorted({row.split(",")[1] for row in results()}, key=int) == [str(number) for number in range(30)]


LATE = function("time.sleep(0.0003)\nif row.value == 1_900:\n    raise ValueError('late')  # HERE\nreturn row")
LATE = LATE.replace(
    "source.map", "job.source(MemorySource([Row(n % 3, n, n) for n in range(2_000)])).named('many').map"
)


def test_a_job_that_fails_late_resumes_after_the_repair_without_lost_or_doubled_rows(
    capsys: pytest.CaptureFixture[str],
) -> None:
    mistake = Mistake("late", LATE, "ValueError: late", repaired="        pass")
    wrong, right = f"mistaken_{next(numbers)}", f"mistaken_{next(numbers)}"
    Path(f"{wrong}.py").write_text(mistake.source)
    assert run(wrong, "--checkpoint-interval", "100ms") == 1
    before = results()
    assert 0 < len(before) < 1_900, "some of it was committed, and stays"
    Path(f"{right}.py").write_text(mistake.repaired_source)
    assert run(right) == 0
    assert set(before) <= set(results())
    assert sorted(int(row.split(",")[1]) for row in results()) == list(range(2_000))
    (finished,) = [line for line in capsys.readouterr().err.splitlines() if "finished" in line]
    assert int(finished.split(" rows read")[0].split()[-1].replace(",", "")) < 2_000, finished
