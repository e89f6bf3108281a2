"""Keeps pandas out of processes that do not use it.

pyarrow imports pandas, where it is installed, with the first array or scalar that is made of Python values: a quarter
of a second and 30 MB in each process. Until something else imports pandas, no value can be one of pandas, so pyarrow
does not need it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_PANDAS, _PYARROW = "pandas", "pyarrow"


def defer_pandas() -> None:
    """Makes pyarrow work as if pandas were not installed, until pandas is imported or a conversion to it is called.
    Does nothing if pandas is already imported. pyarrow itself is not imported here."""
    if _PANDAS in sys.modules or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    if _PYARROW in sys.modules:
        finder.on_pyarrow()


class _Finder(MetaPathFinder):
    """Finds no pandas while pyarrow looks for it the first time. Learns when pyarrow or pandas have been loaded."""

    def __init__(self) -> None:
        self._hides_pandas = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == _PANDAS and self._hides_pandas:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        then = {_PANDAS: _on_pandas, _PYARROW: self.on_pyarrow}.get(fullname)
        if then is None:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, then)
        return spec

    def on_pyarrow(self) -> None:
        """Has pyarrow look for pandas now: it looks once, and again when a conversion to pandas is called."""
        import pyarrow as pa

        self._hides_pandas = _PANDAS not in sys.modules
        pa.array([0])
        self._hides_pandas = False


def _on_pandas() -> None:
    """Has pyarrow look for pandas again."""
    if _PYARROW in sys.modules:
        import pyarrow as pa

        pa.nulls(0, pa.int64()).to_pandas()


class _Loader(Loader):
    """Loads a module as its own loader does, then calls ``then``."""

    def __init__(self, loader: Loader, then: Callable[[], None]) -> None:
        self._loader, self._then = loader, then

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._then()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # resources, source and the like
