"""Creates the environments of the other engines, with ``uv``, ``mvn`` and ``javac``, once, under one folder.

None of these packages is in the lock file of this package. A marker file with the versions is written last. An
environment without it, or with other versions, is created again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from clonos_py.model.errors import SettingError

PYTHON = "3.11"
FLINK, BYTEWAX, PYARROW, HADOOP = "2.3.0", "0.21.1", "24.0.0", "3.4.1"
JARS = (
    f"org.apache.flink:flink-sql-parquet:{FLINK}",
    f"org.apache.hadoop:hadoop-client-api:{HADOOP}",
    f"org.apache.hadoop:hadoop-client-runtime:{HADOOP}",
)
"""Jars that Flink needs to read Parquet and does not include."""
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy"
_JAVA = Path(__file__).parent / "java"
_NEEDED_BY = {"uv": "the Makefile fetches it into .tools/bin", "mvn": "install Maven", "javac": "install a JDK 17"}


@dataclass(frozen=True)
class Environment:
    """The environment of one engine in a folder: Python packages and jars."""

    folder: Path
    packages: tuple[str, ...]
    jars: tuple[str, ...] = ()

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @cached_property
    def flink_home(self) -> Path:
        return self.folder / "lib" / f"python{PYTHON}" / "site-packages" / "pyflink"

    def make(self, on_progress: Callable[[str], None]) -> None:
        """Installs the environment unless it is complete. Raises SettingError with the remedy if a tool is missing or
        fails."""
        marker, expected = self.folder / "ready", repr((self.packages, self.jars, _sources()))
        if marker.exists() and marker.read_text() == expected:
            return
        on_progress(f"installing {', '.join(self.packages)}")
        shutil.rmtree(self.folder, ignore_errors=True)
        _run("uv", "venv", "--quiet", "--python", PYTHON, str(self.folder))
        _run("uv", "pip", "install", "--quiet", "--python", str(self.python), *self.packages)
        if self.jars:
            self._complete_flink(on_progress)
        marker.write_text(expected)

    def _complete_flink(self, on_progress: Callable[[str], None]) -> None:
        library = self.flink_home / "lib"
        for jar in self.jars:
            on_progress(f"fetching {jar}")
            _run("mvn", "-q", "-B", _COPY, f"-Dartifact={jar}", f"-DoutputDirectory={library}")
        for functions in (self.flink_home / "opt").glob("flink-python-*.jar"):
            shutil.copy(functions, library)
        classes = self.folder / "classes"
        _run("javac", "--release", "17", "-cp", f"{library}/*", "-d", str(classes), *map(str, _JAVA.glob("*.java")))
        shutil.make_archive(str(library / "nexmark-functions"), "zip", classes)
        (library / "nexmark-functions.zip").rename(library / "nexmark-functions.jar")


def flink(root: Path) -> Environment:
    """The environment of Flink and PyFlink."""
    return Environment((root / "flink").absolute(), (f"apache-flink=={FLINK}",), JARS)


def bytewax(root: Path) -> Environment:
    """The environment of Bytewax, with pyarrow to read Parquet."""
    return Environment((root / "bytewax").absolute(), (f"bytewax=={BYTEWAX}", f"pyarrow=={PYARROW}"))


def _sources() -> str:
    return "".join(path.read_text() for path in sorted(_JAVA.glob("*.java")))


def _run(tool: str, *arguments: str) -> None:
    own = Path(sys.prefix).parent / ".tools" / "bin" / tool
    found = shutil.which(tool) or (str(own) if own.exists() else None)
    if found is None:
        raise SettingError(f"the other engines cannot be installed without {tool}: {_NEEDED_BY[tool]}")
    ended = subprocess.run([found, *arguments], capture_output=True, text=True, check=False)
    if ended.returncode:
        last = (ended.stderr or ended.stdout).strip().splitlines()[-1:] or ["it printed nothing"]
        raise SettingError(f"{tool} {' '.join(arguments[:3])} failed: {last[0]}")
