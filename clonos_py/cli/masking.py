"""Made-up values in place of personal ones: of the same type and length, the same for the same value."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Collection, Iterable, Mapping
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from clonos_py.model.errors import ServiceError, SettingError
from clonos_py.model.record import Record

_TRIES = 1_000


class Mask:
    """The values of some columns, each with its replacement. Different values have different replacements, and none is
    one of the values."""

    def __init__(self, columns: Collection[str], rows: Iterable[Record]) -> None:
        """Raises SettingError for a column whose values cannot be replaced."""
        self._columns = frozenset(columns)
        values: dict[tuple[type[Any], Any], str] = {}
        for row in rows:
            for column in row.__struct_fields__:
                if column in self._columns and (value := getattr(row, column)) not in (None, "", b""):
                    if not isinstance(value, str | bytes | int | float | Decimal | date) or isinstance(value, bool):
                        raise SettingError(f"column {column!r} cannot be masked: it has values such as {value!r:.60}")
                    values[type(value), value] = column
        draw = random.Random(len(values))
        self._made: dict[tuple[type[Any], Any], Any] = {}
        taken = {value for _, value in values}
        for (kind, value), column in values.items():
            self._made[kind, value] = made = _other(value, column, draw, taken)
            taken.add(made)
        self._texts = {value: made for (_, value), made in self._made.items() if isinstance(value, str)}
        parts = [_alone(text) for text in sorted(self._texts, key=len, reverse=True)]
        self._text = re.compile("|".join(parts)) if parts else None
        self._numbers = {str(v): str(m) for (_, v), m in self._made.items() if isinstance(v, int | float | Decimal)}
        numbers = sorted(map(re.escape, self._numbers), key=len, reverse=True)
        self._number = re.compile(rf"(?<![\w.])(?:{'|'.join(numbers)})(?![\w.])")

    def row(self, row: Any) -> Any:
        """A row with made-up values: in the columns, and texts anywhere."""
        made = {name: self._field(name, getattr(row, name)) for name in row.__struct_fields__}
        return msgspec.structs.replace(row, **made)

    def _field(self, name: str, value: Any) -> Any:
        return self._other(value) if name in self._columns else self.text(value)

    def _other(self, value: Any) -> Any:
        """The replacement of a value, or the value if it has none."""
        return self._made.get((type(value), value), value) if not isinstance(value, list | dict) else value

    def text(self, value: Any) -> Any:
        """A value with made-up texts in it."""
        match value:
            case str():
                return value if self._text is None else self._text.sub(lambda found: self._texts[found[0]], value)
            case list() | tuple():
                return [self.text(item) for item in value]
            case Record():
                return self.row(value)
            case Mapping():
                return {self.text(name): self.text(item) for name, item in value.items()}
        return self._other(value) if isinstance(value, bytes | date) else value

    def answer(self, value: Any) -> Any:
        """An answer with made-up values in it, numbers in texts, too."""
        match value:
            case str():
                found: str = self.text(value)
                return self._number.sub(lambda n: self._numbers[n[0]], found) if self._numbers else found
            case bytes():
                try:
                    return self.answer(value.decode()).encode()
                except UnicodeDecodeError:
                    return self._other(value)
            case bool() | None:
                return value
            case int() | float():
                return self._other(value)
            case list():
                return [self.answer(item) for item in value]
            case dict():
                return {n: item if n == "status" else self.answer(item) for n, item in value.items()}
            case ServiceError():
                return ServiceError(self.answer(str(value)))
        return value

    def fits(self, before: Any, after: Any) -> bool:
        """Whether ``after`` is a row ``before`` with replaced values."""
        fields = before.__struct_fields__
        return all(
            repr(getattr(after, name)) in {repr(v) for v in self._allowed(name, getattr(before, name))}
            for name in fields
        )

    def _allowed(self, name: str, value: Any) -> list[Any]:
        if name in self._columns:
            return [self._other(value)]
        return [self.text(value), self._other(value)]

    def leaks(self, text: str) -> Any:
        """A masked text that is in a text; None if there is none."""
        return next((value for value in self._texts if len(value) > 2 and re.search(_alone(value), text)), None)


def _alone(text: str) -> str:
    """A pattern for a text that is no part of a longer word."""
    before = r"(?<!\w)" if re.match(r"\w", text) else ""
    behind = r"(?!\w)" if re.search(r"\w$", text) else ""
    return f"{before}{re.escape(text)}{behind}"


def _other(value: Any, column: str, draw: random.Random, taken: Collection[Any]) -> Any:
    for _ in range(_TRIES):
        made = _made(value, draw)
        if made not in taken:
            return made
    raise SettingError(f"column {column!r} cannot be masked: there are too few values such as {value!r:.60}")


def _made(value: Any, draw: random.Random) -> Any:
    match value:
        case str():
            return "".join(_character(c, draw) for c in value)
        case bytes():
            return draw.randbytes(len(value))
        case int():
            return int(_number(str(value), draw))
        case float():
            return float(_number(repr(value), draw))
        case Decimal():
            return Decimal(_number(str(value), draw))
        case datetime() | date():
            return value - timedelta(days=draw.randrange(1, 10_000))
    raise AssertionError(value)


def _number(text: str, draw: random.Random) -> str:
    """The same signs and points with other digits, the first of which is no 0."""
    first = True
    made = []
    for c in text:
        digit = c.isdigit()
        made.append(draw.choice(string.digits[1:] if first else string.digits) if digit else c)
        first = first and not digit
    return "".join(made)


def _character(c: str, draw: random.Random) -> str:
    if c.isdigit():
        return draw.choice(string.digits)
    if c.isupper():
        return draw.choice(string.ascii_uppercase)
    return draw.choice(string.ascii_lowercase) if c.isalpha() else c
