"""The page about checkpoint intervals shows what its commands print."""

from __future__ import annotations

import shlex
from itertools import pairwise

import pytest

from clonos_py.cli import main
from tests.examples.documents import BLOCK, ROOT, TEXTS

PAGE = ROOT / "docs" / "tasks" / "checkpoint-interval.md"


def shown_results() -> list[tuple[str, str]]:
    """Each computation whose result is the next block. What a run finds differs from run to run."""
    blocks = [(found["language"], found["text"]) for found in BLOCK.finditer(TEXTS[PAGE])]
    pairs = pairwise(blocks)
    shown = [(command.strip(), result) for (_, command), (language, result) in pairs if language == "text"]
    return [(command, result) for command, result in shown if command.startswith("clonos interval")]


def test_the_page_shows_results() -> None:
    assert len(shown_results()) == 2


@pytest.mark.parametrize(("command", "result"), shown_results())
def test_a_command_prints_what_the_page_shows(command: str, result: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.invoke(shlex.split(command)[1:]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert printed == [line.rstrip() for line in result.splitlines()]
