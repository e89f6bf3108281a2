"""The commands that the documents show, and running them as a reader would."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.examples.documents import ROOT, TEXTS, command_lines


def shown(program: str, documents: Iterable[Path] = TEXTS) -> list[str]:
    """The command lines of a program, each once."""
    return list(dict.fromkeys(line for line in command_lines(documents) if line.startswith(f"{program} ")))


def checkout(folder: Path) -> Path:
    """A checkout as a reader of the documents has it, as far as jobs need it."""
    made = folder / "checkout"
    shutil.copytree(ROOT / "examples", made / "examples")
    return made


def run(line: str, folder: Path) -> None:
    """Raises AssertionError with all that was printed where the command ends with an error."""
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    ended = subprocess.run(
        ["bash", "-c", line], cwd=folder, env=environment, text=True, timeout=500, check=False,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert ended.returncode == 0, f"{line}\n{ended.stdout}"
