"""Opens the objects that a URI names, if the library for object stores is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clonos_py.model.errors import GraphError

if TYPE_CHECKING:
    from clonos_py.connectors.object_files import ObjectFiles


def object_files(owner: str, uri: str) -> ObjectFiles:
    """The objects that a URI names. Raises GraphError, also if the library for object stores is missing."""
    try:
        from clonos_py.connectors.object_files import ObjectFiles
    except ModuleNotFoundError as missing:
        raise GraphError(
            f"{owner}: files in an object store need obstore: pip install 'clonos-py[object-store]' ({uri})"
        ) from missing
    return ObjectFiles(owner, uri)
