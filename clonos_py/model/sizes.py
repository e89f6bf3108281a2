"""Sizes in bytes as users write them, such as ``128MB``."""

from __future__ import annotations

import re

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*")


def bytes_in(text: object) -> int | None:
    """The size that a text names, in bytes; None if it names none."""
    match = _SIZE.fullmatch(text) if isinstance(text, str) else None
    return None if match is None or match[2] not in UNITS else round(float(match[1]) * UNITS[match[2]])
