"""Common subexpressions of an operator's expressions are computed once per batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa

from clonos_py.expressions.kernels import Bound, Values
from clonos_py.expressions.tree import Column, Compiled, ExpressionNode, Literal

_Identity: TypeAlias = tuple[str | int, ...]


class CommonResults:
    """Cached common results for the current rows: a batch, or the rows of a branch. Pickling drops them."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, int], tuple[pa.RecordBatch, Values]] = {}

    def __reduce__(self) -> tuple[type[CommonResults], tuple[()]]:
        return CommonResults, ()

    def of(self, part: int, evaluate: Callable[[pa.RecordBatch], Values], rows: pa.RecordBatch) -> Values:
        """A part's values for these rows, which are cached with them, so that no other batch gets their id."""
        found = self._found.get((part, id(rows)))
        if found is None:
            found = self._found[part, id(rows)] = rows, evaluate(rows)
        return found[1]

    def clear(self) -> None:
        """Clears the cache after a batch."""
        self._found.clear()


@dataclass(frozen=True)
class SharedNode(ExpressionNode):
    """A part that several expressions have in common."""

    node: ExpressionNode
    part: int
    results: CommonResults

    def __str__(self) -> str:
        return str(self.node)

    def bind(self, schema: pa.Schema) -> Bound:
        bound = self.node.bind(schema)
        return replace(bound, evaluate=partial(self.results.of, self.part, bound.evaluate))


def compiled(
    columns: Sequence[tuple[str, ExpressionNode]], schema: pa.Schema, operator: str
) -> tuple[tuple[tuple[str, Compiled], ...], CommonResults | None]:
    """Compiles the expressions of an operator. Also returns the cache to clear after each batch, if there is one."""
    results = CommonResults()
    counts: Counter[_Identity] = Counter()
    for _, node in columns:
        _count(node, counts)
    parts = {key: part for part, key in enumerate(key for key, count in counts.items() if count > 1)}
    made = tuple((name, _sharing(node, parts, results).compile(schema, operator)) for name, node in columns)
    return made, results if parts else None


def _identity(node: ExpressionNode) -> _Identity:
    """A key that equal expressions share. It has the ids of functions, since different functions may print alike, such
    as methods of two objects."""
    return repr(node), *map(id, node.functions())


def _count(node: ExpressionNode, counts: Counter[_Identity]) -> None:
    """Counts each expression. Children of a repeated expression are counted only once."""
    if isinstance(node, Column | Literal):
        return
    key = _identity(node)
    counts[key] += 1
    if counts[key] == 1:
        for child in node.children():
            _count(child, counts)


def _sharing(node: ExpressionNode, parts: Mapping[_Identity, int], results: CommonResults) -> ExpressionNode:
    if isinstance(node, Column | Literal):
        return node
    made = node.rebuilt(lambda child: _sharing(child, parts, results))
    part = parts.get(_identity(node))
    return made if part is None else SharedNode(made, part, results)
