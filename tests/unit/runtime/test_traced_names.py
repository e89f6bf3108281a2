"""A replay traces rows by a subclass of each operator: none of its attributes may hide one of the operator's."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from pathlib import Path
from typing import Any

import clonos_py.operators as operators
from clonos_py.model.operators import Operator
from clonos_py.runtime.replay.traced_operators import TracedOperator


def attributes(kind: type[Any]) -> set[str]:
    """The names of methods and attributes that the body of a class gives."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    found = {
        node.attr for node in ast.walk(body) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
    }
    return found | set(vars(kind))


def test_a_traced_operator_hides_no_attribute_of_an_operator() -> None:
    own = attributes(TracedOperator) - set(dir(Operator))
    assert {"_at_once", "history"} <= own
    kinds = set()
    for file in Path(str(operators.__file__)).parent.glob("[a-z]*.py"):
        module = importlib.import_module(f"clonos_py.operators.{file.stem}")
        kinds |= {kind for kind in vars(module).values() if inspect.isclass(kind) and issubclass(kind, Operator)}
    assert len(kinds) > 30
    shared = {kind.__name__: names for kind in kinds if (names := attributes(kind) & own - {"__doc__", "__module__"})}
    assert not shared
