"""``clonos check --from``: what becomes of state in a changed job, and the errors of a run that would be refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from clonos_py.cli.main import invoke

JOB = """
from clonos_py import Job, Record
from clonos_py.connectors import FileSink, MemorySource

class Row(Record):
    account: int
    amount: int

job = Job("payments")
rows = job.source(MemorySource([Row(n % 3, n) for n in range(30)])).named("in")
rows.key_by("account").top(2, by="amount").named("best").at_end().sink(FileSink("out", format="jsonl")).named("out")
"""
RENAMED = JOB.replace('named("best")', 'named("highest")')
SORTED_OTHERWISE = JOB.replace('by="amount"', 'by="account"')
MORE = (
    JOB + 'rows.key_by("account").top(1, by="amount").named("most").at_end().sink(FileSink("most", format="jsonl"))\n'
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the job and its checkpoints."""
    folder = tmp_path_factory.mktemp("fit")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert checked(folder, JOB, "run", "--runtime", "local", "--checkpoints", "checkpoints") == 0
    return folder


def checked(folder: Path, text: str, command: str, *options: str) -> int:
    path = folder / f"job{abs(hash(text))}.py"
    path.write_text(text)
    return invoke([command, str(path), *options])


@pytest.mark.parametrize(
    ("text", "options", "states"),
    [
        (JOB, (), {"best": "kept", "in": "kept", "out": "kept"}),
        (JOB, ("--at", "1", "--parallelism", "3"), {"best": "kept", "in": "kept", "out": "kept"}),
        (RENAMED, ("--rename", "best=highest"), {"highest": "kept, under the name 'best' until now"}),
        (RENAMED, ("--drop-state", "best"), {"best": "dropped", "highest": "new: it begins without state"}),
        (MORE, (), {"best": "kept", "most": "new: it begins without state"}),
    ],
)
def test_it_says_what_becomes_of_the_state_of_each_operator(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, options: tuple[str, ...], states: dict[str, str]
) -> None:
    before = sorted(folder.rglob("checkpoints/**/*"))
    assert checked(folder, text, "check", "--from", str(folder / "checkpoints"), *options) == 0
    shown = [line.split(maxsplit=2) for line in capsys.readouterr().out.splitlines()]
    found = {words[0]: words[2] for words in shown if len(words) == 3}
    assert {name: found[name].strip() for name in states} == states
    assert sorted(folder.rglob("checkpoints/**/*")) == before, "nothing runs and nothing is written"


def test_other_tasks_are_mentioned(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for tasks, mentioned in (("1", False), ("3", True)):
        options = ("--from", str(folder / "checkpoints"), "--parallelism", tasks)
        assert checked(folder, JOB, "check", *options) == 0
        assert ("so the state is distributed anew" in capsys.readouterr().out) == mentioned


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (RENAMED, (), "add --rename best=highest"),
        (SORTED_OTHERWISE, (), "'best' under another definition (order: amount ascending, now account ascending)"),
        (JOB, ("--key-groups", "64"), "run with --key-groups 128"),
        (JOB, ("--at", "77"), "has no checkpoint 77 (any more): it has 1"),
        (JOB.replace('"payments"', '"other"'), (), "has no checkpoints"),
    ],
)
def test_what_a_run_would_refuse_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, options: tuple[str, ...], message: str
) -> None:
    assert checked(folder, text, "check", "--from", str(folder / "checkpoints"), *options) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert message in error


@pytest.mark.parametrize("options", [("--at", "1"), ("--rename", "a=b"), ("--drop-state", "a"), ("--parallelism", "2")])
def test_options_of_state_go_with_a_folder(
    folder: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...]
) -> None:
    assert checked(folder, JOB, "check", *options) == 2
    assert f"{options[0]} goes with --from" in capsys.readouterr().err
