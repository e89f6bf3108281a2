"""Writes the diagrams of all machines into docstrings and documents, from their tables: ``make reference``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from clonos_py.job.states import JOB_STATES, LOOP_STATES, ROUND_STATES
from clonos_py.link.states import LINK_STATES
from clonos_py.model.states import StateTable
from clonos_py.task.states import TASK_STATES

TABLES: dict[str, StateTable[Any, Any]] = {
    "link": LINK_STATES,
    "task": TASK_STATES,
    "job": JOB_STATES,
    "round": ROUND_STATES,
    "loop": LOOP_STATES,
}
MODULES = {
    "link": "link/machine.py",
    "task": "task/machine.py",
    "job": "job/machine.py",
    "round": "job/rounds.py",
    "loop": "job/loops.py",
}
"""By table: the module of the machine."""
ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "design" / "processes.md"


def shown() -> dict[Path, str]:
    """By path: the files that show a table, with their diagrams as the table is now."""
    page = PAGE.read_text(encoding="utf-8")
    files = {}
    for name, table in TABLES.items():
        path = ROOT / "clonos_py" / MODULES[name]
        place = rf"(?<=`{name.upper()}_STATES` in `{path.parent.name}/states.py`\):\n\n```mermaid\n).*?(?=\n```)"
        page = _with(table.diagram(), place, page)
        files[path] = _with(table.text(), r"(?<=\n)    \[\*\] --> .*?(?=\n\n)", path.read_text(encoding="utf-8"))
    return {**files, PAGE: page}


def _with(diagram: str, place: str, text: str) -> str:
    found, times = re.subn(place, lambda _: diagram, text, count=1, flags=re.DOTALL)
    assert times, f"there is no place for a diagram: {place}"
    return found


if __name__ == "__main__":
    for path, text in shown().items():
        path.write_text(text, encoding="utf-8")
