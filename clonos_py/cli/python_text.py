"""Values as Python source, laid out as ruff does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from clonos_py.model.errors import ServiceError, SettingError
from clonos_py.model.record import Record

WIDTH = 88
"""The width of a line, in characters, unless something longer cannot be broken."""


@dataclass(frozen=True)
class Brackets:
    """``opening`` items ``closing``. ``one_each``: if it is too long for a line, each item has its own."""

    opening: str
    items: Sequence[Source]
    closing: str
    one_each: bool = True
    prefix: str = ""

    def __str__(self) -> str:
        alone = "," if self.opening == "(" and len(self.items) == 1 and self.one_each else ""
        return f"{self.prefix}{self.opening}{', '.join(map(str, self.items))}{alone}{self.closing}"


@dataclass(frozen=True)
class Named:
    """``name`` and a value behind it, such as ``"a": 1`` or ``a=1``."""

    name: str
    value: Source

    def __str__(self) -> str:
        return f"{self.name}{self.value}"


Source = str | Brackets | Named


def call(name: str, arguments: Sequence[Source]) -> Brackets:
    return Brackets("(", arguments, ")", False, name)


def laid_out(source: Source, indent: int = 0, before: str = "", behind: str = "") -> list[str]:
    """The lines of ``before``, ``source`` and ``behind``, the first one indented by ``indent`` characters."""
    flat = f"{' ' * indent}{before}{source}{behind}"
    if isinstance(source, Named):
        return laid_out(source.value, indent, f"{before}{source.name}", behind)
    if len(flat) <= WIDTH or isinstance(source, str) or not source.items:
        return [flat]
    lines = [f"{' ' * indent}{before}{source.prefix}{source.opening}"]
    together = f"{' ' * (indent + 4)}{', '.join(map(str, source.items))}"
    if not source.one_each and len(together) <= WIDTH:
        lines.append(together)
    else:
        lines += [line for item in source.items for line in laid_out(item, indent + 4, "", ",")]
    return [*lines, f"{' ' * indent}{source.closing}{behind}"]


def quoted(text: str) -> str:
    """A string literal with double quotes, unless that needs more escapes."""
    found = repr(text)
    if found[0] == '"':
        return found
    inner = found[1:-1].replace("\\'", "'")
    if '"' not in inner:
        return f'"{inner}"'
    double = inner.replace('"', '\\"')
    return f'"{double}"' if double.count('\\"') <= inner.count("'") else found


class Literals:
    """Makes literals, and notes what has to be imported for them."""

    def __init__(self, class_name: Callable[[type[Record]], str]) -> None:
        self._class_name = class_name
        self.imports: dict[str, set[str]] = {}
        """By module: the names that are used."""

    def of(self, value: Any) -> Source:
        """Raises SettingError for a value that has no literal."""
        match value:
            case str():
                return quoted(value)
            case bytes():
                return f"b{quoted(repr(value)[2:-1])}" if b"'" not in value and b"\\" not in value else repr(value)
            case float() if not math.isfinite(value):
                return f'float("{value}")'
            case float():
                return repr(value).replace("e+", "e")
            case None | bool() | int():
                return repr(value)
            case Record():
                return self._record(value)
            case list():
                return Brackets("[", [self.of(item) for item in value], "]")
            case tuple():
                return Brackets("(", [self.of(item) for item in value], ")")
            case Mapping():
                return Brackets("{", [Named(f"{self.of(name)}: ", self.of(item)) for name, item in value.items()], "}")
            case ServiceError():
                self._imported("clonos_py", "ServiceError")
                return call("ServiceError", [quoted(str(value))])
            case _:
                return self._other(value)

    def _record(self, record: Record) -> Source:
        kind = type(record)
        values = [(name, self.of(getattr(record, name))) for name in kind.__struct_fields__]
        if len(values) <= 3:
            return call(self._class_name(kind), [value for _, value in values])
        return call(self._class_name(kind), [Named(f"{name}=", value) for name, value in values])

    def _other(self, value: Any) -> Source:
        match value:
            case Decimal():
                self._imported("decimal", "Decimal")
                return call("Decimal", [quoted(str(value))])
            case datetime() if value.utcoffset() == timedelta():
                self._imported("datetime", "datetime", "UTC")
                parts = [value.year, value.month, value.day, value.hour, value.minute, value.second, value.microsecond]
                while len(parts) > 3 and not parts[-1]:
                    parts.pop()
                return call("datetime", [*map(str, parts), "tzinfo=UTC"])
            case date() if not isinstance(value, datetime):
                self._imported("datetime", "date")
                return call("date", [str(value.year), str(value.month), str(value.day)])
            case timedelta():
                self._imported("datetime", "timedelta")
                named = {"days": value.days, "seconds": value.seconds, "microseconds": value.microseconds}
                return call("timedelta", [f"{name}={part}" for name, part in named.items() if part])
        raise SettingError(f"a test cannot hold {value!r:.80}: {type(value).__name__} has no literal in it")

    def _imported(self, module: str, *names: str) -> None:
        self.imports.setdefault(module, set()).update(names)
