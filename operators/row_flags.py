"""A bit for each row of a table in a snapshot, such as whether the row is dead: beside the chunks, which stay as they
are when a bit changes."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Bools
from clonos_py.model.hidden import hidden
from clonos_py.model.state import Chunk, OperatorState
from clonos_py.operators.keyed_chunks import owned_part

_FLAG = hidden("flag")


def packed(flags: Bools) -> bytes:
    """The bits as a value of a snapshot."""
    return np.packbits(flags).tobytes()


def flagged(part: OperatorState, table: str, value: str) -> Iterator[tuple[Chunk, Bools]]:
    """The chunks of a table in a snapshot, each with the bits of its rows, which are packed in ``value``."""
    chunks = part.tables.get(table, ())
    count = sum(chunk.rows.num_rows for chunk in chunks)
    bits = np.unpackbits(np.frombuffer(part.values[value], np.uint8), count=count).astype(bool)
    for chunk in chunks:
        flags, bits = bits[: chunk.rows.num_rows], bits[chunk.rows.num_rows :]
        yield chunk, flags


def owned_flagged(chunk: Chunk, flags: Bools, groups: range) -> tuple[Chunk, Bools] | None:
    """The chunk's rows in ``groups``, with their bits; None if there are none."""
    kept = owned_part(chunk, groups)
    if kept is None or kept is chunk:
        return None if kept is None else (kept, flags)
    own = owned_part(Chunk(chunk.rows.append_column(_FLAG, pa.array(flags))), groups)
    assert own is not None
    return kept, own.rows.column(_FLAG).to_numpy(zero_copy_only=False)
