"""The page about replays: its commands, from a failure at night to a test."""

from __future__ import annotations

import io
import json
import random
import shlex
from pathlib import Path
from typing import Any

import pytest

from clonos_py.cli.main import invoke
from tests.examples.documents import BLOCK, ROOT, TEXTS
from tests.jobs.in_process import loaded_once

PAGE = ROOT / "docs" / "tasks" / "replays.md"
ROWS, FAILS_AT = 100_000, 90_000
QUICKLY = ("--runtime", "local", "--checkpoint-interval", "50ms")


def commands() -> list[list[str]]:
    """The commands of the page, without ``clonos``."""
    return [shlex.split(line.strip())[1:] for line in shown("shell")]


def shown(kind: str) -> list[str]:
    return [found["text"] for found in BLOCK.finditer(TEXTS[PAGE]) if found["language"] == kind]


def _payments(folder: Path) -> None:
    draw = random.Random(7)
    rows = [{"id": n, "account": draw.randrange(900), "cents": draw.randrange(100, 9_000)} for n in range(ROWS)]
    rows[FAILS_AT] = {"id": FAILS_AT, "account": 4711, "cents": 0}
    (folder / "payments" / "in").mkdir(parents=True)
    (folder / "payments" / "in" / "day.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_from_a_failure_at_night_to_a_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "examples" / "payments.py").read_text()
    (tmp_path / "payments.py").write_text(text)
    fixed = text.replace("noise * row.cents / self.mean,", "noise * row.cents / self.mean if self.mean else 1.0,")
    assert fixed != text
    (tmp_path / "fixed.py").write_text(fixed)
    _payments(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    run, debug, trace, diff, whole, to_test = commands()

    def told(command: list[str], *more: str) -> tuple[int, Any]:
        with loaded_once(tmp_path / f"{Path(command[1]).stem}.py"):
            code = invoke([*command, *more])
        return code, capsys.readouterr()

    code, said = told(run, *QUICKLY)
    failure, values, difference, example, _ = shown("text")
    assert (code, failure.strip()) == (1, said.err.splitlines()[-1])
    code, said = told(debug)
    assert code == 1
    for line in values.splitlines():
        name = line.split(":")[0]
        (found,) = [one for one in said.err.splitlines() + said.out.splitlines() if one.startswith(f"{name}: ")]
        if name in ("row", "key", "state", "task"):
            assert found == line
    assert told(trace)[0] == 0
    assert (tmp_path / "way.svg").exists()
    code, said = told(diff)
    assert (code, " 0 only before, 0 only after, 0 changed" in said.out) == (0, " 0 changed" in difference), said
    assert told(whole)[0] == 0
    assert (tmp_path / "rows" / "scored.jsonl").read_text().count("\n") > FAILS_AT
    assert told(to_test)[0] == 0
    written = (tmp_path / "test_night.py").read_text()
    assert next(line for line in example.splitlines() if "Payment(" in line) in written
    assert pytest.main(["-q", "-p", "no:cacheprovider", str(tmp_path / "test_night.py")]) == 0
