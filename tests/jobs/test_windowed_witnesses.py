"""The check of the windowed two-witness job finds a row that is lost, repeated or answered anew."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from clonos_py.bench import windowed_witnesses as windows
from clonos_py.bench.witnesses import answer_server
from clonos_py.runtime.launch import run_job
from clonos_py.settings.protocols import CONTINUOUS
from clonos_py.settings.resolution import resolve

TOTAL = 300
Rows = list[dict[str, Any]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("witnesses")
    settings = {"runtime": "local", "parallelism": 2, "protocol": CONTINUOUS.name, "checkpoint_interval": "100ms"}
    with answer_server() as server:
        run_job(windows.windowed(server, str(folder), TOTAL, 2_000), resolve(command_line=settings))
    return folder


def test_windows_agree_with_their_rows(written: Path) -> None:
    assert windows.wrong(str(written), TOTAL) is None


def of(name: str, change: Callable[[Rows], object]) -> Callable[[Path], None]:
    """Changes the rows of the largest file of a sink."""

    def changed(folder: Path) -> None:
        file = max((folder / name).glob("*.jsonl"), key=lambda path: path.stat().st_size)
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        change(rows)
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))

    return changed


@pytest.mark.parametrize(
    ("change", "found"),
    [
        (of("left", lambda rows: rows.pop()), "left has 299 records"),
        (of("left", lambda rows: rows[0].update(answer=-1)), "has other answers than its rows"),
        (of("tens", lambda rows: rows[0]["ids"].pop()), "do not have each number once"),
        (of("tens", lambda rows: rows.append(rows[0])), "do not have each number once"),
        (of("hops", lambda rows: rows[0].update(answers=0)), "hopping windows differ"),
        (of("hops", lambda rows: rows.append(rows[0])), "hopping windows differ"),
    ],
)
def test_a_difference_is_found(change: Callable[[Path], None], found: str, written: Path, tmp_path: Path) -> None:
    for file in written.rglob("*.jsonl"):
        copied = tmp_path / file.relative_to(written)
        copied.parent.mkdir(exist_ok=True)
        copied.write_bytes(file.read_bytes())
    change(tmp_path)
    assert found in (windows.wrong(str(tmp_path), TOTAL) or "")
