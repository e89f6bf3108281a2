"""Record batches as frame bodies: Arrow's own message format without the schema, which both ends know from the plan.

Encoding makes one contiguous copy, so that a retained frame holds on to nothing but its own columns; decoding copies
nothing: the arrays point into the received buffer and keep it alive.
"""

from __future__ import annotations

import pyarrow as pa

from clonos_py.model.errors import CodecError

ALLOCATOR_ENVIRONMENT = {"ARROW_DEFAULT_MEMORY_POOL": "mimalloc", "MIMALLOC_PURGE_DELAY": "-1"}
"""For every process that keeps frames, set before Arrow is loaded: freed frames stay mapped and become the next ones.
Given back to the system instead, each page of each frame faults again (2 MB frames: 0.8 ms instead of 0.03)."""


def encode_batch(batch: pa.RecordBatch) -> pa.Buffer:
    """The batch as one message."""
    return batch.serialize()


def decode_batch(body: pa.Buffer, schema: pa.Schema) -> pa.RecordBatch:
    """The batch in ``body``. Raises CodecError where that is no batch of ``schema``."""
    try:
        return pa.ipc.read_record_batch(body, schema)
    except (pa.ArrowInvalid, OSError, ValueError, TypeError) as error:
        raise CodecError(f"a body of {body.size} bytes is no batch of the edge's schema: {error}") from error
