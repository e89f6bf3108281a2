"""Plain data: values that a causal log can store and return unchanged."""

from __future__ import annotations

from typing import Any

from clonos_py.model.errors import ServiceError

_EXACT = (type(None), bool, float, bytes)


def plain(value: Any, origin: str) -> Any:
    """A copy of ``value`` that is unchanged after encoding and decoding by the log. Tuples become lists.

    Raises ServiceError naming ``origin`` and the part that is not None, bool, int of 64 bits, float, str, bytes, list
    or dict with str or int keys.
    """
    kind = type(value)
    if kind in _EXACT:
        return value
    if kind is int and -(2**63) <= value < 2**64:
        return value
    if kind is str and _encodable(value):
        return value
    if kind in (list, tuple):
        return [plain(item, origin) for item in value]
    if kind is dict and all(type(key) in (str, int) for key in value):
        return {plain(key, origin): plain(item, origin) for key, item in value.items()}
    raise ServiceError(
        f"{origin} answered {value!r:.200} ({kind.__name__}), which cannot be logged; "
        "answer with None, bool, int, float, str, bytes, list or dict"
    )


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
