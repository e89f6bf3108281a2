"""Default names of sources and sinks: the verb and what it connects to (P3)."""

from __future__ import annotations

import re
from typing import Any

from clonos_py.model.errors import GraphError

_WORD = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_UNFIT = re.compile(r"[^\w.-]+")

_BYTES_MAX = 200
"""File systems take 255 bytes; names of files add the number of a task and more."""


def check_length(name: str) -> None:
    """Raises GraphError for a name that is too long to be part of the name of a file."""
    if (length := len(name.encode())) > _BYTES_MAX:
        raise GraphError(
            f"{name[:20]!r}... has {length} bytes: files are named after it, so a name has {_BYTES_MAX} at most"
        )


def stem_of(verb: str, definition: Any) -> str:
    """``source-bids`` for a definition named "bids", ``sink-parquet-file`` for a ParquetFileSink without a name."""
    name = getattr(definition, "name", None)
    if not isinstance(name, str) or not name:
        plain = re.sub(f"{verb.capitalize()}(Definition)?$", "", type(definition).__name__)
        name = _WORD.sub("-", plain).lower()
    return f"{verb}-{_UNFIT.sub('-', name).strip('-')}" if name else verb
