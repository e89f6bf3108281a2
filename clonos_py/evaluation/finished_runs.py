"""A file of finished runs, so that the same command goes on where it was interrupted. One line of JSON for each run.

    {"kind": "terms", "format": 1, "terms": {...}, "versions": {...}}    the first line: what all runs share
    {"kind": KIND, KEY, VALUE, ...}                                      a finished run

KEY stands for the fields that identify a run, VALUE for what it measured (``LineKind``). A failed run has ``error``
instead, and is repeated. Of several lines with the same identity, the last one counts. An interrupted write affects
only its own line.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, BinaryIO

from clonos_py.model.errors import ClonosError, SettingError

FORMAT = 1
_PACKAGES = ("clonos-py", "ray", "pyarrow", "numpy")

Line = dict[str, Any]


@dataclass(frozen=True)
class LineKind:
    """A kind of lines: the fields that identify a run, and the field that only a finished one has."""

    key: tuple[str, ...]
    value: str


class FinishedRuns:
    """The lines of a file, which is read once. ``keep`` appends a line."""

    def __init__(self, path: Path, kinds: Mapping[str, LineKind], subject: str, folder: Path | None = None) -> None:
        """``subject``: what the runs belong to, for messages. ``folder``: the value of ``--out`` if that is the folder
        of the file. Raises SettingError for a file of something else, or one that is damaged before its last line."""
        self._path, self._kinds, self._subject, self._folder = path, kinds, subject, folder
        self.terms: Mapping[str, Any] | None = None
        self.cut_off: str | None = None
        """A message about the last line if it is incomplete; otherwise None."""
        self._whole_bytes = 0
        self._lines: dict[tuple[str, ...], Line] = {}
        for line in self._read():
            self._take(line)

    def begin(self, terms: Mapping[str, Any]) -> None:
        """Must be called before the first ``keep``. Removes an incomplete last line. Raises SettingError if the file
        holds runs with other terms, or cannot be written."""
        known = terms if self.terms is None else self.terms
        differing = [key for key in sorted({*known, *terms}) if known.get(key) != terms.get(key)]
        if differing:
            differences = ", ".join(f"{key} ({known.get(key)}, now {terms.get(key)})" for key in differing)
            raise SettingError(
                f"--out {self._out} holds runs with other terms: {differences}; name another {self._place}"
            )
        with self._opened() as file:
            file.truncate(self._whole_bytes)
        if self.terms is None:
            self.terms = terms
            self._append({"kind": "terms", "format": FORMAT, "terms": dict(terms), "versions": _versions()})

    # ---- runs

    def of(self, kind: str, key: Mapping[str, Any]) -> Line | None:
        """The last line of a run: its result, or its ``error``."""
        return self._lines.get((kind, *map(str, key.values())))

    def finished(self, kind: str, key: Mapping[str, Any]) -> bool:
        """Whether the run has finished without an error."""
        found = self.of(kind, key)
        return found is not None and "error" not in found

    def good(self, kind: str) -> Iterator[Line]:
        """The runs that have finished without an error."""
        return (line for line in self._lines.values() if line["kind"] == kind and "error" not in line)

    def attempt(self, kind: str, key: Mapping[str, Any], run: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
        """Makes a run. Keeps and returns its result, or the ClonosError that ended it as ``error``."""
        try:
            found = run()
        except ClonosError as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        self.keep(kind, key, found)
        return found

    def keep(self, kind: str, key: Mapping[str, Any], content: Mapping[str, Any]) -> None:
        """Appends a line. Raises SettingError if the file cannot be written."""
        line = {"kind": kind, **key, **content}
        self._append(line)
        self._take(line)

    # ---- the file

    @property
    def _out(self) -> Path:
        return self._folder or self._path

    @property
    def _place(self) -> str:
        return "file" if self._folder is None else "folder"

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                yield file
        except OSError as problem:
            place = "file in a folder" if self._folder is None else "folder"
            raise SettingError(
                f"--out {self._out}: {problem.strerror}; runs that it has are kept: make room, or name a {place} that "
                "can be written"
            ) from None

    def _append(self, line: Mapping[str, Any]) -> None:
        with self._opened() as file:
            file.write(json.dumps(line).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def _take(self, line: Line) -> None:
        if line["kind"] == "terms":
            self.terms = line["terms"]
            return
        key = self._kinds[line["kind"]].key
        self._lines[line["kind"], *(str(line[name]) for name in key)] = line

    def _read(self) -> Iterator[Line]:
        if self._path.exists() and not self._path.is_file():  # a device or a pipe may have no end
            raise SettingError(
                f"--out {self._path} cannot be read: it is not a regular file; name another {self._place}"
            )
        try:
            lines = self._path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise SettingError(
                f"--out {self._path} cannot be read: {problem.strerror}; name another {self._place}"
            ) from None
        for number, text in enumerate(lines, 1):
            line = self._parsed(text)
            if line is None or (number == 1) != (line["kind"] == "terms"):
                if number == len(lines) > 1:
                    self.cut_off = f"{self._path}, line {number}: cut off; it is dropped, and its run is repeated"
                    return
                raise SettingError(
                    f"{self._path}, line {number}: not a line of {self._subject} of format {FORMAT}; "
                    f"name another {self._place}, or remove the line to repeat its run"
                )
            self._whole_bytes += len(text)
            yield line

    def _parsed(self, text: bytes) -> Line | None:
        """The parsed line; None if it is incomplete or of an unknown kind."""
        try:
            line = json.loads(text)
        except ValueError:
            return None
        if not text.endswith(b"\n") or not isinstance(line, dict):
            return None
        name = str(line.get("kind"))
        if name == "terms":
            return line if line.get("format") == FORMAT and isinstance(line.get("terms"), dict) else None
        kind = self._kinds.get(name)
        if kind is None or not all(key in line for key in kind.key):
            return None
        return line if "error" in line or kind.value in line else None


def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), **{package: version(package) for package in _PACKAGES}}
