"""What the state of an operator means, as text, so that a checkpoint can be compared with the job that resumes from it.

Types are texts, too: an Arrow type, followed by ``or null`` if a value may be missing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

OR_NULL = " or null"
WITH_DEFAULT = " with default"
"""Follows the type of a record's field that need not be in a checkpoint."""
ANY = "Any"
OR = " | "
"""Between the members of a union."""
EACH = "[*]"
"""Follows the name of an attribute with any number of elements: all of them have this type."""

_WIDTHS = (
    ("int8", "int16", "int32", "int64"),
    ("uint8", "uint16", "uint32", "uint64"),
    ("halffloat", "float", "double"),
    ("string", "large_string"),
    ("binary", "large_binary"),
)
"""Types by width: a value has the same hash in each type of a row."""
_ONE_OF = "one of "
_DECIMAL = re.compile(r"decimal(?:32|64|128|256)\((\d+), (-?\d+)\)")


class StateDefinition(msgspec.Struct, frozen=True):
    """The definition of an operator that keeps state."""

    facts: dict[str, str] = {}
    """What must be equal, such as keys, window and order."""
    limits: dict[str, int] = {}
    """What may become less, in microseconds: how long state is kept beyond the time for which results need it."""
    aggregates: dict[str, str] = {}
    """By result: its aggregate. One may be removed, and none may be added."""
    attributes: dict[str, str] = {}
    """By declared attribute of a process function, or by field or element in one: its type, which may take more values
    than before. Attributes may be added and removed."""
    tables: dict[str, dict[str, str]] = {}
    """By table: the type of each stored column of the user."""
    unread: dict[str, list[str]] = {}
    """By table: the columns of its rows that were not stored, since nothing read them."""
    keys: dict[str, dict[str, str]] = {}
    """By table: the columns of its keys, hidden ones included, and the type of each. They say which columns of stored
    rows are keys, and are not compared: facts are."""


def differences(old: StateDefinition, new: StateDefinition, stored: Mapping[str, int]) -> Iterator[str]:
    """Each difference between the definition of stored state and another one under which the state would be wrong or
    incomplete. ``stored``: the number of rows in each table."""
    for name in dict.fromkeys([*old.facts, *new.facts]):
        was, is_ = old.facts.get(name, "none"), new.facts.get(name, "none")
        if was != is_:
            yield f"{name}: {was}, now {is_}"
    for name in dict.fromkeys([*old.limits, *new.limits]):
        if new.limits.get(name, 0) > old.limits.get(name, 0):
            yield f"{name}: {seconds_text(old.limits.get(name, 0))}, now {seconds_text(new.limits[name])}"
    for name, aggregate in new.aggregates.items():
        if name not in old.aggregates:
            yield f"aggregate {name}: none, now {aggregate}"
        elif old.aggregates[name] != aggregate:
            yield f"aggregate {name}: {old.aggregates[name]}, now {aggregate}"
    yield from _attributes(old.attributes, new.attributes)
    for table, columns in new.tables.items():
        if stored.get(table) and table in old.tables:
            yield from _columns(old.tables[table], columns, old.unread.get(table, ()))


def seconds_text(duration_us: int) -> str:
    """A duration as in definitions, exact: ``1500000`` as ``1.5s``."""
    return f"{duration_us / 1_000_000:.6f}".rstrip("0").rstrip(".") + "s"


def takes(old: str, new: str) -> bool:
    """Whether every value of the type ``old`` is one of the type ``new``, with the same hash."""
    old_values, new_values = old.removesuffix(OR_NULL), new.removesuffix(OR_NULL)
    if old_values != old and new_values == new:
        return False
    if old_values == new_values:
        return True
    was, is_ = _DECIMAL.fullmatch(old_values), _DECIMAL.fullmatch(new_values)
    if was and is_:
        return was[2] == is_[2] and int(was[1]) <= int(is_[1])
    return any(old_values in widths and new_values in widths[widths.index(old_values) :] for widths in _WIDTHS)


def _columns(old: Mapping[str, str], new: Mapping[str, str], unread: Collection[str]) -> Iterator[str]:
    for name, type_ in new.items():
        if name not in old:
            if not type_.endswith(OR_NULL) or name in unread:
                yield f"column {name}: not stored, now {type_}"
        elif not takes(old[name], type_):
            yield f"column {name}: {old[name]}, now {type_}"


def one_of(values: Sequence[object]) -> str:
    """The type that has these values only."""
    return _ONE_OF + ", ".join(repr(value).replace("|", r"\x7c").replace(",", r"\x2c") for value in values)


def _attributes(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    for name, type_ in new.items():
        if name in old:
            if not _decodes(old[name], type_):
                yield f"attribute {name}: {old[name]}, now {type_}"
            continue
        record, _, field = name.rpartition(".")
        if record in old and record in new and "[" not in field and not type_.endswith((OR_NULL, WITH_DEFAULT)):
            yield f"attribute {name}: not stored, now {type_}"
        elif name.endswith(EACH):
            yield from _elements(name.removesuffix(EACH), old, type_)


def _elements(name: str, old: Mapping[str, str], type_: str) -> Iterator[str]:
    """The differences of a tuple that had a fixed length and has any length now: all elements have one type."""
    number = 0
    while (was := old.get(f"{name}[{number}]")) is not None:
        if not _decodes(was, type_):
            yield f"attribute {name}[{number}]: {was}, now {type_}"
        number += 1


def _decodes(old: str, new: str) -> bool:
    """Whether every stored value of one Python type is read as another."""
    was, is_ = old.removesuffix(WITH_DEFAULT), new.removesuffix(WITH_DEFAULT)
    old_values, new_values = was.removesuffix(OR_NULL), is_.removesuffix(OR_NULL)
    taken = _members(new_values)
    if ANY in taken or ANY in _members(old_values):
        return True
    if old_values != was and new_values == is_:
        return False
    return all(_is_taken(member, taken) for member in _members(old_values))


def _members(text: str) -> set[str]:
    """The members of a union; single values, as ``'a'``, where a type lists them."""
    found = set()
    for member in filter(None, text.split(OR)):
        found |= set(member.removeprefix(_ONE_OF).split(", ")) if member.startswith(_ONE_OF) else {member}
    return found


def _is_taken(member: str, by: Collection[str]) -> bool:
    if member in by:
        return True
    if member[0] in "'\"":
        return "str" in by
    if member.lstrip("-").isdecimal():
        return "int" in by or "float" in by
    if member.startswith("tuple of "):
        return "tuple" in by
    return member == "int" and "float" in by
