"""Optional libraries of connectors."""

from __future__ import annotations

from importlib.util import find_spec

from clonos_py.model.errors import GraphError


def need(owner: str, module: str, extra: str) -> None:
    """Raises GraphError if a library is missing. Imports nothing."""
    if find_spec(module) is None:
        raise GraphError(f"{owner} needs {module}: pip install 'clonos-py[{extra}]'")
