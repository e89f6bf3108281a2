"""A replay observes operators by subclasses of them: none of their attributes may hide one of the operator's."""

from __future__ import annotations

import ast
import importlib
import inspect
import textwrap
from pathlib import Path
from types import FunctionType
from typing import Any

import pytest

import clonos_py.operators as operators
from clonos_py.model.operators import Operator
from clonos_py.runtime.replay import debugging, questions, traced_operators
from clonos_py.runtime.replay.traced_operators import TracedOperator

OBSERVING = [
    kind
    for module in (debugging, questions, traced_operators)
    for kind in vars(module).values()
    if inspect.isclass(kind) and issubclass(kind, Operator) and kind.__module__ == module.__name__
]


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


@pytest.mark.parametrize("kind", OBSERVING, ids=lambda kind: kind.__name__)
def test_what_an_observing_class_overrides_is_of_the_same_kind(kind: type[Operator]) -> None:
    """A property in the place of a method, or an attribute, is there by chance."""
    for name, found in vars(kind).items():
        overridden = next((vars(base)[name] for base in kind.__mro__[1:] if name in vars(base)), None)
        if not name.startswith("__") and overridden is not None:
            assert isinstance(found, FunctionType) == isinstance(overridden, FunctionType), name
