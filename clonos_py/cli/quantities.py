"""Parameter types of the command line: durations, rates of failures, factors and bytes per second."""

from __future__ import annotations

import math
import re

import click

from clonos_py.model.errors import SettingError
from clonos_py.model.times import micros
from clonos_py.settings.kinds import DURATION, SIZE

_NUMBER = r"-?(?:\d+(?:\.\d+)?|\.\d+)(?:e-?\d+)?"
_RATE = re.compile(rf"\s*({_NUMBER})\s*/\s*(\S.*)", re.IGNORECASE)
_FACTOR = re.compile(rf"\s*({_NUMBER})\s*x?\s*", re.IGNORECASE)


class DurationParam(click.ParamType[int]):
    """A duration of more than 0, in microseconds."""

    name = DURATION.metavar

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return DURATION.parse(value)
        except SettingError as error:
            self.fail(str(error), param, ctx)


class FailureRate(click.ParamType[float]):
    """How often tasks or machines fail, such as 0.01/min, or 1/19d for once in 19 days. Returns failures per second."""

    name = "N/TIME"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = _RATE.fullmatch(str(value))
        time_us = _time_us(match[2]) if match else None
        if match is None or time_us is None:
            self.fail(f"{value!r} is not a rate: write a number per time, such as 0.01/min or 1/19d", param, ctx)
        found = float(match[1]) * 1e6 / time_us if time_us > 0 else math.nan
        if not 0 < found < math.inf:
            self.fail(f"{value!r} must be more than 0 and finite, such as 0.01/min or 1/19d", param, ctx)
        return found


class Factor(click.ParamType[float]):
    """A multiple, such as 3 or 2.5x."""

    name = "N"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        match = _FACTOR.fullmatch(str(value))
        if match is None or not 0 < float(match[1]) < math.inf:
            self.fail(f"{value!r} is not a finite number of more than 0, such as 3 or 2.5", param, ctx)
        return float(match[1])


class BytesPerSecond(click.ParamType[float]):
    """A rate of data, such as 20MB/s."""

    name = "SIZE/s"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, float):
            return value
        size, slash, unit = str(value).partition("/")
        try:
            found = SIZE.parse(size) if slash and unit.strip() == "s" else 0
        except SettingError:
            found = 0
        if not found:
            self.fail(f"{value!r} is not bytes per second of more than 0: write them as 20MB/s", param, ctx)
        return float(found)


def _time_us(text: str) -> int | None:
    """The microseconds of ``5min`` or ``min``; None for anything else."""
    try:
        return micros(text if text[0].isdigit() else f"1{text.strip()}")
    except SettingError:
        return None
