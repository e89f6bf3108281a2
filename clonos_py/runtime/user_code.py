"""A digest of the user's own modules that shows changes to them (P8)."""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from types import ModuleType

from clonos_py.model.places import user_modules

_DIGEST_BYTES = 16


def code_digest() -> str:
    """Hexadecimal digest of the names and contents of the user's modules. It depends neither on where the files lie nor
    on the order of import."""
    digest = blake2b(digest_size=_DIGEST_BYTES)
    for name, module in sorted({module.__name__: module for module in user_modules()}.items()):
        content = _content(module)
        digest.update(f"{len(name)} {len(content)} {name}".encode())
        digest.update(content)
    return digest.hexdigest()


def _content(module: ModuleType) -> bytes:
    """The module's source; empty if it has no file, as with code typed at a prompt. Its name must do then."""
    with suppress(OSError):
        return Path(module.__file__ or "").read_bytes()
    return b""
