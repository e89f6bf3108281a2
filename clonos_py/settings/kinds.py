"""Kinds of settings: how a value is parsed from text, and how it is printed.

A kind parses values from a command line, an environment variable, a TOML file or ``Job(...)``, so numbers may come as
text. It raises a SettingError that says what would be valid; ``settings.resolution`` adds the name of the setting.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Generic, Protocol, TypeVar

from clonos_py.model.errors import SettingError
from clonos_py.model.record_limits import NO_RECORD, RecordLimit
from clonos_py.model.sizes import UNITS, bytes_in
from clonos_py.model.times import micros

T = TypeVar("T")
E = TypeVar("E", bound=Enum)

FULL_DEPTH = -1
"""The sharing depth that covers the whole graph."""

AUTO = -1
"""A duration that the job finds itself."""

_WORD = re.compile(r"[A-Za-z][\w.-]{0,99}", re.ASCII)
_PORT_MAX = 65_535
_KILL = re.compile(r"\s*(.+)\[(\d+)\]@(\S+)\s*")
_DURATION_UNITS_US = (("h", 3_600_000_000), ("min", 60_000_000), ("s", 1_000_000), ("ms", 1_000), ("us", 1))


@dataclass(frozen=True)
class SettingKind(Generic[T]):
    """How values of one kind are parsed (``parse``), printed (``show``) and named in usage texts (``metavar``)."""

    metavar: str
    parse: Callable[[object], T]
    show: Callable[[T], str] = str
    repeatable: bool = False
    flag: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Kill:
    """A planned failure: instance ``index`` of ``operator`` is killed ``at_us`` after the job starts."""

    operator: str
    index: int
    at_us: int

    def __str__(self) -> str:
        return f"{self.operator}[{self.index}]@{show_duration(self.at_us)}"


@dataclass(frozen=True)
class Rename:
    """Renames an operator: the state of ``old`` is restored as that of ``new``."""

    old: str
    new: str

    def __str__(self) -> str:
        return f"{self.old}={self.new}"


@dataclass(frozen=True)
class ListenAddress:
    """Where a run's web server listens. ``host``: a name or an address, without brackets."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def count(least: int = 0) -> SettingKind[int]:
    """Whole numbers of at least ``least``."""

    def parse(value: object) -> int:
        number = _whole(value)
        if number is None or number < least:
            raise SettingError(f"{value!r} is not a whole number of at least {least}")
        return number

    return SettingKind("N", parse)


def choice(options: type[E]) -> SettingKind[E]:
    """One of the values of an Enum."""
    names = tuple(str(option.value) for option in options)

    def parse(value: object) -> E:
        name = value.value if isinstance(value, options) else value
        if name not in names:
            raise SettingError(f"{name!r} is not one of {', '.join(names)}")
        return options(name)

    return SettingKind("|".join(names), parse, lambda option: str(option.value), choices=names)


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


N = TypeVar("N", bound=_HasName)


def named(values: Sequence[N]) -> SettingKind[N]:
    """One of a list of values, by its name."""
    by_name = {value.name: value for value in values}

    def parse(value: object) -> N:
        if not isinstance(value, str) or value not in by_name:
            raise SettingError(f"{value!r} is not one of {', '.join(by_name)}")
        return by_name[value]

    return SettingKind("|".join(by_name), parse, lambda value: value.name, choices=tuple(by_name))


def _parse_switch(value: object) -> bool:
    if value not in ("on", "off") and not isinstance(value, bool):
        raise SettingError(f"{value!r} is neither on nor off")
    return value in (True, "on")


def _parse_duration(value: object) -> int:
    if not isinstance(value, str | timedelta):
        raise SettingError(f"{value!r} is not a duration: write it with its unit, such as '10s'")
    duration_us = micros(value)
    if duration_us <= 0:
        raise SettingError(f"{value!r} must be more than 0")
    return duration_us


def show_duration(duration_us: int) -> str:
    """The shortest exact spelling: ``5000000`` is ``5s``."""
    unit, size_us = next((u, s) for u, s in _DURATION_UNITS_US if duration_us % s == 0)
    return "0s" if duration_us == 0 else f"{duration_us // size_us}{unit}"


def _parse_duration_or_off(value: object) -> int:
    if value == "off" or value is False:
        return 0
    try:
        return _parse_duration(value)
    except SettingError as problem:
        raise SettingError(f"{problem}, or turn it off with 'off'") from None


def _show_duration_or_off(duration_us: int) -> str:
    return show_duration(duration_us) if duration_us else "off"


def _parse_duration_or_auto(value: object) -> int:
    if value == "auto":
        return AUTO
    try:
        return _parse_duration(value)
    except SettingError as problem:
        raise SettingError(f"{problem}, or 'auto'") from None


def _show_duration_or_auto(duration_us: int) -> str:
    return "auto" if duration_us == AUTO else show_duration(duration_us)


def _parse_size(value: object) -> int:
    size_bytes = bytes_in(value)
    if size_bytes is None:
        raise SettingError(f"{value!r} is not a size: write a number and one of {', '.join(UNITS)}, such as '1GiB'")
    return size_bytes


def show_size(size_bytes: int) -> str:
    """The shortest exact spelling: ``1073741824`` is ``1GiB``."""
    unit = max((u for u in UNITS if size_bytes % UNITS[u] == 0), key=lambda u: UNITS[u]) if size_bytes else "B"
    return f"{size_bytes // UNITS[unit]}{unit}"


def _parse_share(value: object) -> float:
    share = -1.0
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        with suppress(ValueError):
            share = float(value)
    if not 0 <= share <= 1:
        raise SettingError(f"{value!r} is not a share: write a number from 0 to 1")
    return share


def _parse_record(value: object) -> RecordLimit:
    if value == "off" or value is False:
        return NO_RECORD
    if isinstance(value, RecordLimit):
        return value
    try:
        if (size_bytes := bytes_in(value)) is not None:
            if not size_bytes:
                raise SettingError(f"{value!r} must be more than 0")
            return RecordLimit(size_bytes=size_bytes)
        return RecordLimit(_parse_duration(value))
    except SettingError as problem:
        raise SettingError(f"{problem}, or a size such as '2GB', or turn it off with 'off'") from None


def _show_record(limit: RecordLimit) -> str:
    return show_size(limit.size_bytes) if limit.size_bytes else _show_duration_or_off(limit.time_us)


def _parse_depth(value: object) -> int:
    number = FULL_DEPTH if value == "full" else _whole(value)
    if number is None or number < FULL_DEPTH:
        raise SettingError(f"{value!r} is neither 'full' nor a number of hops such as 0 or 1")
    return number


def _parse_flag(value: object) -> bool:
    words = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}
    found = value if isinstance(value, bool) else words.get(str(value).lower())
    if found is None:
        raise SettingError(f"{value!r} is neither true nor false")
    return found


def _parse_text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise SettingError(f"{value!r} is not text")
    if value is not None and (not value.strip() or "\0" in value):
        raise SettingError(f"{value!r} is empty or has a NUL: give a value, or leave the setting out")
    return value


def _parse_word(value: object) -> str:
    if not isinstance(value, str) or not _WORD.fullmatch(value):
        raise SettingError(f"{value!r} is not a name: use letters, digits, '_', '-' and '.', a letter first, up to 100")
    return value


def _parse_path(value: object) -> str | None:
    return _parse_text(os.fspath(value) if isinstance(value, os.PathLike) else value)


def several(metavar: str, example: str, parse: Callable[[object], T]) -> SettingKind[tuple[T, ...]]:
    """A list of values; in an environment variable they are separated by commas."""

    def parse_all(value: object) -> tuple[T, ...]:
        values = value.split(",") if isinstance(value, str) else value
        if not isinstance(values, list | tuple):
            raise SettingError(f"{value!r} is not a list such as [{example!r}]")
        return tuple(parse(each) for each in values)

    return SettingKind(metavar, parse_all, lambda found: ", ".join(map(str, found)) or "none", repeatable=True)


def _parse_name(value: object) -> str:
    if not isinstance(value, str) or not value.strip():
        raise SettingError(f"{value!r} is not an operator name")
    return value.strip()


def _parse_rename(value: object) -> Rename:
    if isinstance(value, Rename):
        return value
    old, equals, new = value.partition("=") if isinstance(value, str) else ("", "", "")
    if not (old.strip() and equals and new.strip()):
        raise SettingError(f"{value!r} is not a rename: write OLD=NEW")
    return Rename(old.strip(), new.strip())


def _parse_kill(value: object) -> Kill:
    if isinstance(value, Kill):
        return value
    match = _KILL.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise SettingError(f"{value!r} is not a kill: write OPERATOR[INDEX]@TIME, such as 'join[0]@3s'")
    return Kill(match[1], int(match[2]), _parse_duration(match[3]))


def _parse_web(value: object) -> ListenAddress | None:
    if value is None or isinstance(value, ListenAddress):
        return value
    host, _, port = value.strip().rpartition(":") if isinstance(value, str) else ("", "", "")
    number = _whole(port)
    if number is None or not 1 <= number <= _PORT_MAX or (":" in host) != (host[:1] == "["):
        raise SettingError(f"{value!r} is not an address: write HOST:PORT, such as 'localhost:8080' or '[::1]:8080'")
    return ListenAddress(host.strip("[]") or "localhost", number)


def _whole(value: object) -> int | None:
    """The integer that ``value`` is or spells; None if there is none."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    return int(value) if isinstance(value, str) and re.fullmatch(r"-?\d+", value.strip()) else None


def _show_optional(text: Any) -> str:
    return "none" if text is None else str(text)


DURATION: SettingKind[int] = SettingKind("DURATION", _parse_duration, show_duration)
DURATION_OR_OFF: SettingKind[int] = SettingKind("DURATION|off", _parse_duration_or_off, _show_duration_or_off)
DURATION_OR_AUTO: SettingKind[int] = SettingKind("DURATION|auto", _parse_duration_or_auto, _show_duration_or_auto)
SHARE: SettingKind[float] = SettingKind("SHARE", _parse_share, lambda share: f"{share:g}")
SIZE: SettingKind[int] = SettingKind("SIZE", _parse_size, show_size)
RECORD: SettingKind[RecordLimit] = SettingKind("DURATION|SIZE|off", _parse_record, _show_record)
DEPTH: SettingKind[int] = SettingKind(
    "full|HOPS", _parse_depth, lambda depth: "full" if depth == FULL_DEPTH else str(depth)
)
FLAG: SettingKind[bool] = SettingKind("", _parse_flag, lambda flag: str(flag).lower(), flag=True)
SWITCH: SettingKind[bool] = SettingKind(
    "on|off", _parse_switch, lambda switch: "on" if switch else "off", choices=("on", "off")
)
WORD: SettingKind[str] = SettingKind("NAME", _parse_word)
TEXT: SettingKind[str | None] = SettingKind("TEXT", _parse_text, _show_optional)
FOLDER: SettingKind[str | None] = SettingKind("FOLDER", _parse_path, _show_optional)
FILE: SettingKind[str | None] = SettingKind("FILE", _parse_path, _show_optional)
KILLS: SettingKind[tuple[Kill, ...]] = several("OPERATOR[I]@TIME", "join[0]@3s", _parse_kill)
WEB: SettingKind[ListenAddress | None] = SettingKind("HOST:PORT", _parse_web, _show_optional)
NAMES: SettingKind[tuple[str, ...]] = several("OPERATOR", "join", _parse_name)
RENAMES: SettingKind[tuple[Rename, ...]] = several("OLD=NEW", "total=sums", _parse_rename)
