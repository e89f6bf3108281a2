"""The rows of the reachability query: changes of links and paths, and the format of a path.

Both are deltas: ``weight`` is how many more times the link or path exists, or, below 0, how many fewer times. Deltas
may come in any order, a deletion before its addition: only their sum counts. A path consists of its nodes, 8 bytes
each, lowest byte first, and of ``node``, its last node. A source is a path of one node.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from clonos_py.columns.views import Column, Ints, fixed, texts
from clonos_py.model.record import Record

NODE_BYTES = 8


class LinkChange(Record):
    """A link from ``node`` to ``target``."""

    node: int
    target: int
    weight: int


class PathChange(Record):
    """A path from a source to ``node``."""

    node: int
    path: bytes
    weight: int


LINKS, PATHS = LinkChange.schema(), PathChange.schema()


def changes(commands: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """Splits commands into links and sources; sources become paths of one node. Both keep the order of the commands."""
    node = fixed(commands.column("node"))
    weight = np.where(commands.column("added").to_numpy(zero_copy_only=False), 1, -1)
    is_link = commands.column("target").is_valid().to_numpy(zero_copy_only=False)
    link, source = np.flatnonzero(is_link), np.flatnonzero(~is_link)
    targets = fixed(commands.column("target"))[link]
    starts = np.arange(len(source) + 1)
    return links_batch(node[link], targets, weight[link]), paths_batch(starts, node[source], weight[source])


def links_batch(nodes: Ints, targets: Ints, weights: Ints) -> pa.RecordBatch:
    arrays: list[Any] = [pa.array(values, pa.int64()) for values in (nodes, targets, weights)]
    return pa.RecordBatch.from_arrays(arrays, schema=LINKS)


def paths_batch(starts: Ints, nodes: Ints, weights: Ints) -> pa.RecordBatch:
    """A batch of paths. Path i has the nodes from ``starts[i]`` up to ``starts[i + 1]``, at least one."""
    bounds = pa.py_buffer((starts * NODE_BYTES).astype(np.int32).data)
    values = pa.py_buffer(np.ascontiguousarray(nodes, "<i8").data)
    path = pa.Array.from_buffers(pa.binary(), len(weights), [None, bounds, values])
    arrays: list[Any] = [pa.array(nodes[starts[1:] - 1], pa.int64()), path, pa.array(weights, pa.int64())]
    return pa.RecordBatch.from_arrays(arrays, schema=PATHS)


def nodes_of(paths: Column) -> tuple[Ints, Ints]:
    """The start of each path in the nodes, plus the end of the last one, and the nodes of all paths in one array."""
    bounds, data = texts(paths)
    return bounds // NODE_BYTES, np.frombuffer(data.tobytes(), "<i8").astype(np.int64, copy=False)
