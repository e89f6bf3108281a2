"""Watches the calls of user code while an operator runs: clocks, random numbers, the network, threads and files.

The interpreter's profile hook reports every call. A call to one of these counts if the innermost user code on the
stack, not a library's, was called by an operator. Calls within a service's client do not count.
"""

from __future__ import annotations

import random
import sys
import sysconfig
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np

import clonos_py
from clonos_py.runtime.check.findings import Finding, FindingKind

_OWN = Path(clonos_py.__file__).resolve().parent
_OPERATORS, _SERVICES = ((_OWN / name).resolve() for name in ("operators", "services"))
_LIBRARIES = tuple(
    f"{found}/"
    for name in ("stdlib", "platstdlib", "purelib", "platlib")
    for found in {sysconfig.get_path(name), str(Path(sysconfig.get_path(name)).resolve())}
)

_BY_MODULE: dict[str, FindingKind] = {
    "secrets": FindingKind.RANDOM,
    **dict.fromkeys(
        ("socket", "_socket", "ssl", "http.client", "urllib.request", "httpx", "requests"), FindingKind.NETWORK
    ),
    **dict.fromkeys(("threading", "multiprocessing", "subprocess", "concurrent.futures"), FindingKind.THREAD),
}
_BY_NAME: dict[tuple[str, str], FindingKind] = {
    **{("time", name): FindingKind.TIME for name in (
        "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "localtime",
        "gmtime",
    )},
    ("time", "sleep"): FindingKind.WAIT,
    **{("datetime", name): FindingKind.TIME for name in ("now", "utcnow", "today")},
    **{("uuid", name): FindingKind.UUID for name in ("uuid1", "uuid4")},
    ("_thread", "start_new_thread"): FindingKind.THREAD,
    ("posix", "urandom"): FindingKind.RANDOM,
    ("os", "urandom"): FindingKind.RANDOM,
    ("_io", "open"): FindingKind.FILE,
    ("io", "open"): FindingKind.FILE,
}  # fmt: skip
_HARMLESS = frozenset({"get_ident", "current_thread", "main_thread"})


def expose_numpy() -> None:
    """Wraps numpy's random functions in Python functions: the interpreter does not report calls of the originals."""
    for name in np.random.__all__:
        if callable(function := getattr(np.random, name)) and not isinstance(function, type):
            setattr(np.random, name, _seen(name, function))


def _seen(name: str, function: Any) -> Any:
    def drawing(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs) if name else None

    return drawing


_DRAWING = next(const for const in _seen.__code__.co_consts if isinstance(const, CodeType))


class CallMonitor:
    """Collects the findings of one process. Calls are watched inside ``at``."""

    def __init__(self) -> None:
        self._findings: dict[tuple[str, str], Finding] = {}
        self._operator = ""

    @property
    def findings(self) -> list[Finding]:
        """The first finding of each line. Later calls of that line are left out."""
        return list(self._findings.values())

    @contextmanager
    def at(self, operator: str) -> Iterator[None]:
        """Inside the block, calls count for this operator."""
        self._operator = operator
        sys.setprofile(self._look)
        try:
            yield
        finally:
            sys.setprofile(None)

    def _look(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call":
            found = _of_builtin(arg)
            caller: FrameType | None = frame
        elif event == "call":
            found = _of_function(frame)
            caller = frame.f_back
        else:
            return
        if found is not None and (line := _line_of_operator(caller)) is not None:
            kind, name = found
            finding = Finding(self._operator, line, kind, f"calls {name}")
            self._findings.setdefault((self._operator, line), finding)


def _of_builtin(function: Any) -> tuple[FindingKind, str] | None:
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if owner is random._inst:
        return FindingKind.RANDOM, f"random.{name}()"
    if isinstance(owner, type):
        module, shown = owner.__module__, f"{owner.__name__}.{name}"
    else:
        module = getattr(function, "__module__", None) or type(owner).__module__
        shown = f"{'os' if module == 'posix' else module.lstrip('_')}.{name}"
    return _classified(module, name, shown)


def _of_function(frame: FrameType) -> tuple[FindingKind, str] | None:
    code, module = frame.f_code, frame.f_globals.get("__name__", "")
    if code is _DRAWING:
        name, seeded = frame.f_locals["name"], bool(frame.f_locals["args"] or frame.f_locals["kwargs"])
        return None if name == "default_rng" and seeded else (FindingKind.RANDOM, f"numpy.random.{name}()")
    if module == "random":
        owner = frame.f_locals.get("self")
        unseeded = code.co_name == "__init__" and frame.f_locals.get("x", 0) is None
        if owner is random._inst or isinstance(owner, random.SystemRandom) or unseeded:
            return FindingKind.RANDOM, "random.Random()" if unseeded else f"random.{code.co_name}()"
        return None
    return _classified(module, code.co_name, code.co_qualname, module)


def _classified(module: str, name: str, shown: str, prefix: str = "") -> tuple[FindingKind, str] | None:
    if name in _HARMLESS or name.startswith("<"):
        return None
    known = _BY_NAME.get((module, name)) or next(
        (kind for known, kind in _BY_MODULE.items() if module == known or module.startswith(f"{known}.")), None
    )
    return None if known is None else (known, f"{prefix}.{shown}()" if prefix else f"{shown}()")


def _line_of_operator(frame: FrameType | None) -> str | None:
    """The line of the innermost user code, if an operator has called it; None if a service or the engine has."""
    line = None
    while frame is not None:
        path = Path(frame.f_code.co_filename)
        if _is_within(path, _OPERATORS):
            return line
        if _is_within(path, _SERVICES) or _is_within(path, _OWN):
            return None
        if line is None and _is_users(frame.f_code.co_filename):
            line = f"{_shown(path)}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def _is_within(path: Path, folder: Path) -> bool:
    return str(path.resolve()).startswith(f"{folder}/")


def _is_users(filename: str) -> bool:
    return not filename.startswith(("<", *_LIBRARIES))


def _shown(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
