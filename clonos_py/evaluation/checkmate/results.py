"""The results file: one line of JSON per finished run, so that an interrupted run does not affect others.

    {"kind": "terms", "format": 1, "terms": {...}, "versions": {...}}        the first line: what all runs share
    {"kind": "mst", QUERY, "events_per_s": ..., "trials": [...]}             a maximum sustainable throughput
    {"kind": "run", QUERY, "skew": 0, "load": 80, "run": 1, "keys": "hash", "rate": ..., "metrics": ..., ...}

QUERY stands for ``query``, ``protocol``, ``recovery`` and ``parallelism``. ``load`` is null if the rate was given.
``rate`` is null if events were read as fast as possible. ``metrics`` is the result of ``metrics.measured``. A failed
run or search has ``error`` instead, and is repeated. Of several lines with the same identity, the last one counts.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from clonos_py.evaluation.checkmate.grid import CheckmateCell, Variant
from clonos_py.model.errors import SettingError

FORMAT = 1
_KEYS: Mapping[str, tuple[str, ...]] = {
    "mst": ("query", "protocol", "recovery", "parallelism"),
    "run": ("query", "protocol", "recovery", "parallelism", "skew", "load", "run", "keys"),
}
_VALUES: Mapping[str, str] = {"mst": "events_per_s", "run": "metrics"}

Line = dict[str, Any]


class Results:
    """The lines of a results file, which is read once. ``keep`` appends a line."""

    def __init__(self, path: Path) -> None:
        """Raises SettingError for a file that is not a results file, or is damaged before its last line."""
        self._path = path
        self.terms: Mapping[str, Any] | None = None
        self.cut_off: str | None = None
        """A message about the last line if it is incomplete; otherwise None."""
        self._whole_bytes = 0
        self._lines: dict[tuple[str, ...], Line] = {}
        for line in self._read():
            self._take(line)

    def begin(self, terms: Mapping[str, Any], versions: Mapping[str, str]) -> None:
        """Must be called before the first ``keep``. Removes an incomplete last line. Raises SettingError if the file
        holds runs with other terms, or cannot be written."""
        known = terms if self.terms is None else self.terms
        differing = [key for key in sorted({*known, *terms}) if known.get(key) != terms.get(key)]
        if differing:
            differences = ", ".join(f"{key} ({known.get(key)}, now {terms.get(key)})" for key in differing)
            raise SettingError(f"--out {self._path} holds runs with other terms: {differences}; name another file")
        with self._opened() as file:
            file.truncate(self._whole_bytes)
        if self.terms is None:
            self.terms = terms
            self._append({"kind": "terms", "format": FORMAT, "terms": dict(terms), "versions": dict(versions)})

    # ---- lines

    def throughput(self, variant: Variant) -> float | None:
        """The maximum sustainable throughput; None if it was not found."""
        found = self._lines.get(("mst", *map(str, asdict(variant).values())))
        return None if found is None else found.get("events_per_s")

    def has(self, cell: CheckmateCell) -> bool:
        """Whether the run has finished without an error."""
        found = self._lines.get(("run", *map(str, cell.key.values())))
        return found is not None and "error" not in found

    def keep(self, kind: str, key: Mapping[str, Any], content: Mapping[str, Any]) -> None:
        """Appends a line. Raises SettingError if the file cannot be written."""
        line = {"kind": kind, **key, **content}
        self._append(line)
        self._take(line)

    def searches(self) -> Iterator[Line]:
        """The successful searches for maximum sustainable throughputs."""
        return self._good("mst")

    def runs(self) -> Iterator[Line]:
        """The successful runs."""
        return self._good("run")

    def _good(self, kind: str) -> Iterator[Line]:
        return (line for line in self._lines.values() if line["kind"] == kind and "error" not in line)

    # ---- the file

    @contextmanager
    def _opened(self) -> Iterator[BinaryIO]:
        try:
            with self._path.open("ab") as file:
                yield file
        except OSError as problem:
            raise SettingError(
                f"--out {self._path}: {problem.strerror}; runs that it has are kept: make room, or name a file in a "
                "folder that can be written"
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
        self._lines[line["kind"], *(str(line[key]) for key in _KEYS[line["kind"]])] = line

    def _read(self) -> Iterator[Line]:
        if self._path.exists() and not self._path.is_file():  # a device or a pipe may have no end
            raise SettingError(f"--out {self._path} cannot be read: it is not a regular file; name another file")
        try:
            lines = self._path.read_bytes().splitlines(keepends=True)
        except FileNotFoundError:
            return
        except OSError as problem:
            raise SettingError(f"--out {self._path} cannot be read: {problem.strerror}; name another file") from None
        for number, text in enumerate(lines, 1):
            line = _parsed(text)
            if line is None or (number == 1) != (line["kind"] == "terms"):
                if number == len(lines) > 1:
                    self.cut_off = f"{self._path}, line {number}: cut off; it is dropped, and its run is repeated"
                    return
                raise SettingError(
                    f"{self._path}, line {number}: not a line of CheckMate results of format {FORMAT}; "
                    "name another file, or remove the line to repeat its run"
                )
            self._whole_bytes += len(text)
            yield line


def _parsed(text: bytes) -> Line | None:
    """The parsed line; None if it is incomplete or of an unknown kind."""
    try:
        line = json.loads(text)
    except ValueError:
        return None
    if not text.endswith(b"\n") or not isinstance(line, dict):
        return None
    kind = str(line.get("kind"))
    if kind == "terms":
        return line if line.get("format") == FORMAT and isinstance(line.get("terms"), dict) else None
    if kind not in _KEYS or not all(key in line for key in _KEYS[kind]):
        return None
    return line if "error" in line or _VALUES[kind] in line else None
