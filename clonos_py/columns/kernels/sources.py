"""The sources of the native kernels, and the version that follows from them. Imports nothing of the package, since the
build of a wheel loads this file alone."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

FOLDER = Path(__file__).parent
LIBRARY = "native.so"


def sources() -> list[Path]:
    """The C files, in a fixed order."""
    return sorted(FOLDER.glob("*.c"))


def version() -> int:
    """A digest of all sources (64 bits). A library has that of its own, so one that was built of other sources is
    recognised."""
    digest = hashlib.blake2b(digest_size=8)
    for name in sorted(os.listdir(FOLDER)):  # pathlib would take most of the time in which the library is loaded
        if name.endswith((".c", ".h")):
            with open(os.path.join(FOLDER, name), "rb") as file:
                digest.update(file.read())
    return int.from_bytes(digest.digest(), "little")
