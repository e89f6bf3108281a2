"""The commands that the documents show: each is parsed, with its options, and runs as printed from a checkout.

What installs is left out, which ``make dist`` and ``make setup`` try, and so is what takes hours: benchmarks and the
proof of all queries, of which a test has a shorter one.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import click
import pytest

from clonos_py.bench.__main__ import bench
from clonos_py.bench.kafka.cluster import cluster
from clonos_py.cli.main import clonos
from tests.examples.documents import ROOT, TEXTS, command_lines

QUICK = ("README.md", "docs/guide.md")
LONG = ("docs/tasks/failures.md", "docs/tasks/nexmark.md")
HOURS = "clonos nexmark prove"
SHOWN_BROKER = "localhost:9092"


def shown(program: str, documents: Iterable[Path] = TEXTS) -> list[str]:
    """The command lines of a program, each once."""
    return list(dict.fromkeys(line for line in command_lines(documents) if line.startswith(f"{program} ")))


def parse(command: click.Command, words: list[str]) -> None:
    """As Click does it before a command runs. Raises click.UsageError."""
    context = command.make_context(command.name, words)
    while isinstance(command, click.Group):
        _, found, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command, context = found, found.make_context(found.name, words, parent=context)


@pytest.mark.parametrize("line", shown("clonos"))
def test_every_option_shown_is_there(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    parse(clonos, shlex.split(line, comments=True)[1:])


@pytest.mark.parametrize("line", shown("python -m clonos_py.bench"))
def test_every_option_of_a_benchmark_shown_is_there(line: str) -> None:
    parse(bench, shlex.split(line, comments=True)[3:])


def test_an_option_that_is_not_there_is_found() -> None:
    with pytest.raises(click.UsageError, match="--paralellism"):
        parse(clonos, ["run", str(ROOT / "examples" / "word_count.py"), "--paralellism", "4"])


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a reader of the documents is in, as far as jobs are concerned."""
    shutil.copytree(ROOT / "examples", tmp_path / "checkout" / "examples")
    return tmp_path / "checkout"


def run(line: str, folder: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, text=True, timeout=500, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert ended.returncode == 0, f"{line}\n{ended.stdout}"


def test_the_first_commands_run_as_printed(checkout: Path) -> None:
    lines = shown("clonos", tuple(ROOT / name for name in QUICK))
    assert len(lines) >= 4
    for line in lines:
        run(line, checkout)


@pytest.mark.thorough
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("document", LONG)
def test_commands_that_take_long_run_as_printed(document: str, checkout: Path) -> None:
    lines = [line for line in shown("clonos", (ROOT / document,)) if not line.startswith(HOURS)]
    with cluster(checkout / "kafka") as found:
        for line in lines:
            run(line.replace(SHOWN_BROKER, found.bootstrap), checkout)
