"""The line of the user's file that calls a verb. Error messages begin with it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from clonos_py.model.errors import GraphError, SettingError

_OWN_FOLDER = str(Path(__file__).parent)


class LocatedError(GraphError):
    """A GraphError whose message begins with the line that caused it."""


@dataclass(frozen=True)
class CallSite:
    """A line of the user's code. ``names`` are its local variables; they resolve the annotations of local functions."""

    text: str
    names: Mapping[str, Any]

    def __str__(self) -> str:
        return self.text


def call_site() -> CallSite:
    """The innermost line on the stack that lies outside this package."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _own(frame):
        frame = frame.f_back
    if frame is None:
        return CallSite("?", {})
    return CallSite(f"{_shown(frame.f_code.co_filename)}:{frame.f_lineno}", dict(frame.f_locals))


@contextmanager
def located(verb: str) -> Iterator[CallSite]:
    """Prefixes every error within it with the line of the call and the verb; nested uses add nothing."""
    site = call_site()
    try:
        yield site
    except LocatedError:
        raise
    except (GraphError, SettingError) as error:
        raise LocatedError(f"{site}: {verb}: {error}") from error


def refused(message: str) -> LocatedError:
    """The error for a line without a verb, such as an expression."""
    return LocatedError(f"{call_site()}: {message}")


def _own(frame: FrameType) -> bool:
    folder = os.path.dirname(frame.f_code.co_filename)
    return folder == _OWN_FOLDER or frame.f_code.co_filename.endswith("contextlib.py")


def _shown(filename: str) -> str:
    """The path relative to the working folder if it is inside it."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else filename
