"""Literals of values evaluate to them, and are laid out as ruff does."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from clonos_py import Record, ServiceError
from clonos_py.cli.python_text import Literals, laid_out
from clonos_py.model.errors import SettingError


class Small(Record):
    a: Any
    b: Any = None


class Large(Record):
    first_column: Any
    second_column: Any
    third_column: Any
    fourth_column: Any


VALUES: list[Any] = [
    None, True, 7, -7, 7.5, 1e300, float("inf"), 1e-9, "plain", 'say "hi"', "it's", "both \" and '", "two '' and \"",
    "tab\t\\n", "ä €", b"abc", b'"', b"'\\\x00", Decimal("1.50"), date(2020, 1, 2), datetime(2020, 1, 2, tzinfo=UTC),
    datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC), timedelta(days=-1, microseconds=5), timedelta(0), [], [1, [2]], (1,),
    {"a": [1], 2: None}, Small(1, [Small(2)]), Large(1, "x", [1.5] * 12, {"k": "v" * 30, "l": "w" * 40}),
    [Large("x" * 30, "y" * 30, 1, 2), Small("z" * 90, 1)], [Small("x" * 25, "y" * 25)] * 4,
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda value: repr(value)[:30])
def test_the_literal_of_a_value_is_the_value(value: Any) -> None:
    names = {"datetime": datetime, "date": date, "timedelta": timedelta, "Decimal": Decimal, "UTC": UTC}
    text = "\n".join(laid_out(Literals(lambda kind: kind.__name__).of(value)))
    found = eval(text, {**names, "Small": Small, "Large": Large})
    assert (found, type(found)) == (value, type(value))


def test_ruff_would_lay_them_out_the_same(tmp_path: Path) -> None:
    literals = Literals(lambda kind: kind.__name__)
    lines = [line for n, value in enumerate(VALUES) for line in laid_out(literals.of(value), 0, f"value_{n} = ")]
    path = tmp_path / "values.py"
    path.write_text("\n".join([*lines, ""]))
    ruff = [str(Path(sys.executable).with_name("ruff")), "format", "--isolated", "--diff", str(path)]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_imports_are_noted() -> None:
    literals = Literals(lambda kind: kind.__name__)
    for value in (Decimal(1), datetime(2020, 1, 2, tzinfo=UTC), ServiceError("none")):
        literals.of(value)
    assert literals.imports == {
        "decimal": {"Decimal"}, "datetime": {"datetime", "UTC"}, "clonos_py": {"ServiceError"}
    }  # fmt: skip


def test_a_value_without_a_literal_is_refused() -> None:
    with pytest.raises(SettingError, match="a test cannot hold <object object"):
        Literals(lambda kind: kind.__name__).of(object())
