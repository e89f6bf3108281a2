"""Each command that the documents show is parsed, with its options; a test in ``tests/clusters`` runs them."""

from __future__ import annotations

import shlex

import click
import pytest

from clonos_py.bench.__main__ import bench
from clonos_py.cli.main import clonos
from tests.examples.commands import shown
from tests.examples.documents import ROOT


def parse(command: click.Command, words: list[str]) -> None:
    """Parses as Click does before a command runs. Raises click.UsageError."""
    context = command.make_context(command.name, words)
    while isinstance(command, click.Group):
        _, found, words = command.resolve_command(context, [*context._protected_args, *context.args])
        assert found is not None
        command, context = found, found.make_context(found.name, words, parent=context)


@pytest.mark.parametrize("line", shown("clonos"))
def test_every_option_in_the_documents_exists(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    parse(clonos, shlex.split(line, comments=True)[1:])


@pytest.mark.parametrize("line", shown("python -m clonos_py.bench"))
def test_every_option_of_a_benchmark_in_the_documents_exists(line: str) -> None:
    parse(bench, shlex.split(line, comments=True)[3:])


def test_the_check_finds_an_unknown_option() -> None:
    with pytest.raises(click.UsageError, match="--paralellism"):
        parse(clonos, ["run", str(ROOT / "examples" / "word_count.py"), "--paralellism", "4"])
