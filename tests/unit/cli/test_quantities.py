"""Durations, rates, factors and bytes per second on the command line."""

from __future__ import annotations

from typing import Any

import click
import pytest

from clonos_py.cli.quantities import BytesPerSecond, DurationParam, Factor, FailureRate

DAY = 86_400


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (FailureRate(), "0.01/min", 0.01 / 60),
        (FailureRate(), "11/h", 11 / 3600),
        (FailureRate(), "1/19d", 1 / (19 * DAY)),
        (FailureRate(), " .5 / 2.5 min ", 0.5 / 150),
        (FailureRate(), "1e-3/s", 1e-3),
        (FailureRate(), "2E-3/ms", 2.0),
        (DurationParam(), "1.07s", 1_070_000),
        (DurationParam(), "14 ms", 14_000),
        (Factor(), "3", 3.0),
        (Factor(), "2.5x", 2.5),
        (BytesPerSecond(), "20MB/s", 20e6),
        (BytesPerSecond(), "1.5 MiB / s", 1.5 * 2**20),
    ],
)
def test_a_quantity_is_read_with_its_unit(kind: click.ParamType[Any], text: str, value: float) -> None:
    found = kind.convert(text, None, None)
    assert found == pytest.approx(value, rel=1e-12)
    assert kind.convert(found, None, None) == found


@pytest.mark.parametrize(
    ("kind", "texts", "said"),
    [
        (
            FailureRate(),
            ["", "0.01", "0.01 min", "min/1", "0.01/fortnight", "nan/min", "inf/min", "1//min", "1/-2s"],
            "0.01/min",
        ),
        (FailureRate(), ["0/min", "-1/min", "1/0s", "1e999/min", "1e-999/min"], "more than 0 and finite"),
        (DurationParam(), ["3", "3.5", "inf", "inf s", "1e3s", "nans"], "write"),
        (DurationParam(), ["0s", "-1s", "0.0000001s"], "must be more than 0"),
        (Factor(), ["0", "-3", "inf", "nan", "1e999", "fast", "", "3/s"], "a finite number of more than 0"),
        (BytesPerSecond(), ["20", "20MB", "20MB/min", "0MB/s", "-1MB/s", "20/s", "MB/s"], "20MB/s"),
    ],
)
def test_anything_else_is_refused_with_an_example(kind: click.ParamType[Any], texts: list[str], said: str) -> None:
    for text in texts:
        with pytest.raises(click.BadParameter, match=said) as found:
            kind.convert(text, None, None)
        assert repr(text) in str(found.value)
