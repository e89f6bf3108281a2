"""Places in the user's code: the line that ran when something failed, for error messages.

Code is the user's unless it was loaded from the interpreter, the installed packages or this package. A place is
``fraud.py:31 in on_row``. It depends only on the code and the error, so that a replay finds the same one.
"""

from __future__ import annotations

import functools
import inspect
import os
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType, ModuleType, TracebackType
from typing import Any

from clonos_py.model.errors import UserCodeError

_OWN = Path(__file__).resolve().parent.parent
_NOT_THE_USERS = (
    _OWN,
    *((_OWN / linked).resolve() for linked in ("operators", "services", "bench")),
    *(Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")),
)
_NO_NAMES = frozenset({"<locals>", "<listcomp>", "<dictcomp>", "<setcomp>", "<genexpr>"})
_TRACEBACK_CHARACTERS_MAX = 20_000


def blamed(message: str, error: BaseException, function: Callable[..., Any] | None = None) -> UserCodeError:
    """The error to raise for an exception in user code. ``function``: the one called, even if it has returned."""
    if isinstance(error, UserCodeError) and error.place:
        return UserCodeError(message, error.place, error.traceback)
    place = place_of_failure(error, function) if function is not None else place_of(error)
    return UserCodeError(message, place, traceback_text(error))


def located(error: UserCodeError, where: str) -> UserCodeError:
    """The error with a place. ``where`` the operator was written serves if none was found in the user's functions."""
    return error if error.place else UserCodeError(error.text, where, error.traceback)


def place_of_failure(error: BaseException, function: Callable[..., Any]) -> str:
    """The last line of the user's code that ran, or else where ``function`` begins, since its result was wrong."""
    return place_of(error) or place_of_function(function)


@functools.lru_cache(maxsize=10_000)
def is_users(file: str) -> bool:
    """Whether the code of this file is the user's. Code without a file, such as generated or compiled code, is not."""
    if not os.path.isabs(file):
        return False
    if os.path.islink(file):
        return _is_in_users_folder(os.path.dirname(os.path.realpath(file)))
    return _is_in_users_folder(os.path.dirname(file))


@functools.lru_cache(maxsize=1_000)
def _is_in_users_folder(folder: str) -> bool:
    """The folders of the modules that a process has loaded are fewer than these, and to resolve one takes long."""
    path = Path(folder).resolve()
    return not any(path.is_relative_to(other) for other in _NOT_THE_USERS)


def user_modules() -> list[ModuleType]:
    """The user's modules that are loaded now, including the script that was started, in the order of loading."""
    return [module for module in list(sys.modules.values()) if is_users(getattr(module, "__file__", None) or "")]


def place_of(error: BaseException) -> str:
    """The last line of the user's code that ran when ``error`` was raised; empty if there is none.

    For a RecursionError it is the first line of the user's code, since the depth that fails is accidental.
    """
    steps = _users_steps(error.__traceback__)
    if isinstance(error, RecursionError):
        step = next(steps, None)
    else:
        *_, step = [None, *steps]
    return _place(step.tb_frame.f_code, step.tb_lineno) if step is not None else ""


def place_at_work(frame: FrameType | None) -> str:
    """The innermost line of the user's code on a stack; empty if there is none."""
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    return _place(frame.f_code, frame.f_lineno) if frame is not None else ""


def place_of_function(function: Callable[..., Any]) -> str:
    """The place where a user's function begins; empty if it is not the user's."""
    while isinstance(function, functools.partial):
        function = function.func
    function = inspect.unwrap(function)
    code = getattr(function, "__code__", None) or getattr(getattr(function, "__call__", None), "__code__", None)  # noqa: B004
    if not isinstance(code, CodeType) or not is_users(code.co_filename):
        return ""
    return _place(code, code.co_firstlineno)


def traceback_text(error: BaseException) -> str:
    """The traceback as Python prints it, from the first line of the user's code on, with the causes of the error."""
    first = next(_users_steps(error.__traceback__), error.__traceback__)
    lines = traceback.format_exception(type(error), error, first)
    text = "".join(lines)
    if len(text) > _TRACEBACK_CHARACTERS_MAX:
        half = _TRACEBACK_CHARACTERS_MAX // 2
        text = f"{text[:half]}\n  ...\n{text[-half:]}"
    return text


def _users_steps(step: TracebackType | None) -> Iterator[TracebackType]:
    while step is not None:
        if is_users(step.tb_frame.f_code.co_filename):
            yield step
        step = step.tb_next


def _place(code: CodeType, line: int) -> str:
    names = [name for name in code.co_qualname.split(".") if name not in _NO_NAMES]
    return f"{Path(code.co_filename).name}:{line} in {names[-1] if names else code.co_name}"
