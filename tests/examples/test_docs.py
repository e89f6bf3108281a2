"""What the documents show is what runs: every Python block stands in a file that is tested, every setting is known,
every command exists."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from clonos_py.cli.main import COMMANDS
from clonos_py.dsl.settings import resolve

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"(?:<!-- (?P<origin>\S+) -->\n)?```(?P<language>\w*)\n(?P<text>.*?)```", re.DOTALL)


def blocks(language: str) -> list[re.Match[str]]:
    return [found for found in BLOCK.finditer(README) if found["language"] == language]


def test_the_readme_shows_python() -> None:
    assert blocks("python")


@pytest.mark.parametrize("block", blocks("python"), ids=lambda block: block["origin"])
def test_a_python_block_stands_in_a_tested_file_word_for_word(block: re.Match[str]) -> None:
    assert block["text"] in (ROOT / block["origin"]).read_text(encoding="utf-8")


@pytest.mark.parametrize("block", blocks("toml"), ids=lambda block: block["text"].splitlines()[0])
def test_a_settings_file_shown_can_be_read(block: re.Match[str]) -> None:
    values = tomllib.loads(block["text"])
    assert {key for key, _, origin in resolve(file=values).shown() if origin == "clonos.toml"} == set(values)


def test_the_commands_shown_exist() -> None:
    lines = [line for block in blocks("") for line in block["text"].splitlines() if line.startswith("clonos ")]
    assert lines
    for line in lines:
        words = shlex.split(line, comments=True)
        assert words[1] in COMMANDS
        assert all((ROOT / word).exists() for word in words if word.endswith(".py"))


def test_the_make_targets_shown_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"(?m)(?:^|`)make (\w+)", README)):
        assert f"\n{target}:" in makefile


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
