"""Which URIs name places in object stores."""

from __future__ import annotations

_SCHEMES = frozenset({"s3", "s3a", "gs", "az", "azure", "abfs", "abfss", "adl"})


def names_objects(uri: str) -> bool:
    """Whether this is a URI with the scheme of an object store, as in ``s3://bucket/path``."""
    scheme, separator, _ = uri.partition("://")
    return bool(separator) and scheme.lower() in _SCHEMES
