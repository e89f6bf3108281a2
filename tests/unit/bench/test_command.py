"""``clonos nexmark``: wrong options are refused in one line before anything runs."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from clonos_py.bench.__main__ import bench
from clonos_py.bench.generation import made
from clonos_py.cli.counts import Count
from clonos_py.cli.endings import ended
from clonos_py.cli.main import invoke
from clonos_py.evaluation.nexmark.generator import Generator


@pytest.mark.parametrize(("written", "count"), [("5M", 5_000_000), ("1.5k", 1_500), ("7", 7), ("2G", 2_000_000_000)])
def test_numbers_of_events_are_written_with_units(written: str, count: int) -> None:
    assert Count().convert(written, None, None) == count


@pytest.mark.parametrize("written", ["", "0", "-5", "5x", "M", "5 M", "0.0001k"])
def test_other_texts_are_no_number_of_events(written: str) -> None:
    with pytest.raises(click.BadParameter, match="write it as 500000, 500k or 5M"):
        Count().convert(written, None, None)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["q23"], "there is no Nexmark query 'q23'"),
        (["q0", "--events", "many"], "'many' is not a number of events"),
        (["q0", "--sink", "floor"], "'floor' is not one of"),
        (["q0", "--sink", "files"], "add --out DIR"),
        (["q0", "--out", "results"], "a blackhole leaves nothing"),
        (["q0", "--report", "/no/such/folder/report.json"], "must be a file in a folder that exists"),
        (["q0", "--kill", "join"], "write OPERATOR[INDEX]@TIME"),
        (["q0", "--guarantee", "at-most-once", "--sharing-depth", "1"], "at-most-once replays nothing"),
    ],
)
def test_impossible_options_are_refused_in_one_line(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert invoke(["nexmark", "run", *arguments]) in (1, 2)
    printed = capsys.readouterr().err
    assert said in printed
    assert printed.startswith("error: ")
    assert printed.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "demo", "generate", "verify", "prove"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["nexmark", command, "--help"]) == 0
    assert f"clonos nexmark {command}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["state", "--rate", "0"], 2, "'0' is not a number of events"),
        (["state", "q3", "--checkpoint-interval", "soon"], 1, "'soon' is not a duration"),
        (["sate"], 2, "No such command 'sate'"),
    ],
)
def test_scripts_report_errors_in_one_line_too(
    capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, said: str
) -> None:
    assert ended(bench, arguments, "python -m clonos_py.bench") == code
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert said in line


def test_each_model_of_the_generator_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(bench, ["generation", "--events", "120k", "--turns", "1"], "python -m clonos_py.bench") == 0
    *_, official, _, _, _ = capsys.readouterr().out.splitlines()
    name, median, slowest, fastest, size = official.split()
    assert name == "official"
    assert 0 < float(slowest) == float(median) == float(fastest)
    assert int(size) > 100


def test_only_the_requested_events_are_counted() -> None:
    generator = Generator()
    assert made(generator, 7, 60_000).events == 60_000
    assert made(generator, 60_007, 1).events == 1
