"""A matrix of runs: queries x parallelism x sharing depth x guarantee. Each cell is a run with its own report.

A folder holds ``matrix.json`` (the parameters that all cells share) and one JSON file per cell that was run. Starting
the same matrix again runs the cells that are missing or have failed. More queries or values may be added.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from clonos_py.model.errors import SettingError

_COMMON = "matrix.json"
HEADINGS = (
    "query", "parallelism", "depth", "guarantee", "events/s", "p50 ms", "p99 ms", "checkpoint ms", "overhead",
    "restart ms", "recovery ms", "ended",
)  # fmt: skip


@dataclass(frozen=True)
class MatrixCell:
    """One combination, in the syntax of the settings."""

    query: str
    parallelism: str
    sharing_depth: str
    guarantee: str

    @property
    def name(self) -> str:
        return f"{self.query}-parallelism-{self.parallelism}-depth-{self.sharing_depth}-{self.guarantee}"

    @property
    def settings(self) -> dict[str, str]:
        return {key: value for key, value in asdict(self).items() if key != "query"}


def cells(
    queries: Sequence[str], parallelisms: Sequence[str], depths: Sequence[str], guarantees: Sequence[str]
) -> list[MatrixCell]:
    """All combinations, grouped by query."""
    return [MatrixCell(*values) for values in itertools.product(queries, parallelisms, depths, guarantees)]


class MatrixResults:
    """The results folder of a matrix."""

    def __init__(self, folder: Path, common: Mapping[str, Any]) -> None:
        """Raises SettingError if the folder cannot be created, or holds a matrix with other parameters."""
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            before = self._read(_COMMON)
            if before is None:
                self._write(_COMMON, common)
        except OSError as problem:
            raise SettingError(f"--out {folder}: {problem.strerror}; name a folder that can be written") from None
        if before is not None and before != common:
            differing = [key for key in sorted({*before, *common}) if before.get(key) != common.get(key)]
            differences = ", ".join(f"{key} ({before.get(key)}, now {common.get(key)})" for key in differing)
            raise SettingError(
                f"--out {folder} holds a matrix with other parameters: {differences}; name another folder"
            )

    def done(self, cell: MatrixCell) -> bool:
        """Whether the cell was run successfully. A failed cell is run again."""
        found = self.of(cell)
        return found is not None and "error" not in found

    def of(self, cell: MatrixCell) -> dict[str, Any] | None:
        return self._read(f"{cell.name}.json")

    def keep(self, cell: MatrixCell, result: Mapping[str, Any]) -> None:
        self._write(f"{cell.name}.json", {**asdict(cell), **result})

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = json.loads((self._folder / name).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except ValueError:
            raise SettingError(f"{self._folder / name} is damaged: remove it to repeat its run") from None
        return found

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes a file atomically: an interrupted run leaves no incomplete file."""
        written = self._folder / f".{name}"
        written.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        os.replace(written, self._folder / name)

    def summary(self, wanted: Sequence[MatrixCell]) -> list[tuple[str, ...]]:
        """A row per cell that was run, under ``HEADINGS``; also written as ``summary.md``."""
        rows = [row(cell, found) for cell in wanted if (found := self.of(cell)) is not None]
        lines = [HEADINGS, ("---",) * len(HEADINGS), *rows]
        text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
        (self._folder / "summary.md").write_text(text, encoding="utf-8")
        return rows


def row(cell: MatrixCell, found: Mapping[str, Any]) -> tuple[str, ...]:
    """The summary row of a cell."""
    dimensions = (cell.query, cell.parallelism, cell.sharing_depth, cell.guarantee)
    if "error" in found:
        return *dimensions, *[""] * (len(HEADINGS) - len(dimensions) - 1), str(found["error"])
    report, sent = found["report"], found["report"]["bytes"]
    failures = report["failures"]
    return (
        *dimensions,
        f"{found['events_per_s']:,.0f}",
        _ms(report["latency_steady_ms"]["p50"]),
        _ms(report["latency_steady_ms"]["p99"]),
        _ms(report["checkpoints"]["median_ms"]),
        f"{sent['determinants'] / sent['data']:.2%}" if sent["data"] else "",
        _ms(max(_restarts(failures), default=None)),
        _ms(max((f["latency_normal_ms"] for f in failures if f["latency_normal_ms"] is not None), default=None)),
        "done" if not report["rollbacks"] else f"{report['rollbacks']} rollbacks",
    )


def _restarts(failures: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    for failure in failures:
        if failure["standby_activated_ms"] is not None and failure["detected_ms"] is not None:
            yield failure["standby_activated_ms"] - failure["detected_ms"]


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:,.1f}"
