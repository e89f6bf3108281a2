"""Default names of sources and sinks: the verb and what it connects to (P3)."""

from __future__ import annotations

import re
from typing import Any

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_UNFIT = re.compile(r"[^\w.-]+")


def stem_of(verb: str, definition: Any) -> str:
    """``source-bids`` for a definition named "bids", ``sink-parquet-file`` for a ParquetFileSink without a name."""
    name = getattr(definition, "name", None)
    if not isinstance(name, str) or not name:
        plain = re.sub(f"{verb.capitalize()}(Definition)?$", "", type(definition).__name__)
        name = _WORD.sub("-", plain).lower()
    return f"{verb}-{_UNFIT.sub('-', name).strip('-')}" if name else verb
