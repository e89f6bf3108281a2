"""Installs built packages into clean environments, one for each version of Python, and runs a job in each.

python deploy/try_packages.py .tools/bin/uv dist 3.11 3.12 3.13
"""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "word_count.py"
TEXT = "one two\ntwo three three three\n"
WORDS = {("one", "1"), ("two", "2"), ("three", "3")}
RUNTIMES = ("local", "ray")


def main(uv: str, folder: str, *versions: str) -> None:
    for package in packages(Path(folder)):
        for version in versions:
            with tempfile.TemporaryDirectory(prefix="clonos-package-") as clean:
                print(f"{package.name}, Python {version}: {tried(uv, package, version, Path(clean))}", flush=True)


def packages(folder: Path) -> Iterator[Path]:
    """The wheel and the sdist of a folder. Raises SystemExit unless there is one of each."""
    for pattern in ("*.whl", "*.tar.gz"):
        found = list(folder.glob(pattern))
        if len(found) != 1:
            raise SystemExit(f"{folder} has {len(found)} files {pattern}: run make dist")
        yield found[0]


def tried(uv: str, package: Path, version: str, clean: Path) -> str:
    """Installs a package into a clean environment and runs a job there. Raises SystemExit if its results are wrong."""
    python = clean / "venv" / "bin" / "python"
    run(uv, "venv", "--quiet", "--python", version, str(clean / "venv"))
    run(uv, "pip", "install", "--quiet", "--python", str(python), str(package.absolute()))
    shutil.copy(EXAMPLE, clean / "job.py")
    (clean / "data").mkdir()
    (clean / "data" / "text.txt").write_text(TEXT)
    for runtime in RUNTIMES:
        run(str(python.parent / "clonos"), "run", "job.py", "--runtime", runtime, "--out", runtime, within=clean)
        found = {tuple(row) for file in (clean / runtime).glob("*.csv") for row in csv.reader(file.open())}
        if found - {("word", "times")} != WORDS:
            raise SystemExit(f"{package.name}, Python {version}, {runtime}: {sorted(found)} instead of {sorted(WORDS)}")
    return f"installed, a job ran on {' and '.join(RUNTIMES)}"


def run(*command: str, within: Path | None = None) -> None:
    ended = subprocess.run(command, cwd=within, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {ended.returncode}:\n{ended.stdout}{ended.stderr}")


if __name__ == "__main__":
    main(*sys.argv[1:])
