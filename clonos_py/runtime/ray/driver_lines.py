"""What a detached run reports: the lines that ``clonos logs`` shows, in the format of the run."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime

from clonos_py.model.reports import LogFormat
from clonos_py.observe.log_lines import json_line

_KEPT = 10_000


class DriverLines:
    """The last lines of one driver. ``format``: set when the settings of the run are known."""

    def __init__(self, job: str) -> None:
        self._job = job
        self._lines: deque[tuple[int, str]] = deque(maxlen=_KEPT)
        self._number = 0
        self.format = LogFormat.PLAIN

    def write(self, line: str) -> None:
        """Adds a line that has the format already."""
        if self.format is LogFormat.PLAIN:
            line = f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}"
        self._number += 1
        self._lines.append((self._number, line))

    def inform(self, text: str) -> None:
        self._report("info", text)

    def warn(self, text: str) -> None:
        self._report("warning", text)

    def fail(self, text: str) -> None:
        """The run has ended with an error."""
        self._report("error", text)

    def _report(self, level: str, text: str) -> None:
        if self.format is LogFormat.JSON:
            self.write(json_line(datetime.now(UTC), level, self._job, text))
        else:
            self.write(text if level == "info" else f"{level}: {text}")

    def after(self, number: int) -> Sequence[tuple[int, str]]:
        """The lines behind that number which are kept still, each with its number. May be called by any thread."""
        while True:
            with suppress(RuntimeError):  # a line was added meanwhile
                return [line for line in self._lines if line[0] > number]
