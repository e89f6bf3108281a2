"""Operators of a plan that are made as instances of a subclass, which observes or answers what their functions do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from clonos_py.model.operators import Operator


def subclassed(
    factory: Callable[[], Operator],
    kinds: Mapping[type[Operator], type[Operator]],
    otherwise: type[Operator],
    **attributes: Any,
) -> Operator:
    """The operator of ``factory`` with another class: that of ``kinds`` for its own class, else ``otherwise``, before
    its own one. ``attributes`` are set before it is opened."""
    operator = factory()
    own = type(operator)
    added = next((kind for of, kind in kinds.items() if issubclass(own, of)), otherwise)
    operator.__class__ = added if issubclass(added, own) else type(own.__name__, (added, own), {})
    vars(operator).update(attributes)
    return operator
