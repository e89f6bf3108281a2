"""The user's own modules: what travels to a cluster with a job, and the digest that shows whether it changed (P8)."""

from __future__ import annotations

import sys
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import ModuleType

from clonos_py.model.places import is_users

_DIGEST_BYTES = 16


def user_modules() -> list[ModuleType]:
    """Those that are loaded now, a script that was started included, in the order they were loaded."""
    return [module for module in list(sys.modules.values()) if is_users(getattr(module, "__file__", None) or "")]


def code_digest() -> str:
    """Hexadecimal digest of the user's modules, by name and content: the same wherever the files lie and in whatever
    order they were imported."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for name, module in sorted({module.__name__: module for module in user_modules()}.items()):
        content = _content(module)
        digest.update(f"{len(name)} {len(content)} {name}".encode())
        digest.update(content)
    return digest.hexdigest()


def _content(module: ModuleType) -> bytes:
    """Of what has no file, as code typed in has none, the name must do."""
    with suppress(OSError):
        return Path(module.__file__ or "").read_bytes()
    return b""
