"""The command line: help with examples, one line per error, meaningful exit codes."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import click
import pytest

from clonos_py.cli import main
from clonos_py.job.events import EndJob
from clonos_py.model.errors import (
    ClonosError,
    ClusterError,
    ClusterLostError,
    Interrupted,
    SettingError,
    SourceError,
    Terminated,
)
from clonos_py.runtime.run_settings import raise_for

Plant = Callable[[Callable[..., None]], None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Replaces the body of ``clonos run``."""

    def planted(body: Callable[..., None]) -> None:
        module = ModuleType("planted")
        vars(module)["command"] = click.Command("run", callback=body, params=[click.Option(["--n"], type=int)])
        monkeypatch.setitem(sys.modules, "planted", module)
        monkeypatch.setitem(main.COMMANDS, "run", ("planted", "Planted."))

    return planted


def raising(error: BaseException) -> Callable[..., None]:
    def body(n: int | None) -> None:
        raise error

    return body


def test_help_explains_the_first_step_and_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["--help"]) == 0
    text = capsys.readouterr().out
    assert "clonos run hello.py --runtime local" in text
    assert all(name in text for name in main.COMMANDS)


def test_help_imports_no_engine() -> None:
    heavy = "{'pyarrow', 'polars', 'ray', 'numpy'} & set(sys.modules)"
    code = f"import sys; from clonos_py.cli.main import invoke; invoke(['--help']); sys.exit(repr({heavy} or '') or 0)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.stderr.strip() == "''"


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(["--version"]) == 0
    assert capsys.readouterr().out.startswith("clonos, version 0.")


INTACT = " (the last checkpoint is intact)"


@pytest.mark.parametrize(
    ("end", "place", "said"),
    [
        (
            EndJob("CheckpointError", "cannot write:\n  no space", checkpoint=2),
            "/mine",
            "cannot write: no space" + INTACT,
        ),
        (EndJob("UserCodeError", "no", checkpoint=2), "/mine", "no" + INTACT),
        (EndJob("UserCodeError", "no", checkpoint=2), None, "no"),  # its folder is gone with the run
        (EndJob("UserCodeError", "no"), "/mine", "no"),
        (EndJob("UnreadableCheckpointError", "m is corrupt", checkpoint=2), "/mine", "m is corrupt"),
        (EndJob("UnmappedStateError", "no operator 'a'", checkpoint=2), "/mine", "no operator 'a'"),
    ],
)
def test_an_error_of_a_job_is_one_line_that_says_which_checkpoint_is_left(
    end: EndJob, place: str | None, said: str, plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(lambda n: raise_for(end, place))
    assert main.invoke(["run"]) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"error: {said}\n")


@pytest.mark.parametrize("error", [ClusterError, ClusterLostError, SourceError, SettingError])
def test_an_error_outside_a_job_does_not_mention_checkpoints(
    error: type[ClonosError], plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    plant(raising(error("no answer")))
    assert main.invoke(["run"]) == 1
    assert capsys.readouterr().err == "error: no answer\n"


@pytest.mark.parametrize(
    ("interrupt", "code", "word"),
    [
        (KeyboardInterrupt(), 130, "interrupted"),
        (Interrupted(), 130, "interrupted"),
        (Terminated(), 143, "terminated"),
    ],
)
def test_an_interrupt_has_its_own_exit_code(
    interrupt: KeyboardInterrupt, code: int, word: str, plant: Plant, capsys: pytest.CaptureFixture[str]
) -> None:
    """That of a process which the signal ends."""
    plant(raising(interrupt))
    assert main.invoke(["run"]) == code
    assert capsys.readouterr().err == f"{word}\n"


def test_a_reader_of_the_output_that_has_ended_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "clonos_py.cli.main", "--help"]
    with os.fdopen(writing, "wb") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (141, "")


def test_another_broken_pipe_is_an_unexpected_error(plant: Plant, capsys: pytest.CaptureFixture[str]) -> None:
    plant(raising(BrokenPipeError(errno.EPIPE, "Broken pipe")))
    assert main.invoke(["run"]) == 1
    assert capsys.readouterr().err.startswith("error: BrokenPipeError: [Errno 32] Broken pipe (traceback ")


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_command_works_with_closed_standard_streams(closed: str) -> None:
    command = f"{sys.executable} -m clonos_py.cli.main --version {closed}"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("clonos") == (">&-" not in closed.replace("2>&-", ""))


def test_an_unexpected_error_is_one_line_and_its_traceback_is_in_a_file(
    plant: Plant, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLONOS_DEBUG", raising=False)
    plant(raising(ZeroDivisionError("by nothing")))
    assert main.invoke(["run"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ZeroDivisionError: by nothing (traceback in ")
    log = Path(line.removesuffix(")").split()[-1])
    assert "raise error" in log.read_text(encoding="utf-8")
    log.unlink()


def test_the_traceback_is_shown_on_request(
    plant: Plant, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLONOS_DEBUG", "1")
    plant(raising(ZeroDivisionError("by nothing")))
    assert main.invoke(["run"]) == 1
    assert "Traceback (most recent call last)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["rum"], "error: No such command 'rum'. Did you mean 'run'? (see clonos --help)"),
        (["run", "--m", "3"], "error: No such option '--m'. Did you mean '--n'? (see clonos run --help)"),
        (["run", "--n", "x"], "error: Invalid value for '--n': 'x' is not a valid integer. (see clonos run --help)"),
        (
            ["stop", "job", "--timeout", "0s"],
            "error: Invalid value for '--timeout': '0s' must be more than 0 (see clonos stop --help)",
        ),
    ],
)
def test_a_wrong_command_line_is_one_line_and_exit_code_2(
    plant: Plant, capsys: pytest.CaptureFixture[str], arguments: list[str], line: str
) -> None:
    plant(lambda n: None)
    assert main.invoke(arguments) == 2
    assert capsys.readouterr().err == line + "\n"


def test_without_a_command_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke([]) == 2
    assert "Start here" in capsys.readouterr().err
