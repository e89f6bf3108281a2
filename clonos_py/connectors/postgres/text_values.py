"""Values in the text form of the server as columns: whole columns at once.

The sessions that produce them have the settings of ``server``: times in UTC, ISO dates, bytes in hexadecimal.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from clonos_py.connectors.postgres.catalog import TableColumn
from clonos_py.model.errors import SourceError, one_line

_INTEGERS = frozenset(["int2", "int4", "int8", "oid"])
_EXACT = _INTEGERS | {"numeric"}
_READABLE: tuple[tuple[Callable[[Any], bool], frozenset[str]], ...] = (
    (pa.types.is_boolean, frozenset(["bool"])),
    (pa.types.is_integer, _INTEGERS),
    (pa.types.is_floating, _EXACT | {"float4", "float8"}),
    (pa.types.is_decimal, _EXACT),
    (pa.types.is_date32, frozenset(["date"])),
    (pa.types.is_binary, frozenset(["bytea"])),
)
"""Of a declared column: the types of the table that it can be read from."""


def readable(kind: Any, column: TableColumn) -> bool:
    """Whether a column of the table can be read as this type. Any has a text."""
    if pa.types.is_string(kind):
        return True
    if column.array:
        return False
    if pa.types.is_timestamp(kind):
        return kind.unit == "us" and column.base == ("timestamp" if kind.tz is None else "timestamptz")
    return any(accepts(kind) and column.base in types for accepts, types in _READABLE)


def parsed(texts: Any, kind: Any, column: str) -> Any:
    """The values. Raises SourceError for one that the type does not hold, such as ``infinity`` as a time."""
    try:
        if pa.types.is_boolean(kind):
            return pc.equal(texts, pa.scalar("t"))
        if pa.types.is_binary(kind):
            return _of_hexadecimal(texts)
        return texts.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, binascii.Error) as problem:
        raise SourceError(
            f"column {column!r} has a value that {kind} does not hold: {_culprit(texts, kind)} ({one_line(problem)}); "
            "declare the column as str, and convert it in the job"
        ) from None


def _of_hexadecimal(texts: Any) -> Any:
    """Of ``\\x00ff``."""
    digits: Any = pc.utf8_slice_codeunits(texts, 2).fill_null("")
    lengths = np.asarray(pc.binary_length(digits)) // 2
    offsets: Any = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    whole: Any = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(digits)], pa.int32()), digits), "")
    values = binascii.unhexlify(whole[0].as_py())
    valid = None if not texts.null_count else pc.is_valid(texts).buffers()[1]
    return pa.Array.from_buffers(
        pa.binary(), len(texts), [valid, pa.py_buffer(offsets.tobytes()), pa.py_buffer(values)]
    )


def _culprit(texts: Any, kind: Any) -> str:
    for text in texts:
        try:
            pa.array([text.as_py()], pa.string()).cast(kind)
        except pa.ArrowInvalid:
            return repr(text.as_py())
    return "one of its values"
