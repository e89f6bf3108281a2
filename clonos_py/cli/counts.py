"""Parameter types of the command line: numbers of events, and lists."""

from __future__ import annotations

import re
from typing import Any

import click

_UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)([kMG]?)")


class Count(click.ParamType[int]):
    """A number of events, such as 5M or 500k."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        match = _NUMBER.fullmatch(value)
        count = round(float(match[1]) * _UNITS[match[2]]) if match else 0
        if count < 1:
            self.fail(f"{value!r} is not a number of events: write it as 500000, 500k or 5M", param, ctx)
        return count


class Words(click.ParamType[list[str]]):
    """A comma-separated list of distinct values."""

    name = "A,B,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        if isinstance(value, list):
            return value
        found = [word.strip() for word in value.split(",")]
        if not all(found) or len(set(found)) < len(found):
            self.fail(f"{value!r} is not a list: write different values with commas between them", param, ctx)
        return found


def words(option: str, name: str, default: str, help: str) -> click.Option:
    """An option whose value is a list."""
    return click.Option([option, name], type=Words(), default=default, show_default=True, help=help)
