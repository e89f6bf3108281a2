"""The tutorial, as printed: its files are written, its commands are run in their order in an empty folder, and their
output is the printed one.

A comment before a block of commands says how: ``run`` to its end, ``start`` and go on, or until ``soon`` the output is
there. Only the installation is left out, which ``make dist`` tries. What is to run on Ray, which takes long to start,
runs locally where time is short: ``tests/ray`` has kills on Ray.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.waiting import SOON_S

TUTORIAL = Path(__file__).resolve().parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"(?ms)(?:<!-- (?P<mark>\S+) -->\n)?^```(?P<language>\w+)\n(?P<text>.*?)^```$")


class Step(NamedTuple):
    """``mark``: how commands are run, or the file that a text is of."""

    mark: str | None
    language: str
    text: str


def steps() -> list[Step]:
    found = BLOCK.finditer(TUTORIAL.read_text(encoding="utf-8"))
    return [Step(block["mark"], block["language"], block["text"]) for block in found]


class Terminal:
    """Runs commands in a folder. ``started``: those that keep running."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []
        self._environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}

    def start(self, commands: str) -> subprocess.Popen[str]:
        started = subprocess.Popen(
            ["bash", "-euo", "pipefail", "-c", f"exec {commands}" if commands.count("\n") == 1 else commands],
            cwd=self.folder, env=self._environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self.started.append(started)
        return started

    def run(self, commands: str) -> str:
        running = self.start(commands)
        printed, _ = running.communicate(timeout=SOON_S * 3)
        self.started.remove(running)
        assert running.returncode == 0, f"{commands}{printed}"
        return printed

    def soon(self, commands: str, expected: str) -> str:
        until = time.monotonic() + SOON_S
        while (printed := self.printed(commands)) != expected and time.monotonic() < until:
            assert all(process.poll() is None for process in self.started), self.started[0].communicate()[0]
            time.sleep(0.2)
        return printed

    def printed(self, commands: str) -> str:
        return subprocess.run(
            ["bash", "-c", commands], cwd=self.folder, text=True, capture_output=True, check=False
        ).stdout


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path)
    yield opened
    for process in opened.started:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SOON_S)


def interrupted(run: subprocess.Popen[str], terminal: Terminal) -> str:
    """What a run has printed that is stopped by Ctrl-C."""
    terminal.started.remove(run)
    run.send_signal(signal.SIGINT)
    return run.communicate(timeout=SOON_S)[0]


@pytest.mark.parametrize("on_ray", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_the_tutorial_works_as_printed(terminal: Terminal, on_ray: bool) -> None:
    done, printed = steps(), ""
    for step, after in zip(done, [*done[1:], Step(None, "", "")], strict=True):
        match step:
            case Step("run", "bash", text):
                printed = terminal.run(text)
            case Step("start", "bash", text):
                elsewhere = on_ray or "--runtime" in text
                terminal.start(text if elsewhere else text.replace("run shop.py", "run shop.py --runtime local"))
            case Step("soon", "bash", text):
                printed = terminal.soon(text, after.text)
            case Step(None, "json", text):
                assert printed.endswith(text)
            case Step(str(origin), "python", text):
                (terminal.folder / Path(origin).name).write_text(text)
            case _:
                raise AssertionError(f"what is to be done with {step}?")
    assert {step.mark for step in done} >= {"run", "start", "soon"}
    following, survivor = terminal.started
    assert survivor.stdout is not None
    assert any("takings[0] failed: killed by --kill" in line for line in survivor.stdout)
    said = interrupted(survivor, terminal)
    assert "takings[0] failed (killed by --kill)" in said, said
    said = interrupted(following, terminal)
    again = re.search(r"(?m)to continue from the last checkpoint: (.*)$", said)
    assert again is not None, said
    (terminal.folder / "orders" / "tuesday.jsonl").write_text(
        '{"at": "2026-03-03T09:00:00Z", "product": "tea", "cents": 100}\n'
    )
    terminal.start(f"{again[1]}\n")
    more = '{"product":"tea","window_end":"2026-03-02T09:06:00Z","orders":1,"cents":350}\n'
    before = next(step.text for step in done[::-1] if step.language == "json")
    assert terminal.soon("cat live/*.jsonl | sort", before + more) == before + more
