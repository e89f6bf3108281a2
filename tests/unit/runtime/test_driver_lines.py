"""The lines of a detached run, in both formats."""

from __future__ import annotations

import json

from clonos_py.model.reports import LogFormat
from clonos_py.runtime.ray.driver_lines import DriverLines


def said(lines: DriverLines) -> list[str]:
    lines.inform("it runs")
    lines.warn("storage does not answer")
    lines.fail("a task failed")
    return [line for _, line in lines.after(0)]


def test_plain_lines_begin_with_the_time_of_day() -> None:
    found = said(DriverLines("hot"))
    assert [line[20:] for line in found] == ["it runs", "warning: storage does not answer", "error: a task failed"]


def test_every_line_of_a_run_with_json_is_json() -> None:
    lines = DriverLines("hot")
    lines.format = LogFormat.JSON
    found = [json.loads(line) for line in said(lines)]
    assert [(line["level"], line["job"], line["message"]) for line in found] == [
        ("info", "hot", "it runs"), ("warning", "hot", "storage does not answer"), ("error", "hot", "a task failed")
    ]  # fmt: skip
    assert [number for number, _ in lines.after(1)] == [2, 3]
