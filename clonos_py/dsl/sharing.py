"""What several expressions have in common is computed once for each batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import pyarrow as pa

from clonos_py.dsl.kernels import Bound, Values
from clonos_py.dsl.tree import Column, Compiled, Literal, Node


class Results:
    """Of common parts, for the rows at work: a batch, or those of its rows that a branch is for. Values stay behind
    where it is pickled."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], tuple[pa.RecordBatch, Values]] = {}

    def __reduce__(self) -> tuple[type[Results], tuple[()]]:
        return Results, ()

    def of(self, part: int, evaluate: Callable[[pa.RecordBatch], Values], rows: pa.RecordBatch) -> Values:
        """A part's values for these rows, which are kept, so that no others can be taken for them."""
        found = self._found.get((part, id(rows)))
        if found is None:
            found = self._found[part, id(rows)] = rows, evaluate(rows)
        return found[1]

    def clear(self) -> None:
        """The batch is done."""
        self._found.clear()


@dataclass(frozen=True)
class Shared(Node):
    """A part of several expressions."""

    node: Node
    part: int
    results: Results

    def __str__(self) -> str:
        return str(self.node)

    def _children(self) -> tuple[Node, ...]:
        return (self.node,)

    def bind(self, schema: pa.Schema) -> Bound:
        bound = self.node.bind(schema)
        return replace(bound, evaluate=partial(self.results.of, self.part, bound.evaluate))

    def substitute(self, columns: Mapping[str, Node]) -> Node:
        return replace(self, node=self.node.substitute(columns))


def compiled(
    columns: Sequence[tuple[str, Node]], schema: pa.Schema, operator: str
) -> tuple[tuple[tuple[str, Compiled], ...], Results | None]:
    """The expressions of one operator, and what is to be cleared after each batch; None where they share nothing."""
    results = Results()
    counts: Counter[str] = Counter()
    for _, node in columns:
        _count(node, counts)
    parts = {key: part for part, key in enumerate(key for key, count in counts.items() if count > 1)}
    made = tuple((name, _sharing(node, parts, results).compile(schema, operator)) for name, node in columns)
    return made, results if parts else None


def _count(node: Any, counts: Counter[str]) -> None:
    """How often each expression is there, outside of others that are there before."""
    if isinstance(node, Column | Literal):
        return
    key = repr(node)
    counts[key] += 1
    if counts[key] == 1:
        for child in _parts_of(node):
            _count(child, counts)


def _parts_of(node: Node) -> list[Node]:
    """The nodes that a node is made of."""
    values = [getattr(node, field.name) for field in fields(node)]  # type: ignore[arg-type]
    flat = [each for value in values for each in (value if isinstance(value, tuple) else (value,))]
    return [each for each in flat if isinstance(each, Node)]


def _sharing(node: Any, parts: Mapping[str, int], results: Results) -> Any:
    if isinstance(node, tuple):
        return tuple(_sharing(each, parts, results) for each in node)
    if not isinstance(node, Node) or isinstance(node, Column | Literal):
        return node
    made: Any = node
    changes = {f.name: _sharing(getattr(node, f.name), parts, results) for f in fields(made)}
    made = replace(made, **changes)
    part = parts.get(repr(node))
    return made if part is None else Shared(made, part, results)
