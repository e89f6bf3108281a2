"""Keeps pandas out of processes that do not use it.

pyarrow imports pandas, where it is installed, with the first array or scalar that is made of Python values: a quarter
of a second and 30 MB in each process. Until something else imports pandas, no value can be one of pandas, so pyarrow
does not need it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import pyarrow as pa

_PANDAS = "pandas"


def defer() -> None:
    """Makes pyarrow work as if pandas were not installed, until pandas is imported or a conversion to it is called.
    Does nothing if pandas is already imported."""
    if _PANDAS in sys.modules or any(isinstance(finder, _Finder) for finder in sys.meta_path):
        return
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    pa.array([0])  # pyarrow looks for pandas once, and again only when a conversion to it is called
    finder.finds = True


class _Finder(MetaPathFinder):
    """Finds no pandas at first. Once it ``finds`` pandas, it has it loaded by ``_Loader``."""

    finds = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != _PANDAS:
            return None
        if not self.finds:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """Loads pandas as its own loader does, then makes it known to pyarrow."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        pa.nulls(0, pa.int64()).to_pandas()  # pyarrow looks again

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)  # resources, source and the like
