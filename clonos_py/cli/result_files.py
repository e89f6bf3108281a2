"""Files in which commands leave their results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from clonos_py.model.errors import SettingError


@contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """In the block a file is written at another path, which then becomes ``path``, whole or not at all: what was there
    remains if it cannot be written. Raises SettingError."""
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
        os.replace(part, path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        raise SettingError(
            f"{path} cannot be written ({error.strerror}): make room there, or name a file in another folder"
        ) from error


def write_result(path: Path, text: str) -> None:
    """Writes a file, whole or not at all. Raises SettingError."""
    with replaced(path) as part:
        part.write_text(text, encoding="utf-8")


def write_new(path: Path, text: str) -> None:
    """Writes a file that did not exist, whole or not at all. Raises SettingError."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.link(part, path)  # unlike a move, it fails if the file is there now
    except FileExistsError:
        raise SettingError(f"{path} exists: choose another name, or remove it") from None
    except OSError as error:
        raise SettingError(
            f"{path} cannot be written ({error.strerror}): make room there, or name a file in another folder"
        ) from error
    finally:
        with suppress(OSError):
            part.unlink()
