"""The far end of a pickled job: ``plan/pickling.py`` has packed it (P8)."""

from __future__ import annotations

from typing import Any

import cloudpickle  # type: ignore[import-untyped]


def unpack(packed: bytes) -> Any:
    """The inverse of ``pack``. It only gets bytes that came through Ray with the actor, never bytes of a socket."""
    return cloudpickle.loads(packed)
